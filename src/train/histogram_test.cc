#include "train/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace sandglass {
namespace {

TEST(Histogram, EveryValueLiesWithinTheEdgesOfItsBucket) {
  // One value at a time, so that the one filled bucket is known.
  RandomStream random(1, "values");
  for (int i = 0; i < 2000; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    const float value = static_cast<float>(sign * std::exp2(80 * random.NextUniform() - 39));
    const Histogram histogram = MakeHistogram(ViewOf(&value, 1, 1));
    ASSERT_EQ(histogram.counts.size(), 2u) << value;
    EXPECT_EQ(histogram.counts[0], 0);
    EXPECT_EQ(histogram.counts[1], 1);
    EXPECT_LE(histogram.limits[0], value);
    EXPECT_GE(histogram.limits[1], value);
    // Four buckets to a power of two.
    EXPECT_LE(histogram.limits[1] - histogram.limits[0], std::abs(value) * 0.2500001);
  }
}

TEST(Histogram, SumsAreThoseOfTheValues) {
  std::vector<double> values(1001);
  RandomStream random(2, "values");
  for (double& value : values) value = static_cast<float>(random.NextNormal() * 0.02);
  const Histogram histogram = MakeHistogram(ViewOf(values.data(), 7, 143));
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(histogram.sum, sum, 1e-12);
  EXPECT_NEAR(histogram.sum_squares, squares, 1e-12);
  EXPECT_EQ(histogram.min, std::ranges::min(values));
  EXPECT_EQ(histogram.max, std::ranges::max(values));
  EXPECT_EQ(histogram.count, 1001);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), int64_t{0}), 1001);
}

TEST(Histogram, WhatIsNotFiniteIsCountedApart) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1.0f, -infinity, infinity, std::nanf(""), -2.0f, 3.0e38f};
  const Histogram histogram = MakeHistogram(ViewOf(values.data(), 1, 6));
  EXPECT_EQ(histogram.count, 3);
  EXPECT_EQ(histogram.not_finite, 3);
  EXPECT_EQ(histogram.min, -2.0);
  EXPECT_EQ(histogram.max, 3.0e38f);
  EXPECT_NEAR(histogram.sum, 3.0e38, 1e32);
  EXPECT_EQ(histogram.counts.back(), 1);
  EXPECT_GE(histogram.limits.back(), 3.0e38f);
}

TEST(Histogram, ColumnsOfAWiderMatrixAreReadByTheirStride) {
  std::vector<float> values = {1, 100, 2, 100};
  const Histogram histogram = MakeHistogram(ViewOf(values.data(), 2, 2).Columns(0, 1));
  EXPECT_EQ(histogram.count, 2);
  EXPECT_EQ(histogram.max, 2.0);
  EXPECT_EQ(histogram.sum, 3.0);
}

}  // namespace
}  // namespace sandglass
