#include "compare/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"

namespace sandglass {
namespace {

// The fraction 1/(1 + d1/(1 + d2/(1 + ...))) of the incomplete beta function (DLMF 8.17.22) by
// Lentz's method. Converges fast for x < (a + 1)/(a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;  // stands in for a denominator that vanishes
  constexpr double kPrecision = 1e-15;
  constexpr int kMaxTerms = 10000;
  const auto nonzero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double denominator = 1.0;
  double c = 1.0;
  double d = 0.0;
  for (int term = 1; term <= kMaxTerms; ++term) {
    const double m = term / 2;
    const double coefficient = term % 2 == 0
                                   ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                   : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1.0 / nonzero(1.0 + coefficient * d);
    c = nonzero(1.0 + coefficient / c);
    denominator *= c * d;
    if (std::fabs(c * d - 1.0) < kPrecision) break;
  }
  return 1.0 / denominator;
}

// The regularised incomplete beta function I_x(a, b), 0 < x < 1.
double IncompleteBeta(double a, double b, double x) {
  const double front = std::exp(a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) -
                                std::lgamma(a) - std::lgamma(b));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1.0 - front * BetaFraction(b, a, 1.0 - x) / b;
}

// The probability that Student's t exceeds `t` > 0.
double UpperTail(double t, double degrees) {
  return 0.5 * IncompleteBeta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

std::vector<double> Values(std::span<const SeedValue> seeds) {
  std::vector<double> values;
  for (const SeedValue& seed : seeds) values.push_back(seed.value);
  return values;
}

std::map<int64_t, double> BySeed(std::span<const SeedValue> seeds) {
  std::map<int64_t, double> by_seed;
  for (const SeedValue& seed : seeds) by_seed[seed.seed] = seed.value;
  SANDGLASS_CHECK(by_seed.size() == seeds.size(), "a seed appears twice");
  return by_seed;
}

// Variant minus baseline for each seed; empty unless both ran the same seeds.
std::vector<double> PairedDifferences(std::span<const SeedValue> variant,
                                      std::span<const SeedValue> baseline) {
  const std::map<int64_t, double> by_seed = BySeed(baseline);
  std::vector<double> differences;
  if (BySeed(variant).size() != by_seed.size()) return differences;
  for (const SeedValue& seed : variant) {
    const auto found = by_seed.find(seed.seed);
    if (found == by_seed.end()) return {};
    differences.push_back(seed.value - found->second);
  }
  return differences;
}

// Half the width of an interval around an estimate with this standard error.
double HalfWidth(double standard_error, double degrees) {
  return TQuantile(0.5 + kConfidence / 2, degrees) * standard_error;
}

double WelchHalfWidth(const std::vector<double>& variant, const std::vector<double>& baseline) {
  const auto squared_error = [](const std::vector<double>& values) {
    const double deviation = SampleDeviation(values);
    return deviation * deviation / static_cast<double>(values.size());
  };
  const double a = squared_error(variant);
  const double b = squared_error(baseline);
  if (a + b == 0) return 0;
  const double degrees = (a + b) * (a + b) /
                         (a * a / static_cast<double>(variant.size() - 1) +
                          b * b / static_cast<double>(baseline.size() - 1));
  return HalfWidth(std::sqrt(a + b), degrees);
}

std::string SeedsText(const SeedComparison& comparison) {
  if (comparison.variant_seeds != comparison.baseline_seeds) {
    return fmt::format("{} against {} seeds", comparison.variant_seeds, comparison.baseline_seeds);
  }
  return fmt::format("{} seeds", comparison.variant_seeds);
}

}  // namespace

double Mean(std::span<const double> values) {
  SANDGLASS_CHECK(!values.empty(), "the mean of nothing");
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double SampleDeviation(std::span<const double> values) {
  if (values.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const double mean = Mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double TQuantile(double probability, double degrees) {
  SANDGLASS_CHECK(probability > 0 && probability < 1 && degrees > 0, "outside the domain");
  if (probability == 0.5) return 0;
  if (probability < 0.5) return -TQuantile(1 - probability, degrees);
  const double tail = 1 - probability;
  double low = 0;
  double high = 1;
  while (UpperTail(high, degrees) > tail) high *= 2;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return middle;
    (UpperTail(middle, degrees) > tail ? low : high) = middle;
  }
}

SeedComparison CompareSeeds(std::span<const SeedValue> variant,
                            std::span<const SeedValue> baseline) {
  SeedComparison out;
  out.variant_seeds = static_cast<int>(variant.size());
  out.baseline_seeds = static_cast<int>(baseline.size());
  if (variant.empty() || baseline.empty()) return out;
  const std::vector<double> variant_values = Values(variant);
  const std::vector<double> baseline_values = Values(baseline);
  out.difference = Mean(variant_values) - Mean(baseline_values);
  if (variant.size() < 2 || baseline.size() < 2) return out;

  const std::vector<double> differences = PairedDifferences(variant, baseline);
  if (differences.empty()) {
    out.pairing = Pairing::kWelch;
    out.half_width = WelchHalfWidth(variant_values, baseline_values);
  } else {
    const double pairs = static_cast<double>(differences.size());
    out.pairing = Pairing::kPaired;
    out.difference = Mean(differences);
    out.half_width = HalfWidth(SampleDeviation(differences) / std::sqrt(pairs), pairs - 1);
  }
  if (std::fabs(out.difference) > out.half_width) {
    out.verdict = out.difference < 0 ? Verdict::kBetter : Verdict::kWorse;
  }
  return out;
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kInconclusive:
      break;
  }
  return "inconclusive";
}

const char* PairingName(Pairing pairing) {
  switch (pairing) {
    case Pairing::kPaired:
      return "paired by seed";
    case Pairing::kWelch:
      return "Welch";
    case Pairing::kNone:
      break;
  }
  return "none";
}

std::string VerdictText(const SeedComparison& comparison, const std::string& baseline,
                        const std::string& unit) {
  if (std::isnan(comparison.difference)) {
    return fmt::format("is inconclusive: {} has no finished run",
                       comparison.baseline_seeds == 0 ? baseline : "it");
  }
  const std::string size = FormatUncertain(std::fabs(comparison.difference), comparison.half_width);
  if (comparison.pairing == Pairing::kNone) {
    return fmt::format("is inconclusive: a single seed cannot support a difference of {} {}", size,
                       unit);
  }
  if (comparison.verdict == Verdict::kInconclusive) {
    return fmt::format("is inconclusive: {} cannot support a difference of {} {}",
                       SeedsText(comparison), size, unit);
  }
  return fmt::format("is {} than {} by {} ± {} {} ({})", VerdictName(comparison.verdict), baseline,
                     size, FormatUncertain(comparison.half_width, comparison.half_width), unit,
                     SeedsText(comparison));
}

std::string FormatUncertain(double value, double uncertainty) {
  int decimals = 4;
  if (std::isfinite(uncertainty) && uncertainty > 0) {
    decimals = std::clamp(1 - static_cast<int>(std::floor(std::log10(uncertainty))), 2, 6);
  }
  return fmt::format("{:.{}f}", value, decimals);
}

std::string FormatDifference(const SeedComparison& comparison) {
  if (std::isnan(comparison.difference)) return "–";
  const std::string size = FormatUncertain(std::fabs(comparison.difference), comparison.half_width);
  const std::string text = (comparison.difference < 0 ? "−" : "+") + size;
  if (comparison.pairing == Pairing::kNone) return text;
  return text + " ± " + FormatUncertain(comparison.half_width, comparison.half_width);
}

}  // namespace sandglass
