// What all forms of a report say, computed once: means and spreads over seeds, verdicts, warnings.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compare/report.h"
#include "compare/statistics.h"

namespace sandglass {

// Over the finished runs of a variant. NaN where there are too few.
struct Spread {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
};

struct VariantSummary {
  const ReportVariant* variant = nullptr;
  std::vector<const ReportRun*> finished;
  Spread validation_loss;
  Spread perplexity;
  Spread bits_per_byte;
  Spread tokens_per_s;
  Spread wall_s;
  std::optional<int64_t> peak_memory_bytes;  // largest of the runs
  SeedComparison comparison;                 // of bits per byte with the baseline
  bool is_baseline = false;
  bool matched = false;  // within the tolerance
};

struct ReportSummary {
  std::vector<VariantSummary> variants;  // as in the data
  std::string verdict;                   // a paragraph
  std::vector<std::string> warnings;     // what a reader must know before believing the verdict
};

// Refers to `data`, which must outlive it.
ReportSummary Summarize(const ReportData& data);

// A design quantity that the variants vary, for a chart of loss against it.
struct Trend {
  std::string title;
  std::string axis;
  std::vector<double> values;  // one per variant
};

// Those with at least three distinct values among variants that have results.
std::vector<Trend> FindTrends(const ReportSummary& summary);

// At most `max_points` points, each the mean of a run of neighbours; keeps the trend of a noisy
// curve and drops points that are not finite.
std::vector<CurvePoint> ThinCurve(const std::vector<CurvePoint>& curve, size_t max_points);

// "2.1340 ± 0.0042" (sample standard deviation), the mean alone for one run, "–" for none.
std::string FormatSpread(const Spread& spread);

// 0.00293 -> "+0.293 %", 0 -> "0 %".
std::string FormatPercent(double relative);

// 1e-5 -> "0.001 %".
std::string FormatTolerance(double relative);

}  // namespace sandglass
