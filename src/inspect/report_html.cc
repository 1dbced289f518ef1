// The picture: one page with a chart for every quantity over the depth, drawn by assets/inspect.js.
#include <fmt/format.h>

#include <cmath>

#include "html/page.h"
#include "inspect/inspect.h"

namespace sandglass {

// Embedded at build time.
extern const std::string_view kInspectBody;
extern const std::string_view kInspectScript;

namespace {

constexpr int kSeriesColors = 7;  // --s1 .. --s7 in page.css, after --s0

std::string Number(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "–";
}

std::string Spread(const SnapshotSummary::Figure& figure, int seeds) {
  std::string out = Number(figure.mean);
  if (seeds > 1) out += Small("± " + Number(figure.deviation));
  return out;
}

std::string SummaryTable(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < report.summary.size(); ++i) {
    const SnapshotSummary& row = report.summary[i];
    const auto figure = [&](const SnapshotSummary::Figure& f) { return Spread(f, row.seeds); };
    rows.push_back({fmt::format("<span class=\"swatch s{}\"></span>{}", i % (kSeriesColors + 1),
                                Escaped(row.model)) +
                        Small(Escaped(row.at)),
                    std::to_string(row.seeds), std::to_string(row.additions), figure(row.loss),
                    figure(row.stream_growth), figure(row.gradient_growth),
                    figure(row.smallest_share), figure(row.last_angle),
                    figure(row.relative_entropy), figure(row.largest_logit)});
  }
  return HtmlTable({"model", "seeds", "additions", "loss", "stream<br>growth", "gradient<br>growth",
                    "least share", "last angle", "entropy /<br>largest possible", "largest logit"},
                   rows);
}

std::string InitTable(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const Snapshot& snapshot : report.snapshots) {
    if (!snapshot.init) continue;
    double largest = 0.0;
    for (const InitialMatrix& matrix : snapshot.init->matrices) {
      largest = std::max(largest, std::abs(matrix.deviation));
    }
    rows.push_back({Escaped(snapshot.model) + Small(fmt::format("seed {}", snapshot.seed)),
                    Escaped(snapshot.init->rule), Number(snapshot.init->stated),
                    std::to_string(snapshot.init->matrices.size()), fmt::format("{:.2f}", largest),
                    snapshot.init->holds() ? "as stated" : "NOT as stated"});
  }
  if (rows.empty()) return "";
  return "<section>\n<h2>Initial weights</h2>\n" +
         HtmlTable({"model", "rule", "stated standard<br>deviation", "residual-writing<br>matrices",
                    "largest deviation,<br>standard errors", "verdict"},
                   rows) +
         "\n</section>";
}

Json ChartData(const InspectReport& report) {
  Json json = Json::array();
  for (const Snapshot& snapshot : report.snapshots) {
    size_t group = 0;
    while (report.summary[group].model != snapshot.model ||
           report.summary[group].at != snapshot.at) {
      ++group;
    }
    json.push_back({{"name", snapshot.at + ", " + snapshot.model},
                    {"seed", snapshot.seed},
                    {"group", group},
                    {"series", group % (kSeriesColors + 1)},
                    {"cycle", group / (kSeriesColors + 1)},
                    {"sub_layers", WriteFields(snapshot.propagation.sub_layers)}});
  }
  return json;
}

}  // namespace

std::string RenderInspectHtml(const InspectReport& report, const std::string& date) {
  std::string title = report.summary.size() == 1
                          ? report.summary[0].model + ", " + report.summary[0].at
                          : fmt::format("{} models side by side", report.summary.size());
  return RenderPage(
      {.title = title,
       .kicker = "Sandglass inspection",
       .lead = "What every sub-layer reads from the residual stream, adds to it, and how gradients "
               "come back.",
       .version = report.version,
       .date = date,
       .body =
           Filled(kInspectBody, {{"summary", SummaryTable(report)}, {"init", InitTable(report)}}),
       .data = ChartData(report),
       .script = kInspectScript});
}

}  // namespace sandglass
