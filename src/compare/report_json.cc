// The report as JSON: the data as it is, and what the other forms show of it.
#include "base/fields.h"
#include "compare/report.h"
#include "compare/report_summary.h"

namespace sandglass {
namespace {

Json SpreadJson(const Spread& spread) {
  return {{"mean", spread.mean}, {"standard_deviation", spread.deviation}};
}

Json ComparisonJson(const SeedComparison& comparison) {
  return {{"verdict", VerdictName(comparison.verdict)},
          {"method", PairingName(comparison.pairing)},
          {"bits_per_byte_difference", comparison.difference},
          {"half_width_95", comparison.half_width}};
}

Json VariantJson(const VariantSummary& summary) {
  const ReportVariant& variant = *summary.variant;
  Json json = {{"name", variant.name},
               {"matrices", variant.counts.matrices()},
               {"non_embedding", variant.counts.non_embedding()},
               {"total", variant.counts.total()},
               {"seeds", summary.finished.size()},
               {"validation_loss", SpreadJson(summary.validation_loss)},
               {"perplexity", SpreadJson(summary.perplexity)},
               {"bits_per_byte", SpreadJson(summary.bits_per_byte)},
               {"tokens_per_s", SpreadJson(summary.tokens_per_s)}};
  if (!summary.is_baseline) json["against_baseline"] = ComparisonJson(summary.comparison);
  return json;
}

}  // namespace

Json ReportJson(const ReportData& data) {
  const ReportSummary summary = Summarize(data);
  Json json = WriteFields(data);
  Json& shown = json["summary"];
  shown["verdict"] = summary.verdict;
  shown["warnings"] = summary.warnings;
  shown["variants"] = Json::array();
  for (const VariantSummary& variant : summary.variants) {
    shown["variants"].push_back(VariantJson(variant));
  }
  return json;
}

}  // namespace sandglass
