#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "inspect/inspect.h"

namespace sandglass {
namespace {

// Three significant digits, whatever the size.
std::string Number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) return fmt::format("{:.2e}", value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
}

std::string Number(const std::optional<double>& value) { return value ? Number(*value) : ""; }

std::string Spread(const SnapshotSummary::Figure& figure, int seeds) {
  std::string out = Number(figure.mean);
  if (seeds > 1) out += " ±" + Number(figure.deviation);
  return out;
}

std::string SubLayerTable(const Snapshot& snapshot) {
  std::string out = fmt::format(
      "{}  {}  seed {}{}\nloss {:.4f} nats/token on {}\n\n"
      "{:24}{:>9}{:>9}{:>8}{:>9}{:>10}{:>10}{:>9}{:>7}{:>8}\n",
      snapshot.model, snapshot.at, snapshot.seed,
      snapshot.source.empty() ? "" : "  " + snapshot.source, snapshot.propagation.loss,
      snapshot.text, "sub-layer", "stream", "added", "share", "angle/pi", "gradient", "weights'",
      "entropy", "/max", "logit");
  for (const SubLayerSignals& s : snapshot.propagation.sub_layers) {
    out += fmt::format("{:24}{:>9}{:>9}{:>8}{:>9}{:>10}{:>10}{:>9}{:>7}{:>8}\n", s.name,
                       Number(s.stream_rms), Number(s.added_rms), Number(s.share), Number(s.angle),
                       Number(s.gradient_rms), Number(s.weight_gradient_norm), Number(s.entropy),
                       Number(s.relative_entropy), Number(s.largest_logit));
  }
  return out + fmt::format("{:24}{:>9}\n", "final norm",
                           Number(snapshot.propagation.sub_layers.back().output_rms));
}

std::string InitTable(const InitCheck& check) {
  std::string out = fmt::format(
      "\nInitial standard deviation of {} residual-writing matrices, stated {} ({}): {}\n",
      check.matrices.size(), Number(check.stated), check.rule,
      check.holds() ? "all hold" : "NOT as stated");
  out += fmt::format("{:32}{:>12}{:>12}{:>18}\n", "matrix", "elements", "std", "standard errors");
  for (const InitialMatrix& matrix : check.matrices) {
    out += fmt::format("{:32}{:>12}{:>12.6f}{:>+18.2f}{}\n", matrix.name, matrix.elements,
                       matrix.std, matrix.deviation, matrix.holds ? "" : "  NOT as stated");
  }
  return out;
}

std::string InitLine(const std::vector<Snapshot>& snapshots) {
  int64_t checked = 0;
  int64_t wrong = 0;
  for (const Snapshot& snapshot : snapshots) {
    if (!snapshot.init) continue;
    checked += static_cast<int64_t>(snapshot.init->matrices.size());
    wrong += snapshot.init->holds() ? 0 : 1;
  }
  if (checked == 0) return "";
  return fmt::format(
      "\ninitial weights: {} residual-writing matrices checked, {}\n", checked,
      wrong == 0 ? "all as stated" : fmt::format("NOT as stated in {} models", wrong));
}

// Characters on the screen: bytes that do not continue a UTF-8 sequence.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string SummaryTable(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows = {{"model", "at", "seeds", "adds", "loss", "stream x",
                                                 "gradient x", "least share", "last angle/pi",
                                                 "entropy/max", "max logit"}};
  for (const SnapshotSummary& row : report.summary) {
    const auto figure = [&](const SnapshotSummary::Figure& f) { return Spread(f, row.seeds); };
    rows.push_back({row.model, row.at, std::to_string(row.seeds), std::to_string(row.additions),
                    figure(row.loss), figure(row.stream_growth), figure(row.gradient_growth),
                    figure(row.smallest_share), figure(row.last_angle),
                    figure(row.relative_entropy), figure(row.largest_logit)});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  constexpr size_t kTextColumns = 2;  // to the left; figures stand to the right
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - Width(row[i]), ' ');
      if (i > 0) out += "  ";
      out += i < kTextColumns ? row[i] + gap : gap + row[i];
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::string RenderInspectText(const InspectReport& report, InspectDetail detail) {
  std::string out;
  if (detail == InspectDetail::kEverySubLayer) {
    for (const Snapshot& snapshot : report.snapshots) {
      out += SubLayerTable(snapshot);
      if (snapshot.init) out += InitTable(*snapshot.init);
      out += "\n";
    }
    if (report.snapshots.size() == 1) return out;
  }
  return out + SummaryTable(report) + InitLine(report.snapshots);
}

}  // namespace sandglass
