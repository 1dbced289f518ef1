// The report as one self-contained page (html/page.h): tables are written here, charts are drawn by
// assets/report.js from the JSON that ChartData makes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "compare/report.h"
#include "compare/report_summary.h"
#include "html/page.h"

namespace sandglass {

// Embedded at build time.
extern const std::string_view kReportBody;
extern const std::string_view kReportScript;

namespace {

constexpr size_t kCurvePoints = 120;  // per run: enough for its shape, few for its noise
constexpr int kSeriesColors = 7;      // --s1 .. --s7 in report.css; --s0 is the baseline

std::vector<Definition> AsDefinitions(const std::vector<ReportSetting>& settings) {
  std::vector<Definition> out;
  for (const ReportSetting& setting : settings) out.push_back({setting.name, setting.value});
  return out;
}

std::string Badge(std::string_view kind) {
  return fmt::format("<span class=\"badge {0}\">{0}</span>", kind);
}

std::string Number(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "–";
}

std::string Rate(double tokens_per_s) {
  return std::isfinite(tokens_per_s) ? WithThousands(std::llround(tokens_per_s)) : "–";
}

std::string Bytes(std::optional<int64_t> bytes) {
  return bytes ? HumanBytes(static_cast<double>(*bytes)) : "–";
}

std::string Duration(double seconds) { return std::isnan(seconds) ? "–" : HumanDuration(seconds); }

class HtmlReport {
 public:
  explicit HtmlReport(const ReportData& data)
      : data_(data), summary_(Summarize(data)), trends_(FindTrends(summary_)) {
    int next = 0;
    for (const VariantSummary& variant : summary_.variants) {
      if (variant.is_baseline) baseline_ = &variant;
      series_.push_back(variant.is_baseline ? 0 : 1 + next % kSeriesColors);
      cycles_.push_back(variant.is_baseline ? 0 : next / kSeriesColors);
      if (!variant.is_baseline) ++next;
    }
  }

  std::string Render() const {
    const std::string body =
        Filled(kReportBody, {{"verdict", Escaped(summary_.verdict)},
                             {"warnings", Warnings()},
                             {"facts", Facts()},
                             {"results", Results()},
                             {"baseline", Escaped(data_.baseline)},
                             {"rivals", std::to_string(summary_.variants.size() - 1)},
                             {"rows", std::to_string(summary_.variants.size())},
                             {"trends", Trends()},
                             {"shapes", Shapes()},
                             {"counts", Counts()},
                             {"costs", Costs()},
                             {"runs", Runs()},
                             {"command", Escaped(data_.command)},
                             {"settings", Definitions(AsDefinitions(data_.settings))},
                             {"text", Text()},
                             {"host", Host()},
                             {"recipe", Escaped(data_.recipe)}});
    return RenderPage({.title = data_.title,
                       .kicker = "Sandglass comparison",
                       .lead = data_.question,
                       .version = data_.version,
                       .date = data_.date,
                       .body = body,
                       .data = ChartData(),
                       .script = kReportScript});
  }

 private:
  // One row for each variant: its name and shape, then the cells made from its summary.
  template <class MakeCells>
  std::vector<std::vector<std::string>> Rows(MakeCells make_cells) const {
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < summary_.variants.size(); ++i) {
      const ReportVariant& variant = *summary_.variants[i].variant;
      rows.push_back(make_cells(summary_.variants[i]));
      rows.back().insert(rows.back().begin(), Name(i) + Small(Escaped(variant.shape)));
    }
    return rows;
  }

  std::string Name(size_t index) const {
    return fmt::format("<span class=\"swatch s{}\"></span>{}", series_[index],
                       Escaped(summary_.variants[index].variant->name));
  }

  std::string Warnings() const {
    if (summary_.warnings.empty()) return "";
    std::string out = "<ul>\n";
    for (const std::string& warning : summary_.warnings) {
      out += "<li>" + Escaped(warning) + "</li>\n";
    }
    return out + "</ul>";
  }

  std::string Facts() const {
    size_t finished = 0;
    size_t all = 0;
    int64_t tokens = 0;
    for (const VariantSummary& variant : summary_.variants) {
      finished += variant.finished.size();
      all += variant.variant->runs.size();
      for (const ReportRun* run : variant.finished) tokens = std::max(tokens, run->tokens);
    }
    std::vector<Definition> facts = {
        {"Matched", fmt::format("{} within {}", data_.matched, FormatTolerance(data_.tolerance))},
        {"Baseline",
         fmt::format("{}, {} matrices", data_.baseline,
                     Abbreviated(static_cast<double>(baseline_->variant->counts.matrices())))},
        {"Training", Abbreviated(static_cast<double>(tokens)) + " tokens per run"},
        {"Runs", finished == all ? fmt::format("{}, all finished", all)
                                 : fmt::format("{} of {} count", finished, all)},
        {"Validation text",
         fmt::format("{} tokens, {}", WithThousands(data_.text.validation_tokens),
                     Bytes(data_.text.validation_bytes))}};
    std::string compressors;
    for (const ReportCompressor& compressor : data_.text.compressors) {
      if (!compressors.empty()) compressors += ", ";
      compressors += fmt::format("{} {:.4f}", compressor.name, compressor.bits_per_byte);
    }
    if (!compressors.empty()) facts.push_back({"Compressors, bits per byte", compressors});
    return Definitions(facts);
  }

