#include "compare/compare.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/testing.h"
#include "compare/yardstick.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipe = R"(
name = "small"
baseline = "conventional"
seeds = [1, 2]
[text]
documents = "paragraph"
validation = 0.2
vocabulary = 300
[train]
tokens = 256
batch = 2
length = 16
[system]
threads = 1
[[variant]]
name = "conventional"
family = "llama"
shape = "L2-d16-a2x8-f1x48"
[[variant]]
name = "hourglass"
family = "hourglass"
[variant.search]
hold = ["attention", "layers", "d_model"]
sub_mlps = 3
[[variant]]
name = "olmo2"
family = "olmo2"
shape = "L2-d16-a2x8-f1x48"
)";

class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileAtomically(root_ + "/text.txt", RandomText(60));
    options_.out = root_ + "/out";
    options_.progress = ProgressMode::kSilent;
    options_.note = [this](std::string_view note) { notes_.emplace_back(note); };
  }
  void TearDown() override { SetInterruptRequested(false); }

  Recipe Make(const std::string& text = kRecipe, std::vector<std::string> overrides = {}) {
    overrides.push_back("text.inputs=[\"" + root_ + "/text.txt\"]");
    return Recipe::FromTree(ParseToml(text, "recipe.toml"), overrides);
  }
  // The error that a changed recipe gives.
  ErrorParts FailureWith(const std::string& from, const std::string& to) {
    std::string text = kRecipe;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return FailureOf([&] { PlanVariants(Make(text), 300); });
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path();
  CompareOptions options_;
  std::vector<std::string> notes_;
};

TEST_F(CompareTest, TrainsEveryVariantWithEverySeedAndReports) {
  const Recipe recipe = Make();
  const ReportData report = *Compare(recipe, options_);
  ASSERT_EQ(report.variants.size(), 3u);
  EXPECT_EQ(report.variants[1].shape, "L2-d16-a2x8-f3x16");
  std::set<double> losses;
  for (const ReportVariant& variant : report.variants) {
    EXPECT_TRUE(losses.insert(variant.runs[0].validation_loss).second)
        << variant.name << " gives the same loss as another variant";
    EXPECT_EQ(variant.counts.matrices(), 2 * (4 * 16 * 16 + 3 * 16 * 48)) << variant.name;
    ASSERT_EQ(variant.runs.size(), 2u);
    EXPECT_NE(variant.runs[0].validation_loss, variant.runs[1].validation_loss);
    for (const ReportRun& run : variant.runs) {
      EXPECT_EQ(run.status, RunStatus::kFinished) << run.message;
      EXPECT_EQ(run.tokens, 256);
      EXPECT_EQ(run.training_curve.size(), 8u);
      EXPECT_EQ(run.validation_curve.back().loss, run.validation_loss);
      EXPECT_GT(run.tokens_per_s, 0);
    }
  }
  EXPECT_EQ(report.text.compressors.size(), 2u);
  for (const char* file : {"report.html", "report.txt", "report.json", "recipe.toml"}) {
    EXPECT_TRUE(fs::exists(options_.out + "/" + file)) << file;
  }
  // The recipe that was written repeats the comparison.
  EXPECT_EQ(WriteFields(Recipe::Load(options_.out + "/recipe.toml", {})), WriteFields(recipe));
}

TEST_F(CompareTest, ContinuesAfterAnInterruptWithoutRepeatingFinishedRuns) {
  const Recipe recipe = Make();
  options_.note = [](std::string_view note) {
    if (note.starts_with("run 3 of 6")) SetInterruptRequested(true);
  };
  EXPECT_FALSE(Compare(recipe, options_).has_value());
  EXPECT_TRUE(fs::exists(options_.out + "/report.html"));  // of the two runs that have finished
  SetInterruptRequested(false);

  const std::string first_run = options_.out + "/conventional-s1/metrics.jsonl";
  const auto written = fs::last_write_time(first_run);
  const auto prepared = fs::last_write_time(options_.out + "/data/train.bin");
  options_.note = [](std::string_view) {};
  const ReportData resumed = *Compare(recipe, options_);
  EXPECT_EQ(fs::last_write_time(first_run), written);
  EXPECT_EQ(fs::last_write_time(options_.out + "/data/train.bin"), prepared);
  EXPECT_TRUE(fs::exists(options_.out + "/report.html"));

  options_.out = root_ + "/uninterrupted";
  const ReportData whole = *Compare(recipe, options_);
  for (size_t v = 0; v < whole.variants.size(); ++v) {
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(resumed.variants[v].runs[r].validation_loss,
                whole.variants[v].runs[r].validation_loss);
    }
  }
}

