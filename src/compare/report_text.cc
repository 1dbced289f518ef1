// The report as tables for a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "compare/report.h"
#include "compare/report_summary.h"

namespace sandglass {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kNameColumns = 22;

// Characters, not bytes. One character counts as one column.
size_t Width(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// The first `width` characters, the last of them "…" if that cuts something off.
std::string Cut(const std::string& text, size_t width) {
  if (Width(text) <= width) return text;
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    const bool starts_character = (text[end] & 0xC0) != 0x80;
    if (starts_character && ++characters == width) break;
  }
  return text.substr(0, end) + "…";
}

// Without bytes that a terminal would obey.
std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; }, '?');
  return text;
}

// Lines of at most kColumns, broken at spaces.
std::string Wrapped(const std::string& text) {
  std::string out;
  size_t used = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (used > 0 && used + 1 + Width(word) > kColumns) {
      out += '\n';
      used = 0;
    } else if (used > 0) {
      out += ' ';
      ++used;
    }
    out += word;
    used += Width(word);
    at = end + 1;
  }
  return out + '\n';
}

// Columns as wide as their widest cell, the first left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string ToString() const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
    }
    std::string out;
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - Width(row[i]), ' ');
        out += i == 0 ? row[i] + padding : "  " + padding + row[i];
      }
      out.erase(out.find_last_not_of(' ') + 1);
      out += '\n';
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

class TextReport {
 public:
  TextReport(const ReportData& data, TextStyle style)
      : data_(data), style_(style), summary_(Summarize(data)) {}

  std::string Render() const {
    std::string out = Bold(Wrapped(Printable(data_.title)));
    out += Wrapped(Printable(data_.question)) + '\n';
    out += Shapes() + '\n' + Results() + '\n' + Costs() + '\n' + Yardsticks() + '\n';
    out += Wrapped(Printable(summary_.verdict));
    for (const std::string& warning : summary_.warnings) {
      out += Wrapped("Note: " + Printable(warning));
    }
    return out;
  }

 private:
  std::string Bold(const std::string& text) const {
    return style_ == TextStyle::kColored ? "\x1b[1m" + text + "\x1b[0m" : text;
  }

  // Colours the verdicts, which end their lines.
  std::string Colored(std::string table) const {
    if (style_ == TextStyle::kPlain) return table;
    constexpr std::pair<Verdict, const char*> kColors[] = {
        {Verdict::kBetter, "32"}, {Verdict::kWorse, "31"}, {Verdict::kInconclusive, "33"}};
    for (const auto& [verdict, color] : kColors) {
      const std::string name = VerdictName(verdict);
      const std::string colored = fmt::format("\x1b[{}m{}\x1b[0m\n", color, name);
      for (size_t at = 0; (at = table.find(name + '\n', at)) != std::string::npos;) {
        table.replace(at, name.size() + 1, colored);
        at += colored.size();
      }
    }
    return table;
  }

  static std::string Name(const VariantSummary& summary) {
    const std::string mark = summary.is_baseline ? " *" : "";
    return Cut(Printable(summary.variant->name), kNameColumns - mark.size()) + mark;
  }

  std::string Shapes() const {
    constexpr size_t kShapeColumns = 36;
    Table table({"variant", "matrices", "total", "difference", "shape"});
    for (const VariantSummary& summary : summary_.variants) {
      const ReportVariant& variant = *summary.variant;
      table.Add({Name(summary), WithThousands(variant.counts.matrices()),
                 WithThousands(variant.counts.total()), FormatPercent(variant.relative_difference),
                 Cut(Printable(variant.shape), kShapeColumns)});
    }
    return table.ToString() +
           Wrapped(fmt::format("* baseline; difference in {}, tolerance {}",
                               Printable(data_.matched), FormatTolerance(data_.tolerance)));
  }

  std::string Results() const {
    Table table({"variant", "seeds", "loss", "PPL", "bits per byte", "difference", "verdict"});
    for (const VariantSummary& summary : summary_.variants) {
      table.Add({Name(summary), std::to_string(summary.finished.size()),
                 Number(summary.validation_loss.mean, 4), Number(summary.perplexity.mean, 3),
                 FormatSpread(summary.bits_per_byte),
                 summary.is_baseline ? "" : FormatDifference(summary.comparison),
                 summary.is_baseline ? "" : VerdictName(summary.comparison.verdict)});
    }
    return Colored(table.ToString()) +
           "means over seeds ± standard deviation; differences ± 95 % interval\n";
  }

  std::string Costs() const {
    Table table({"variant", "train FLOPs/tok", "decode FLOPs/tok", "tokens/s", "KV/token",
                 "peak memory", "time"});
    for (const VariantSummary& summary : summary_.variants) {
      const ReportVariant& variant = *summary.variant;
      const std::optional<int64_t>& peak = summary.peak_memory_bytes;
      const double speed = summary.tokens_per_s.mean;
      table.Add({Name(summary), Abbreviated(variant.train_flops_per_token),
                 Abbreviated(variant.decode_flops_per_token),
                 std::isnan(speed) ? "–" : WithThousands(std::llround(speed)),
                 HumanBytes(static_cast<double>(variant.kv_cache_bytes_per_token)),
                 peak ? HumanBytes(static_cast<double>(*peak)) : "–",
                 std::isnan(summary.wall_s.mean) ? "–" : HumanDuration(summary.wall_s.mean)});
    }
    return table.ToString();
  }

  std::string Yardsticks() const {
    Table table({"same validation text", "bits per byte"});
    for (const ReportCompressor& compressor : data_.text.compressors) {
      table.Add({Printable(compressor.name), Number(compressor.bits_per_byte, 4)});
    }
    return table.ToString();
  }

  static std::string Number(double value, int decimals) {
    return std::isnan(value) ? "–" : fmt::format("{:.{}f}", value, decimals);
  }

  const ReportData& data_;
  TextStyle style_;
  ReportSummary summary_;
};

}  // namespace

std::string RenderText(const ReportData& data, TextStyle style) {
  return TextReport(data, style).Render();
}

}  // namespace sandglass