  std::string Results() const {
    return HtmlTable({"variant", "seeds", "loss,<br>nats per token", "perplexity", "bits per byte",
                      "difference,<br>bits per byte", "verdict"},
                     Rows([](const VariantSummary& v) -> std::vector<std::string> {
                       return {std::to_string(v.finished.size()),
                               FormatSpread(v.validation_loss),
                               FormatSpread(v.perplexity),
                               FormatSpread(v.bits_per_byte),
                               v.is_baseline ? "baseline" : FormatDifference(v.comparison),
                               v.is_baseline ? "" : Badge(VerdictName(v.comparison.verdict))};
                     }));
  }

  std::string Trends() const {
    if (trends_.empty()) return "";
    std::string out =
        "<section>\n<h2>What the loss depends on</h2>\n<p class=\"note\">Large marks: means; small "
        "dots: single seeds; a line joins the means of one family. The variants may differ in more "
        "than the quantity on the axis.</p>\n<div class=\"figures\">\n";
    for (size_t i = 0; i < trends_.size(); ++i) {
      out += fmt::format(
          "<figure>\n<figcaption>{}</figcaption>\n<div class=\"plot\"><canvas id=\"trend-{}\" "
          "role=\"img\" aria-label=\"Validation loss against {}\"></canvas></div>\n</figure>\n",
          Escaped(trends_[i].title), i, Escaped(trends_[i].axis));
    }
    return out + "</div>\n</section>";
  }

  std::string Shapes() const {
    return HtmlTable({"variant", "family", "layers, L", "d_model", "d_model / L", "sub-MLPs, K",
                      "d_h / d_model", "attention,<br>% of matrices"},
                     Rows([](const VariantSummary& summary) -> std::vector<std::string> {
                       const ReportVariant& v = *summary.variant;
                       return {Escaped(v.family),
                               std::to_string(v.layers),
                               std::to_string(v.d_model),
                               Number(v.width_per_layer(), 1),
                               std::to_string(v.sub_mlps),
                               Number(v.ffn_ratio, 3),
                               Number(100 * v.attention_share(), 1)};
                     }));
  }

  std::string Counts() const {
    return HtmlTable({"variant", "attention", "FFN", "matrices", "norms", "non-embedding",
                      "embeddings", "total", "difference in<br>" + Escaped(data_.matched)},
                     Rows([](const VariantSummary& summary) -> std::vector<std::string> {
                       const ReportCounts& counts = summary.variant->counts;
                       return {WithThousands(counts.attention),
                               WithThousands(counts.ffn),
                               WithThousands(counts.matrices()),
                               WithThousands(counts.norms),
                               WithThousands(counts.non_embedding()),
                               WithThousands(counts.embeddings),
                               WithThousands(counts.total()),
                               FormatPercent(summary.variant->relative_difference)};
                     }));
  }

  std::string Costs() const {
    // A figure, and below it how many times the baseline's it is.
    const auto relative = [](const std::string& text, double value, double baseline) {
      const double ratio = value / baseline;
      return std::isfinite(ratio) ? text + Small(fmt::format("{:.2f}×", ratio)) : text;
    };
    const VariantSummary& b = *baseline_;
    return HtmlTable(
        {"variant", "training FLOPs<br>per token", "decoding FLOPs<br>per token",
         "training tokens<br>per second", "time per run", "KV cache<br>per token", "peak memory"},
        Rows([&](const VariantSummary& v) -> std::vector<std::string> {
          return {relative(Abbreviated(v.variant->train_flops_per_token),
                           v.variant->train_flops_per_token, b.variant->train_flops_per_token),
                  relative(Abbreviated(v.variant->decode_flops_per_token),
                           v.variant->decode_flops_per_token, b.variant->decode_flops_per_token),
                  relative(Rate(v.tokens_per_s.mean), v.tokens_per_s.mean, b.tokens_per_s.mean),
                  relative(Duration(v.wall_s.mean), v.wall_s.mean, b.wall_s.mean),
                  relative(Bytes(v.variant->kv_cache_bytes_per_token),
                           static_cast<double>(v.variant->kv_cache_bytes_per_token),
                           static_cast<double>(b.variant->kv_cache_bytes_per_token)),
                  relative(Bytes(v.peak_memory_bytes),
                           static_cast<double>(v.peak_memory_bytes.value_or(0)),
                           static_cast<double>(b.peak_memory_bytes.value_or(0)))};
        }));
  }

