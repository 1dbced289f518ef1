// Means and spreads over seeds, and whether a difference can be told from chance.
//
// Differences are those of a loss (lower is better) and always variant minus baseline. The interval
// is Student's 95 % interval: over the per-seed differences where both sides ran the same seeds
// (a seed fixes the order of the data, so its luck cancels), else Welch's over the two means.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

namespace sandglass {

// At least one value.
double Mean(std::span<const double> values);

// Sample standard deviation (divisor n - 1); NaN for fewer than two values, which have none.
double SampleDeviation(std::span<const double> values);

// The t below which Student's distribution with `degrees` > 0 (need not be whole) has probability
// `probability` in (0, 1). Relative error below 1e-10.
double TQuantile(double probability, double degrees);

inline constexpr double kConfidence = 0.95;

struct SeedValue {
  int64_t seed = 0;
  double value = 0.0;
};

// Better or worse only if the interval excludes 0; with a single seed on either side there is no
// interval, and the verdict is inconclusive.
enum class Verdict { kBetter, kWorse, kInconclusive };
enum class Pairing { kNone, kPaired, kWelch };

struct SeedComparison {
  Verdict verdict = Verdict::kInconclusive;
  Pairing pairing = Pairing::kNone;  // kNone: too few seeds for an interval
  int variant_seeds = 0;
  int baseline_seeds = 0;
  double difference = std::numeric_limits<double>::quiet_NaN();  // NaN if a side has no seed
  double half_width = std::numeric_limits<double>::infinity();   // of the interval
};

// Seeds are distinct within each side, values finite.
SeedComparison CompareSeeds(std::span<const SeedValue> variant,
                            std::span<const SeedValue> baseline);

const char* VerdictName(Verdict verdict);
const char* PairingName(Pairing pairing);

// The verdict in words, to follow the variant's name:
//   "is better than llama by 0.0210 ± 0.0062 bits per byte (2 seeds)"
//   "is inconclusive: 2 seeds cannot support a difference of 0.0040 bits per byte"
std::string VerdictText(const SeedComparison& comparison, const std::string& baseline,
                        const std::string& unit);

// `value` rounded to the second significant digit of its uncertainty, within 2 to 6 decimals;
// 4 decimals if the uncertainty is not a positive number.
std::string FormatUncertain(double value, double uncertainty);

// "−0.0210 ± 0.0062", or "−0.0210" if there is no interval.
std::string FormatDifference(const SeedComparison& comparison);

}  // namespace sandglass
