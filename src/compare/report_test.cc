#include "compare/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "base/file.h"
#include "base/format.h"
#include "base/toml.h"
#include "compare/report_example.h"
#include "compare/report_summary.h"

namespace sandglass {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Everything of the page that a reader sees without opening the charts' data or the scripts.
std::string VisibleHtml(const std::string& html) { return html.substr(0, html.find("<script")); }

// The text of the script element that holds the charts' data.
std::string EmbeddedJson(const std::string& html) {
  const std::string open = "id=\"page-data\">";
  const size_t begin = html.find(open) + open.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

size_t Columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

TEST(ReportHtml, ShowsEveryVariantFigureAndSetting) {
  const ReportData data = ExampleReport();
  const std::string html = VisibleHtml(RenderHtml(data));
  for (const std::string& text :
       {data.title, data.question, data.baseline, data.matched, data.text.source,
        data.text.tokenizer_hash, data.command, data.version, data.date, data.host.cpu,
        data.host.backend, std::string("0.001 %"), std::string("2.4871"), std::string("2.2136"),
        std::string("1,482,113 tokens, 3,921,402 bytes, 1,130 documents"),
        std::string("165,004 tokens, 436,911 bytes, 59 documents")}) {
    EXPECT_TRUE(Contains(html, text)) << text;
  }
  for (const ReportSetting& setting : data.settings) {
    EXPECT_TRUE(Contains(html, "<dt>" + setting.name + "</dt><dd>" + setting.value + "</dd>"));
  }
  EXPECT_TRUE(Contains(html, "shape = &quot;L4-d256-a4x64-f1x704&quot;"));
  for (const ReportVariant& variant : data.variants) {
    EXPECT_TRUE(Contains(html, variant.name));
    EXPECT_TRUE(Contains(html, "<td>" + variant.family + "</td>"));
    EXPECT_TRUE(Contains(html, variant.shape));
    const ReportCounts& counts = variant.counts;
    for (const int64_t count : {counts.matrices(), counts.attention, counts.ffn, counts.norms,
                                counts.embeddings, counts.non_embedding(), counts.total()}) {
      EXPECT_TRUE(Contains(html, "<td>" + WithThousands(count) + "</td>")) << count;
    }
    EXPECT_TRUE(Contains(html, "<td>" + Abbreviated(variant.train_flops_per_token)));
    EXPECT_TRUE(Contains(html, "<td>" + Abbreviated(variant.decode_flops_per_token)));
    for (const ReportRun& run : variant.runs) {
      EXPECT_TRUE(
          Contains(html, fmt::format("<td>{:.5f}</td><td>{:.4f}</td><td>{:.5f}</td>",
                                     run.validation_loss, run.perplexity, run.bits_per_byte)));
      EXPECT_TRUE(Contains(html, "<td>" + WithThousands(std::llround(run.tokens_per_s)) + "</td>"));
    }
  }
}

// hourglass-k4: per-seed differences 2.0198 - 2.0412 = -0.0214 and that - 0.0012, so mean -0.0220,
// standard error 0.0006, t(0.975, 1) = 12.706: half-width 0.0076.
TEST(ReportHtml, VerdictIsThatOfTheStatistics) {
  const std::string html = VisibleHtml(RenderHtml(ExampleReport()));
  EXPECT_TRUE(Contains(html,
                       "At equal matrices (within 0.001 %), hourglass-k4 is better than "
                       "conventional by 0.0220 ± 0.0076 bits per byte (2 seeds). "));
  EXPECT_TRUE(Contains(html, "−0.0220 ± 0.0076"));
  EXPECT_TRUE(Contains(html, "olmo2 is worse than conventional by 0.0155 ± 0.0051 bits per byte"));
  EXPECT_TRUE(Contains(html,
                       "attention-heavy is inconclusive: 2 seeds cannot support a difference "
                       "of 0.009 bits per byte."));
  EXPECT_TRUE(Contains(html,
                       "Every model needs fewer bits per byte than gzip -9 (2.487) and xz -9 "
                       "(2.214)."));
}

TEST(ReportHtml, ASingleSeedIsInconclusive) {
  ReportData data = ExampleReport();
  for (ReportVariant& variant : data.variants) variant.runs.resize(1);
  const std::string html = VisibleHtml(RenderHtml(data));
  EXPECT_TRUE(Contains(html, "hourglass-k4 is inconclusive: a single seed cannot support"));
  EXPECT_FALSE(Contains(html, "badge better"));
  EXPECT_FALSE(Contains(html, "badge worse"));
  EXPECT_FALSE(Contains(RenderText(data), " better\n"));
}

TEST(ReportHtml, HostileTextStaysText) {
  const std::string hostile = "</script><script>alert('x')</script>\"'&<!--{{style}}\xff";
  ReportData data = ExampleReport();
  data.title = data.question = data.matched = data.recipe = data.command = hostile;
  data.version = data.date = data.text.source = data.host.cpu = hostile;
  data.settings.push_back({hostile, hostile});
  data.text.compressors[0].name = hostile;
  data.variants[0].name = data.baseline = hostile;
  data.variants[1].family = data.variants[1].shape = hostile;
  data.variants[1].runs[0].status = RunStatus::kFailed;
  data.variants[1].runs[0].message = hostile;
  const std::string html = RenderHtml(data);
  EXPECT_FALSE(Contains(html, "<script>alert"));
  EXPECT_TRUE(Contains(html,
                       "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&#39;&amp;"
                       "&lt;!--{{style}}"));
  const auto count = [&html](const std::string& tag) {
    size_t found = 0;
    for (size_t at = 0; (at = html.find(tag, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("<script"), 3u);
  EXPECT_EQ(count("</script>"), 3u);
  EXPECT_EQ(count("<style>"), 1u);
  const std::string json = EmbeddedJson(html);
  EXPECT_EQ(json.find('<'), std::string::npos);
  EXPECT_TRUE(Contains(Json::parse(json)["variants"][0]["name"].get<std::string>(),
                       "</script><script>alert('x')</script>"));
}

TEST(ReportHtml, NothingIsLoadedFromElsewhere) {
  const std::string html = RenderHtml(ExampleReport());
  for (const char* reference : {"<link", "<img", "<iframe", "<object", "<embed", "<base",
                                "src=", "href=", "url(", "@import"}) {
    EXPECT_FALSE(Contains(html, reference)) << reference;
  }
  EXPECT_TRUE(Contains(html, "default-src 'none'"));
}

TEST(ReportHtml, HoldsTheChartLibraryWithItsLicence) {
  const std::string html = RenderHtml(ExampleReport());
  EXPECT_TRUE(Contains(html, ReadFile(SANDGLASS_CHART_JS)));
  EXPECT_TRUE(Contains(html, "Released under the MIT License"));
}

TEST(ReportHtml, ChartsGetDifferencesOfTheSameSeed) {
  const Json json = Json::parse(EmbeddedJson(RenderHtml(ExampleReport())));
  const Json& hourglass = json["variants"][1];
  EXPECT_NEAR(hourglass["seed_differences"][0].get<double>(), 2.0198 - 2.0412, 1e-12);
  EXPECT_NEAR(hourglass["seed_differences"][1].get<double>(), 2.0198 - 2.0412 - 0.0012, 1e-12);
  EXPECT_TRUE(json["variants"][0]["difference"].is_null());
  EXPECT_EQ(json["variants"][0]["series"], 0);
  // The last point of the validation curve is the result itself, in both units.
  const Json& end = hourglass["runs"][0]["validation"].back();
  EXPECT_EQ(end[0], 4'000'000);
  EXPECT_NEAR(end[1].get<double>(), 2.0198, 1e-9);
  EXPECT_NEAR(end[2].get<double>(), 2.0198 * 1.8, 1e-9);
}

TEST(ReportSummary, WhatDoesNotCountIsSaid) {
  ReportData data = ExampleReport();
  data.variants[1].runs[1].status = RunStatus::kFailed;
  data.variants[1].runs[1].message = "the loss was not finite for 10 steps\n  where: step 300";
  data.variants[2].runs[0].bits_per_byte = kNaN;
  data.variants[2].relative_difference = 0.00293;
  data.variants[3].runs[0].tokens = 3'000'000;
  const ReportSummary summary = Summarize(data);
  EXPECT_EQ(summary.warnings,
            (std::vector<std::string>{
                "hourglass-k4, seed 2 does not count: the loss was not finite for 10 steps.",
                "attention-heavy is not matched: +0.293 % in matrices against conventional, "
                "tolerance 0.001 %.",
                "attention-heavy, seed 1 does not count: its loss is not a finite number.",
                "The runs trained on different numbers of tokens, 3,000,000 to 4,000,000."}));
  EXPECT_EQ(summary.variants[1].finished.size(), 1u);
  EXPECT_EQ(summary.variants[1].bits_per_byte.mean, 2.0198);
  EXPECT_EQ(summary.variants[1].comparison.verdict, Verdict::kInconclusive);
  EXPECT_TRUE(Contains(summary.verdict, "With matrices that are not all equal within 0.001 %, "));
  EXPECT_TRUE(Contains(RenderHtml(data), "10 steps\n  where: step 300</small>"));
  EXPECT_TRUE(Contains(RenderText(data), "Note: hourglass-k4, seed 2 does not count"));
}

TEST(ReportSummary, NoResultsAtAll) {
  ReportData data = ExampleReport();
  for (ReportVariant& variant : data.variants) variant.runs.clear();
  EXPECT_TRUE(Contains(Summarize(data).verdict, "conventional has no finished run"));
  EXPECT_FALSE(Contains(Summarize(data).verdict, "gzip"));
  EXPECT_FALSE(Contains(VisibleHtml(RenderHtml(data)), "nan"));
  EXPECT_FALSE(Contains(RenderText(data), "nan"));
}

TEST(ReportSummary, AModelNoBetterThanACompressorIsNamed) {
  ReportData data = ExampleReport();
  data.text.compressors[1].bits_per_byte = 2.02;
  const std::string verdict = Summarize(data).verdict;
  EXPECT_TRUE(
      Contains(verdict, "Every other model needs fewer bits per byte than gzip -9 (2.487)"));
  EXPECT_TRUE(Contains(verdict, "attention-heavy and olmo2 are no better than xz -9 (2.020)"));
}

TEST(ReportSummary, ManyVariantsAreToldBriefly) {
  ReportData data = ExampleReport();
  for (int i = 0; i < 4; ++i) {
    data.variants.push_back(data.variants[1]);
    data.variants.back().name = "copy-" + std::to_string(i);
  }
  EXPECT_TRUE(Contains(Summarize(data).verdict, "So are copy-0, copy-1, copy-2 and copy-3."));
}

TEST(ReportSummary, TrendsNeedThreeDistinctValuesWithResults) {
  ReportData data = ExampleReport();
  const auto titles = [&data] {
    std::string out;
    for (const Trend& trend : FindTrends(Summarize(data))) out += trend.axis + ";";
    return out;
  };
  EXPECT_EQ(titles(), "FFN ratio, d_h / d_model;");
  data.variants[3].sub_mlps = 8;
  EXPECT_EQ(titles(), "sub-MLPs per layer, K;FFN ratio, d_h / d_model;");
  data.variants[3].runs.clear();
  EXPECT_EQ(titles(), "FFN ratio, d_h / d_model;");
}

TEST(ReportSummary, ThinnedCurvesKeepTheMeanAndTheEnds) {
  std::vector<CurvePoint> curve;
  for (int i = 0; i < 1000; ++i) curve.push_back({i, i % 2 == 0 ? 1.0 : 3.0});
  curve[500].loss = kNaN;
  const std::vector<CurvePoint> thin = ThinCurve(curve, 100);
  ASSERT_EQ(thin.size(), 100u);
  EXPECT_LT(thin.front().tokens, 10);
  EXPECT_GT(thin.back().tokens, 990);
  // Bins of ten hold as many ones as threes, or one more after the point that fell out.
  for (const CurvePoint& point : thin) EXPECT_NEAR(point.loss, 2, 0.21);
  EXPECT_EQ(ThinCurve(curve, 1000).size(), 999u);
}

TEST(ReportSummary, NumbersAreShownToWhatIsKnown) {
  EXPECT_EQ(FormatSpread({2.134, 0.00421}), "2.1340 ± 0.0042");
  EXPECT_EQ(FormatSpread({2.134, kNaN}), "2.1340");
  EXPECT_EQ(FormatSpread({}), "–");
  EXPECT_EQ(FormatPercent(0.00293), "+0.293 %");
  EXPECT_EQ(FormatPercent(-0.16), "−16 %");
  EXPECT_EQ(FormatPercent(-1.2e-6), "−0.00012 %");
  EXPECT_EQ(FormatPercent(0), "0 %");
  EXPECT_EQ(FormatTolerance(1e-5), "0.001 %");
}

TEST(ReportText, FitsTheTerminal) {
  ReportData data = ExampleReport();
  data.variants[0].name = data.baseline = "a name that is far too long for any table at all";
  data.variants[1].shape = "L6-d256-a5x64-f134,133,133,133,133,133,133,133,133,133,133,133,133";
  data.variants[2].counts.embeddings = 123'456'789'012;
  data.question = std::string(60, 'x') + " " + std::string(60, 'y');
  const std::string text = RenderText(data);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), 100u) << line;
  for (const ReportVariant& variant : ExampleReport().variants) {
    EXPECT_TRUE(Contains(RenderText(ExampleReport()), variant.name));
  }
  EXPECT_TRUE(Contains(text, "−0.0220 ± 0.0076"));
  EXPECT_TRUE(Contains(text, "gzip -9"));
}

TEST(ReportText, ColoursOnlyWhenAsked) {
  const ReportData data = ExampleReport();
  EXPECT_FALSE(Contains(RenderText(data), "\x1b"));
  EXPECT_TRUE(Contains(RenderText(data, TextStyle::kColored), "\x1b[32mbetter\x1b[0m\n"));
  ReportData hostile = data;
  hostile.title = hostile.variants[1].name = "\x1b[2Jgone";
  EXPECT_FALSE(Contains(RenderText(hostile), "\x1b"));
}

TEST(ReportJson, ReadsBackAndHoldsTheSummary) {
  const ReportData data = ExampleReport();
  Json json = Json::parse(ReportJson(data).dump());
  EXPECT_EQ(json["summary"]["variants"][1]["against_baseline"]["verdict"], "better");
  EXPECT_EQ(json["summary"]["variants"][1]["against_baseline"]["method"], "paired by seed");
  EXPECT_EQ(json["summary"]["variants"][1]["matrices"], 3'211'264);
  EXPECT_EQ(json["summary"]["verdict"], Summarize(data).verdict);
  json.erase("summary");
  ReportData again;
  ReadFields(again, ConfigTree{.values = json, .source = "report.json"});
  EXPECT_EQ(WriteFields(again), WriteFields(data));
  EXPECT_EQ(again.variants[3].runs[1].training_curve.size(), 977u);
}

TEST(ReportDeathTest, TheBaselineMustBeOneOfTheVariants) {
  ReportData data = ExampleReport();
  data.baseline = "missing";
  EXPECT_DEATH(RenderText(data), "the baseline is not among the variants");
}

}  // namespace
}  // namespace sandglass