  std::string Runs() const {
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < summary_.variants.size(); ++i) {
      for (const ReportRun& run : summary_.variants[i].variant->runs) {
        const bool finished = run.status == RunStatus::kFinished;
        rows.push_back({Name(i), std::to_string(run.seed),
                        finished ? Number(run.validation_loss, 5) : "–",
                        finished ? Number(run.perplexity, 4) : "–",
                        finished ? Number(run.bits_per_byte, 5) : "–", WithThousands(run.tokens),
                        Rate(run.tokens_per_s), Duration(run.wall_s), Bytes(run.peak_memory_bytes),
                        finished ? "finished" : Badge("failed") + Small(Escaped(run.message))});
      }
    }
    return HtmlTable({"variant", "seed", "loss,<br>nats per token", "perplexity", "bits per byte",
                      "tokens", "tokens<br>per second", "time", "peak memory", "status"},
                     rows);
  }

  std::string Text() const {
    const ReportText& text = data_.text;
    const auto part = [](int64_t tokens, int64_t bytes, int64_t documents) {
      return fmt::format("{} tokens, {} bytes, {} documents", WithThousands(tokens),
                         WithThousands(bytes), WithThousands(documents));
    };
    return Definitions(
        {{"source", text.source},
         {"training", part(text.training_tokens, text.training_bytes, text.training_documents)},
         {"validation",
          part(text.validation_tokens, text.validation_bytes, text.validation_documents)},
         {"vocabulary", WithThousands(text.vocabulary)},
         {"tokenizer", text.tokenizer_hash}});
  }

  std::string Host() const {
    return Definitions({{"processor", data_.host.cpu},
                        {"threads", std::to_string(data_.host.threads)},
                        {"backend", data_.host.backend},
                        {"version", data_.version},
                        {"date", data_.date}});
  }

  Json ChartData() const {
    Json json;
    json["compressors"] = WriteFields(data_.text.compressors);
    json["variants"] = Json::array();
    for (size_t i = 0; i < summary_.variants.size(); ++i) {
      json["variants"].push_back(VariantData(summary_.variants[i], series_[i], cycles_[i]));
    }
    json["trends"] = Json::array();
    for (const Trend& trend : trends_) {
      json["trends"].push_back({{"axis", trend.axis}, {"values", trend.values}});
    }
    return json;
  }

  // NaN and infinity become null.
  Json VariantData(const VariantSummary& summary, int series, int cycle) const {
    const ReportVariant& variant = *summary.variant;
    const SeedComparison& comparison = summary.comparison;
    Json json = {{"name", variant.name},
                 {"baseline", summary.is_baseline},
                 {"family", variant.family},
                 {"series", series},
                 {"cycle", cycle},
                 {"counts", WriteFields(variant.counts)},
                 {"loss", summary.validation_loss.mean},
                 {"difference", summary.is_baseline ? Json(nullptr) : Json(comparison.difference)},
                 {"half_width", comparison.half_width},
                 {"verdict", VerdictName(comparison.verdict)}};
    json["seed_differences"] = Json::array();
    for (const ReportRun* run : summary.finished) {
      json["seed_differences"].push_back(run->bits_per_byte - BaselineOf(*run, comparison));
    }
    json["runs"] = Json::array();
    for (const ReportRun& run : variant.runs) json["runs"].push_back(RunData(run));
    return json;
  }

  // What a run is set against: the baseline's run of the same seed, or its mean if not paired.
  double BaselineOf(const ReportRun& run, const SeedComparison& comparison) const {
    if (comparison.pairing == Pairing::kPaired) {
      for (const ReportRun* other : baseline_->finished) {
        if (other->seed == run.seed) return other->bits_per_byte;
      }
    }
    return baseline_->bits_per_byte.mean;
  }

  static Json RunData(const ReportRun& run) {
    const bool finished = run.status == RunStatus::kFinished;
    Json json = {{"seed", run.seed},
                 {"loss", finished ? Json(run.validation_loss) : Json(nullptr)}};
    json["training"] = Json::array();
    for (const CurvePoint& point : ThinCurve(run.training_curve, kCurvePoints)) {
      json["training"].push_back({point.tokens, point.loss});
    }
    // The text is the same at every point of the curve, and so is the ratio of the two units.
    const double bits_per_byte_per_nat = run.bits_per_byte / run.validation_loss;
    json["validation"] = Json::array();
    if (finished && std::isfinite(bits_per_byte_per_nat)) {
      for (const CurvePoint& point : ThinCurve(run.validation_curve, kCurvePoints)) {
        json["validation"].push_back(
            {point.tokens, point.loss * bits_per_byte_per_nat, point.loss});
      }
    }
    return json;
  }

  const ReportData& data_;
  ReportSummary summary_;
  std::vector<Trend> trends_;
  const VariantSummary* baseline_ = nullptr;
  std::vector<int> series_;  // colour of each variant
  std::vector<int> cycles_;  // how often the colours had been used up before it
};

}  // namespace

std::string RenderHtml(const ReportData& data) { return HtmlReport(data).Render(); }

}  // namespace sandglass
