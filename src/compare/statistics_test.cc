#include "compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sandglass {
namespace {

std::vector<SeedValue> Seeds(const std::vector<double>& values, int64_t first_seed = 1) {
  std::vector<SeedValue> out;
  for (const double value : values) out.push_back({first_seed++, value});
  return out;
}

TEST(Statistics, MeanAndDeviation) {
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(Mean(values), 5);
  EXPECT_DOUBLE_EQ(SampleDeviation(values), std::sqrt(32.0 / 7));
  EXPECT_TRUE(std::isnan(SampleDeviation(std::vector<double>{3})));
}

// Percentage points of Student's t as every table prints them (Fisher and Yates; NIST/SEMATECH
// e-Handbook 1.3.6.7.2), to the printed digit.
TEST(Statistics, QuantilesAreThePublishedOnes) {
  const double kPrinted = 0.0005;
  const std::vector<std::pair<double, double>> upper_975 = {
      {1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},   {9, 2.262},
      {10, 2.228}, {20, 2.086}, {30, 2.042}, {60, 2.000}, {100, 1.984}, {1e7, 1.960}};
  for (const auto& [degrees, t] : upper_975) {
    EXPECT_NEAR(TQuantile(0.975, degrees), t, kPrinted) << degrees;
  }
  EXPECT_NEAR(TQuantile(0.95, 1), 6.314, kPrinted);
  EXPECT_NEAR(TQuantile(0.99, 7), 2.998, kPrinted);
  EXPECT_NEAR(TQuantile(0.999, 5), 5.893, kPrinted);
}

// One and two degrees have closed forms: tan(pi (p - 1/2)) and (2p - 1) sqrt(2 / (1 - (2p - 1)^2)).
// The tolerance is a few hundred roundings of the series.
TEST(Statistics, QuantilesOfClosedForms) {
  for (const double p : {0.001, 0.025, 0.2, 0.45, 0.5, 0.6, 0.9, 0.975, 0.9995}) {
    const double one = std::tan(M_PI * (p - 0.5));
    const double odds = 2 * p - 1;
    const double two = odds * std::sqrt(2 / (1 - odds * odds));
    EXPECT_NEAR(TQuantile(p, 1), one, 1e-11 * (1 + std::fabs(one))) << p;
    EXPECT_NEAR(TQuantile(p, 2), two, 1e-11 * (1 + std::fabs(two))) << p;
  }
  EXPECT_GT(TQuantile(0.975, 1.5), TQuantile(0.975, 2));
  EXPECT_LT(TQuantile(0.975, 1.5), TQuantile(0.975, 1));
}

// Differences -0.020, -0.022, -0.024: mean -0.022, deviation 0.002, standard error 0.002/sqrt(3),
// t(0.975, 2) = 4.30265. The seeds' own spread (0.1) cancels.
TEST(Statistics, SameSeedsArePaired) {
  const SeedComparison result =
      CompareSeeds(Seeds({1.980, 2.078, 2.176}), Seeds({2.000, 2.100, 2.200}));
  EXPECT_EQ(result.pairing, Pairing::kPaired);
  EXPECT_NEAR(result.difference, -0.022, 1e-12);
  EXPECT_NEAR(result.half_width, 4.30265 * 0.002 / std::sqrt(3), 1e-7);
  EXPECT_EQ(result.verdict, Verdict::kBetter);
  EXPECT_EQ(VerdictText(result, "llama", "bits per byte"),
            "is better than llama by 0.0220 ± 0.0050 bits per byte (3 seeds)");
  EXPECT_EQ(FormatDifference(result), "−0.0220 ± 0.0050");
}

TEST(Statistics, PairsAreFoundByTheSeedNotByTheOrder) {
  const std::vector<SeedValue> variant = {{7, 1.9}, {3, 2.9}};
  const std::vector<SeedValue> baseline = {{3, 3.0}, {7, 2.0}};
  const SeedComparison result = CompareSeeds(variant, baseline);
  EXPECT_EQ(result.pairing, Pairing::kPaired);
  EXPECT_NEAR(result.half_width, 0, 1e-12);
  EXPECT_EQ(result.verdict, Verdict::kBetter);
}

// Means 1 and 2; squared errors 0.02/2 = 0.01 and 0.08/2 = 0.04;
// degrees 0.05^2 / (0.01^2 + 0.04^2) = 1.470588; t(0.975, 1.470588) = 6.1881 by numerical
// integration of the density.
TEST(Statistics, DifferentSeedsAreWelch) {
  const SeedComparison result = CompareSeeds(Seeds({0.9, 1.1}), Seeds({1.8, 2.2}, 10));
  EXPECT_EQ(result.pairing, Pairing::kWelch);
  EXPECT_NEAR(result.difference, -1, 1e-12);
  EXPECT_NEAR(result.half_width, 6.1881 * std::sqrt(0.05), 1e-4);
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_EQ(CompareSeeds(Seeds({5, 5}), Seeds({4, 4, 4}, 10)).verdict, Verdict::kWorse);
  EXPECT_EQ(VerdictText(CompareSeeds(Seeds({5.01, 4.99}), Seeds({4, 4.01, 3.99}, 10)), "b", "bits"),
            "is worse than b by 1.000 ± 0.060 bits (2 against 3 seeds)");
}

TEST(Statistics, ASingleSeedIsInconclusiveHoweverLargeTheDifference) {
  const SeedComparison result = CompareSeeds(Seeds({1.0}), Seeds({9.0}));
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_EQ(result.difference, -8);
  EXPECT_EQ(VerdictText(result, "b", "bits per byte"),
            "is inconclusive: a single seed cannot support a difference of 8.0000 bits per byte");
  EXPECT_EQ(CompareSeeds(Seeds({1.0}), Seeds({9.0, 9.1, 9.2})).verdict, Verdict::kInconclusive);
}

TEST(Statistics, AnIntervalWithZeroInItIsInconclusive) {
  const SeedComparison result = CompareSeeds(Seeds({1.999, 2.093}), Seeds({2.0, 2.1}));
  EXPECT_EQ(result.verdict, Verdict::kInconclusive);
  EXPECT_EQ(VerdictText(result, "b", "bits per byte"),
            "is inconclusive: 2 seeds cannot support a difference of 0.004 bits per byte");
  // The interval's edge is 0 itself: two equal sides.
  EXPECT_EQ(CompareSeeds(Seeds({2, 2}), Seeds({2, 2})).verdict, Verdict::kInconclusive);
}

TEST(Statistics, SidesWithoutRunsAreNamed) {
  EXPECT_EQ(VerdictText(CompareSeeds({}, Seeds({2, 2})), "b", "bits"),
            "is inconclusive: it has no finished run");
  EXPECT_EQ(VerdictText(CompareSeeds(Seeds({2, 2}), {}), "b", "bits"),
            "is inconclusive: b has no finished run");
  EXPECT_EQ(FormatDifference(CompareSeeds({}, {})), "–");
}

TEST(StatisticsDeathTest, ARepeatedSeedIsNoEvidence) {
  const std::vector<SeedValue> twice = {{1, 2.0}, {1, 2.0}};
  EXPECT_DEATH(CompareSeeds(twice, twice), "a seed appears twice");
}

}  // namespace
}  // namespace sandglass