TEST_F(CompareTest, AFailedRunIsReportedAndTheOthersGoOn) {
  const Recipe recipe = Make(kRecipe, {"seeds=[1]"});
  // A file where the run's directory should be.
  CreateDirectories(options_.out);
  WriteFileAtomically(options_.out + "/hourglass-s1", "in the way");
  const ReportData report = *Compare(recipe, options_);
  EXPECT_EQ(report.variants[1].runs[0].status, RunStatus::kFailed);
  EXPECT_NE(report.variants[1].runs[0].message.find("hourglass-s1"), std::string::npos);
  EXPECT_EQ(report.variants[2].runs[0].status, RunStatus::kFinished);
  EXPECT_EQ(ReadFile(options_.out + "/hourglass-s1"), "in the way");
}

TEST_F(CompareTest, OtherSettingsOrTextDoNotTouchEarlierResults) {
  const Recipe recipe = Make();
  Compare(recipe, options_);
  const std::string report = ReadFile(options_.out + "/report.json");
  const std::string shard = ReadFile(options_.out + "/data/train.json");
  const auto failure = [&](const Recipe& changed) {
    try {
      Compare(changed, options_);
    } catch (const Error& error) {
      return error.parts().what;
    }
    return std::string("accepted");
  };
  EXPECT_NE(failure(Make(kRecipe, {"train.tokens=512"})).find("train.tokens (256, now 512)"),
            std::string::npos);
  EXPECT_NE(failure(Make(kRecipe, {"text.vocabulary=290"})).find("text.vocabulary"),
            std::string::npos);
  WriteFileAtomically(root_ + "/text.txt", RandomText(70));
  EXPECT_NE(failure(recipe).find("the text has changed"), std::string::npos);
  EXPECT_EQ(ReadFile(options_.out + "/report.json"), report);
  EXPECT_EQ(ReadFile(options_.out + "/data/train.json"), shard);
  WriteFileAtomically(root_ + "/text.txt", RandomText(60));
  // Another seed adds runs and repeats none.
  const auto written = fs::last_write_time(options_.out + "/conventional-s1/metrics.jsonl");
  EXPECT_EQ(Compare(Make(kRecipe, {"seeds=[1,2,3]"}), options_)->variants[0].runs.size(), 3u);
  EXPECT_EQ(fs::last_write_time(options_.out + "/conventional-s1/metrics.jsonl"), written);
}

TEST_F(CompareTest, ADamagedResultIsNeverAResult) {
  const Recipe recipe = Make();
  Compare(recipe, options_);
  for (const char* damage : {"{}", "not JSON"}) {
    WriteFileAtomically(options_.out + "/hourglass-s1/result.json", damage);
    const ReportData report = *Compare(recipe, options_);
    EXPECT_EQ(report.variants[1].runs[0].status, RunStatus::kFailed) << damage;
    EXPECT_NE(report.variants[1].runs[0].message.find("result.json"), std::string::npos);
  }
  // Metrics are only curves: the result stands without them.
  WriteFileAtomically(options_.out + "/olmo2-s1/metrics.jsonl", "{\"step\":\"a\"}\nx\n");
  const ReportData report = *Compare(recipe, options_);
  EXPECT_EQ(report.variants[2].runs[0].status, RunStatus::kFinished);
  EXPECT_TRUE(report.variants[2].runs[0].training_curve.empty());
}

