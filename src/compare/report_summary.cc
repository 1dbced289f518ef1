#include "compare/report_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/format.h"

namespace sandglass {
namespace {

constexpr const char* kUnit = "bits per byte";

bool HasResult(const ReportRun& run) {
  return run.status == RunStatus::kFinished && std::isfinite(run.validation_loss) &&
         std::isfinite(run.bits_per_byte);
}

Spread SpreadOf(const std::vector<const ReportRun*>& runs, double ReportRun::*quantity) {
  if (runs.empty()) return {};
  std::vector<double> values;
  for (const ReportRun* run : runs) values.push_back(run->*quantity);
  return {Mean(values), SampleDeviation(values)};
}

std::vector<SeedValue> SeedValues(const VariantSummary& summary) {
  std::vector<SeedValue> values;
  for (const ReportRun* run : summary.finished) values.push_back({run->seed, run->bits_per_byte});
  return values;
}

VariantSummary SummarizeVariant(const ReportVariant& variant, const ReportData& data) {
  VariantSummary out;
  out.variant = &variant;
  for (const ReportRun& run : variant.runs) {
    if (HasResult(run)) out.finished.push_back(&run);
  }
  out.validation_loss = SpreadOf(out.finished, &ReportRun::validation_loss);
  out.perplexity = SpreadOf(out.finished, &ReportRun::perplexity);
  out.bits_per_byte = SpreadOf(out.finished, &ReportRun::bits_per_byte);
  out.tokens_per_s = SpreadOf(out.finished, &ReportRun::tokens_per_s);
  out.wall_s = SpreadOf(out.finished, &ReportRun::wall_s);
  for (const ReportRun* run : out.finished) {
    out.peak_memory_bytes = std::max(out.peak_memory_bytes, run->peak_memory_bytes);
  }
  out.is_baseline = variant.name == data.baseline;
  out.matched = std::fabs(variant.relative_difference) <= data.tolerance;
  return out;
}

// "a", "a and b", "a, b and c".
std::string Enumerate(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? "" : names[0];
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

// The sentences about the variants with this verdict, the largest difference first. Beyond a few
// variants only the first is told in full.
std::string VerdictSentences(const ReportSummary& summary, const ReportData& data,
                             Verdict verdict) {
  constexpr size_t kToldInFull = 4;
  std::vector<const VariantSummary*> group;
  for (const VariantSummary& variant : summary.variants) {
    if (!variant.is_baseline && variant.comparison.verdict == verdict) group.push_back(&variant);
  }
  std::stable_sort(group.begin(), group.end(), [](const auto* a, const auto* b) {
    return std::fabs(a->comparison.difference) > std::fabs(b->comparison.difference);
  });
  std::string text;
  std::vector<std::string> others;
  for (const VariantSummary* variant : group) {
    if (text.empty() || summary.variants.size() - 1 <= kToldInFull) {
      text += fmt::format("{} {}. ", variant->variant->name,
                          VerdictText(variant->comparison, data.baseline, kUnit));
    } else {
      others.push_back(variant->variant->name);
    }
  }
  if (!others.empty()) {
    text += fmt::format("So {} {}. ", others.size() == 1 ? "is" : "are", Enumerate(others));
  }
  return text;
}

std::string CompressorSentences(const ReportSummary& summary, const ReportData& data) {
  std::vector<std::string> beaten;
  std::string text;
  for (const ReportCompressor& compressor : data.text.compressors) {
    std::vector<std::string> above;
    for (const VariantSummary& variant : summary.variants) {
      if (variant.bits_per_byte.mean >= compressor.bits_per_byte) {
        above.push_back(variant.variant->name);
      }
    }
    const std::string name = fmt::format("{} ({:.3f})", compressor.name, compressor.bits_per_byte);
    if (above.empty()) {
      beaten.push_back(name);
    } else {
      text += fmt::format("{} {} no better than {}. ", Enumerate(above),
                          above.size() == 1 ? "is" : "are", name);
    }
  }
  if (beaten.empty()) return text;
  return fmt::format("Every {}model needs fewer bits per byte than {}. ",
                     text.empty() ? "" : "other ", Enumerate(beaten)) +
         text;
}

std::string VerdictParagraph(const ReportSummary& summary, const ReportData& data) {
  std::string sentences;
  for (const Verdict verdict : {Verdict::kBetter, Verdict::kWorse, Verdict::kInconclusive}) {
    sentences += VerdictSentences(summary, data, verdict);
  }
  if (sentences.empty()) sentences = "there is nothing to compare the baseline with. ";
  const bool all_matched = std::all_of(summary.variants.begin(), summary.variants.end(),
                                       [](const VariantSummary& v) { return v.matched; });
  const std::string tolerance = FormatTolerance(data.tolerance);
  std::string text = all_matched ? fmt::format("At equal {} (within {}), ", data.matched, tolerance)
                                 : fmt::format("With {} that are not all equal within {}, ",
                                               data.matched, tolerance);
  text += sentences;
  const bool any_result = std::any_of(summary.variants.begin(), summary.variants.end(),
                                      [](const VariantSummary& v) { return !v.finished.empty(); });
  if (any_result) text += CompressorSentences(summary, data);
  text.pop_back();
  return text;
}

std::vector<std::string> Warnings(const ReportSummary& summary, const ReportData& data) {
  std::vector<std::string> warnings;
  std::set<int64_t> tokens;
  for (const VariantSummary& variant : summary.variants) {
    const std::string& name = variant.variant->name;
    if (!variant.matched) {
      warnings.push_back(fmt::format("{} is not matched: {} in {} against {}, tolerance {}.", name,
                                     FormatPercent(variant.variant->relative_difference),
                                     data.matched, data.baseline, FormatTolerance(data.tolerance)));
    }
    for (const ReportRun& run : variant.variant->runs) {
      if (HasResult(run)) {
        tokens.insert(run.tokens);
      } else {
        warnings.push_back(fmt::format("{}, seed {} does not count: {}.", name, run.seed,
                                       run.status == RunStatus::kFinished
                                           ? "its loss is not a finite number"
                                           : run.message.substr(0, run.message.find('\n'))));
      }
    }
  }
  if (tokens.size() > 1) {
    warnings.push_back(fmt::format("The runs trained on different numbers of tokens, {} to {}.",
                                   WithThousands(*tokens.begin()),
                                   WithThousands(*tokens.rbegin())));
  }
  return warnings;
}

std::string WithDecimals(double value, int significant_digits) {
  const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  std::string text =
      fmt::format("{:.{}f}", value, std::clamp(significant_digits - 1 - magnitude, 0, 8));
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

ReportSummary Summarize(const ReportData& data) {
  ReportSummary out;
  for (const ReportVariant& variant : data.variants) {
    out.variants.push_back(SummarizeVariant(variant, data));
  }
  const auto baseline = std::find_if(out.variants.begin(), out.variants.end(),
                                     [](const VariantSummary& v) { return v.is_baseline; });
  SANDGLASS_CHECK(baseline != out.variants.end(), "the baseline is not among the variants");
  const std::vector<SeedValue> baseline_values = SeedValues(*baseline);
  for (VariantSummary& variant : out.variants) {
    variant.comparison = CompareSeeds(SeedValues(variant), baseline_values);
  }
  out.verdict = VerdictParagraph(out, data);
  out.warnings = Warnings(out, data);
  return out;
}

std::vector<Trend> FindTrends(const ReportSummary& summary) {
  constexpr size_t kEnoughForATrend = 3;
  struct Quantity {
    const char* title;
    const char* axis;
    double (*of)(const ReportVariant&);
  };
  static constexpr Quantity kQuantities[] = {
      {"Loss against the number of sub-MLPs", "sub-MLPs per layer, K",
       [](const ReportVariant& v) { return double(v.sub_mlps); }},
      {"Loss against the FFN ratio", "FFN ratio, d_h / d_model",
       [](const ReportVariant& v) { return v.ffn_ratio; }},
      {"Loss against width per layer", "width per layer, d_model / L",
       [](const ReportVariant& v) { return v.width_per_layer(); }},
      {"Loss against the share of attention", "attention, % of matrices",
       [](const ReportVariant& v) { return 100 * v.attention_share(); }}};
  std::vector<Trend> trends;
  for (const Quantity& quantity : kQuantities) {
    Trend trend{quantity.title, quantity.axis, {}};
    std::set<std::string> distinct;  // to three digits: matching budgets jitters the rest
    for (const VariantSummary& variant : summary.variants) {
      trend.values.push_back(quantity.of(*variant.variant));
      if (!variant.finished.empty()) distinct.insert(fmt::format("{:.3g}", trend.values.back()));
    }
    if (distinct.size() >= kEnoughForATrend) trends.push_back(std::move(trend));
  }
  return trends;
}

std::vector<CurvePoint> ThinCurve(const std::vector<CurvePoint>& curve, size_t max_points) {
  std::vector<CurvePoint> finite;
  for (const CurvePoint& point : curve) {
    if (std::isfinite(point.loss)) finite.push_back(point);
  }
  if (finite.size() <= max_points) return finite;
  std::vector<CurvePoint> out;
  for (size_t bin = 0; bin < max_points; ++bin) {
    const size_t begin = bin * finite.size() / max_points;
    const size_t end = (bin + 1) * finite.size() / max_points;
    double tokens = 0;
    double loss = 0;
    for (size_t i = begin; i < end; ++i) {
      tokens += static_cast<double>(finite[i].tokens);
      loss += finite[i].loss;
    }
    const double count = static_cast<double>(end - begin);
    out.push_back({std::llround(tokens / count), loss / count});
  }
  return out;
}

std::string FormatSpread(const Spread& spread) {
  if (std::isnan(spread.mean)) return "–";
  const std::string mean = FormatUncertain(spread.mean, spread.deviation);
  if (std::isnan(spread.deviation)) return mean;
  return mean + " ± " + FormatUncertain(spread.deviation, spread.deviation);
}

std::string FormatPercent(double relative) {
  constexpr double kSmallestShown = 1e-10;
  if (std::fabs(relative) < kSmallestShown) return "0 %";
  return (relative < 0 ? "−" : "+") + WithDecimals(std::fabs(100 * relative), 3) + " %";
}

std::string FormatTolerance(double relative) {
  return relative > 0 ? WithDecimals(100 * relative, 3) + " %" : "0 %";
}

}  // namespace sandglass
