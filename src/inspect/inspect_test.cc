#include "inspect/inspect.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "html/browser_testing.h"

namespace sandglass {
namespace {

InspectReport InspectShapes(InspectOptions options) {
  options.batch = 1;
  options.length = 8;
  options.overrides.push_back("model.vocabulary=16");
  options.overrides.push_back("system.threads=1");
  return Inspect(options, [](std::string_view) {});
}

TEST(Inspect, AShapeHasASnapshotForEverySeed) {
  const InspectReport report = InspectShapes({.targets = {"L2-d8-a2x4-f3x4"}, .seeds = {1, 2, 3}});
  ASSERT_EQ(report.snapshots.size(), 3u);
  const Snapshot& first = report.snapshots[0];
  EXPECT_EQ(first.model, "L2-d8-a2x4-f3x4 hourglass");
  EXPECT_EQ(first.at, "init");
  EXPECT_EQ(first.text, "random tokens");
  ASSERT_EQ(first.propagation.sub_layers.size(), 8u);
  EXPECT_EQ(first.propagation.sub_layers[4].name, "layers.1.attention");
  EXPECT_TRUE(first.propagation.sub_layers[4].entropy.has_value());
  EXPECT_EQ(first.propagation.sub_layers[7].name, "layers.1.ffn.2");
  ASSERT_TRUE(first.init.has_value());
  EXPECT_TRUE(first.init->holds());
  // Random logits near zero: the loss is that of guessing.
  EXPECT_NEAR(first.propagation.loss, std::log(16.0), 0.02);
  EXPECT_NE(first.propagation.loss, report.snapshots[1].propagation.loss);

  ASSERT_EQ(report.summary.size(), 1u);
  const SnapshotSummary& row = report.summary[0];
  EXPECT_EQ(row.seeds, 3);
  EXPECT_EQ(row.additions, 8);
  double mean = 0;
  for (const Snapshot& snapshot : report.snapshots) mean += snapshot.propagation.loss / 3;
  EXPECT_NEAR(row.loss.mean, mean, 1e-12);
  EXPECT_GT(row.loss.deviation, 0.0);
}

TEST(Inspect, KeysOfARunFileMakeTheModel) {
  const InspectReport report = InspectShapes(
      {.targets = {"L2-d8-a2x4-f3x4", "L4-d8-a2x4-f1x12"},
       .overrides = {"model.norm=post", "model.depth_scaled_init=true", "model.init_std=0.5"}});
  ASSERT_EQ(report.summary.size(), 2u);
  EXPECT_EQ(report.summary[0].model,
            "L2-d8-a2x4-f3x4 hourglass norm=post init_std=0.5 depth_scaled_init=true");
  EXPECT_EQ(report.summary[1].additions, 8);
  EXPECT_NEAR(report.snapshots[1].init->stated, 0.5 / std::sqrt(8.0), 1e-15);
  // A post-norm adds vectors of RMS one, unless the sub-layer's output is so short that the norm's
  // epsilon counts.
  EXPECT_NEAR(report.snapshots[0].propagation.sub_layers[3].added_rms, 1.0, 0.1);
}

TEST(Inspect, WhatIsNotThereIsExplained) {
  const auto failure = [](InspectOptions options) {
    return FailureOf([&] { InspectShapes(std::move(options)); });
  };
  EXPECT_EQ(failure({.targets = {"L2-d8"}}).where.empty(), false);
  EXPECT_NE(failure({.targets = {"/"}}).what.find("not a run directory"), std::string::npos);
  const ErrorParts moment = failure({.targets = {"L2-d8-a2x4-f3x4"}, .at = {"last"}});
  EXPECT_EQ(moment.where, "--at");
  EXPECT_EQ(moment.expected, "init");
  EXPECT_NE(failure({.targets = {"L2-d8-a2x4-f3x4"}, .overrides = {"model.nrom=post"}})
                .remedy.find("\"norm\""),
            std::string::npos);
}

TEST(Inspect, TheTextShowsEverySubLayerOrOneLine) {
  const InspectReport report = InspectShapes({.targets = {"L1-d8-a2x4-f2x4", "L1-d8-a2x4-f1x8"}});
  const std::string all = RenderInspectText(report, InspectDetail::kEverySubLayer);
  EXPECT_NE(all.find("layers.0.ffn.1"), std::string::npos);
  EXPECT_NE(all.find("all hold"), std::string::npos);
  const std::string summary = RenderInspectText(report, InspectDetail::kSummary);
  EXPECT_EQ(summary.find("layers.0.ffn.1"), std::string::npos);
  EXPECT_NE(summary.find("L1-d8-a2x4-f2x4 hourglass"), std::string::npos);
  EXPECT_NE(summary.find("5 residual-writing matrices checked, all as stated"), std::string::npos);
}

TEST(Inspect, ThePageDrawsEveryChart) {
  const InspectReport report =
      InspectShapes({.targets = {"L2-d8-a2x4-f2x4", "L1-d8-a2x4-f1x8"}, .seeds = {1, 2}});
  ExpectDrawn(OpenInBrowser(RenderInspectHtml(report, "2026-01-01")), 7);
}

TEST(Inspect, HostileNamesInThePageStayText) {
  InspectReport report = InspectShapes({.targets = {"L1-d8-a2x4-f1x8"}});
  const std::string hostile = "</script><script>throw 'x'</script>\"'&<!--";
  report.snapshots[0].model = report.summary[0].model = hostile;
  report.snapshots[0].propagation.sub_layers[0].share = std::nan("");
  ExpectDrawn(OpenInBrowser(RenderInspectHtml(report, "2026-01-01")), 7);
}

}  // namespace
}  // namespace sandglass