TEST_F(CompareTest, MistakesInARecipeAreExplained) {
  EXPECT_EQ(FailureWith("baseline = \"conventional\"", "baseline = \"conventionel\"").remedy,
            "did you mean \"conventional\"?");
  EXPECT_EQ(FailureWith("tokens = 256", "tokes = 256").remedy, "did you mean \"tokens\"?");
  EXPECT_EQ(FailureWith("sub_mlps", "sub_mlp").remedy, "did you mean \"sub_mlps\"?");
  EXPECT_EQ(FailureWith("family = \"olmo2\"", "family = \"olmo\"").remedy,
            "did you mean \"olmo2\"?");
  EXPECT_EQ(FailureWith("seeds = [1, 2]", "seeds = [1, 1]").what, "a seed is given twice");
  EXPECT_EQ(FailureWith("seeds = [1, 2]", "seeds = []").what, "no seeds are given");
  EXPECT_EQ(FailureWith("name = \"olmo2\"", "name = \"hourglass\"").what,
            "two variants are called \"hourglass\"");
  EXPECT_EQ(FailureWith("name = \"olmo2\"", "name = \"a/b\"").what, "a variant has no usable name");
  EXPECT_EQ(FailureWith("family = \"hourglass\"",
                        "family = \"hourglass\"\nshape = "
                        "\"L2-d16-a2x8-f3x16\"")
                .what,
            "the variant has a shape and a search");
  EXPECT_EQ(FailureWith("tokens = 256", "").what, "no training budget is given");
  EXPECT_EQ(FailureWith("tokens = 256", "tokens = 256\nseed = 7").what, "unknown key \"seed\"");
  EXPECT_EQ(FailureWith("vocabulary = 300", "vocabulary = 10").where, "text.vocabulary");
  EXPECT_EQ(FailureWith("validation = 0.2", "validation = 2").where, "text.validation");
  const ErrorParts off = FailureWith(
      "sub_mlps = 3\n[[variant]]\nname = \"olmo2\"\nfamily = "
      "\"olmo2\"\nshape = \"L2-d16-a2x8-f1x48\"",
      "sub_mlps = 3\n[[variant]]\nname = \"olmo2\"\nfamily = "
      "\"olmo2\"\nshape = \"L2-d16-a2x8-f1x56\"");
  EXPECT_NE(off.what.find("+11.5385 %"), std::string::npos) << off.what;
  EXPECT_EQ(off.where, "[[variant]] \"olmo2\"");
  EXPECT_NE(FailureWith("sub_mlps = 3", "sub_mlps = 7").what.find("no shape"), std::string::npos);
}

TEST_F(CompareTest, EachVariantHasTheArchitectureOfItsFamily) {
  const std::vector<PlannedVariant> variants = PlanVariants(Make(), 300).variants;
  EXPECT_EQ(variants[0].config.norm, NormPlacement::kPre);
  EXPECT_EQ(variants[0].config.qk_norm, QkNorm::kNone);
  EXPECT_EQ(variants[2].config.norm, NormPlacement::kPost);
  EXPECT_EQ(variants[2].config.qk_norm, QkNorm::kFullWidth);
  EXPECT_EQ(variants[2].config.rope_theta, 500000.0);
}

TEST_F(CompareTest, ABudgetCanStandInForTheBaselinesCount) {
  const int64_t parameters = 2 * (4 * 16 * 16 + 3 * 16 * 48);
  EXPECT_EQ(PlanVariants(Make(kRecipe, {"budget=" + std::to_string(parameters)}), 300).budget,
            parameters);
  EXPECT_THROW(PlanVariants(Make(kRecipe, {"budget=5000"}), 300), Error);
}

// The size that a program makes of a file.
int64_t SizeFromProgram(const std::string& command, const std::string& path) {
  const std::string out = path + ".out";
  EXPECT_EQ(std::system((command + " < '" + path + "' > '" + out + "'").c_str()), 0);
  return static_cast<int64_t>(fs::file_size(out));
}

TEST_F(CompareTest, YardsticksAgreeWithTheRealPrograms) {
  const std::string path = root_ + "/yardstick.txt";
  const std::string text = RandomText(2000);
  WriteFileAtomically(path, text);
  // gzip's own deflate and zlib's differ in details of their match search.
  const auto gzip = static_cast<double>(SizeFromProgram("gzip -9", path));
  EXPECT_NEAR(static_cast<double>(GzipBytes(text)) / gzip, 1.0, 0.01);
  EXPECT_EQ(XzBytes(text), SizeFromProgram("xz -9", path));
  EXPECT_LT(GzipBytes(""), 30);
  EXPECT_LT(XzBytes(""), 40);
}

}  // namespace
}  // namespace sandglass
