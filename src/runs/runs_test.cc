#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/testing.h"
#include "runs/run_diff.h"
#include "runs/run_index.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// Run directories as training writes them, without training.
class RunsTest : public ::testing::Test {
 protected:
  std::string WriteRun(const std::string& name, double loss, int batch = 4) {
    const std::string directory = root_ + "/" + name;
    CreateDirectories(directory);
    RunConfig config;
    config.name = fs::path(name).filename().string();
    config.model.family = Family::kHourglass;
    config.model.config = FamilyConfig(Family::kHourglass, Shape::Parse("L1-d8-a2x4-f2x6"), 16);
    config.train.tokens = 640;
    config.train.batch = batch;
    config.train.length = 16;
    WriteFileAtomically(ConfigPath(directory), ToToml(WriteFields(config)));
    WriteFileAtomically(InfoPath(directory),
                        WriteFields(RunInfo{.version = "1", .started = "2026-01-02"}).dump());
    MetricsLog metrics(directory, 0);
    metrics.Add(StepMetrics{.step = 1, .tokens = 64, .loss = loss + 1});
    metrics.Add(ValidationMetrics{.step = 1, .tokens = 64, .loss = loss + 0.5});
    metrics.Flush();
    return directory;
  }
  void Finish(const std::string& directory, double loss) {
    const RunResult result{.steps = 10,
                           .tokens = 640,
                           .validation_loss = loss,
                           .bits_per_byte = loss / 2,
                           .validation_tokens = 100};
    WriteFileAtomically(ResultPath(directory), WriteFields(result).dump());
  }
  std::vector<std::string> Names(const RunQuery& query) {
    RunIndex index(root_, [this](std::string_view note) { notes_.emplace_back(note); });
    index.Refresh(ProgressMode::kSilent);
    RunQuery names = query;
    names.columns = {"run.name"};
    std::vector<std::string> out;
    for (const auto& row : index.List(names).rows) out.push_back(row[0].get<std::string>());
    return out;
  }
  ErrorParts FailureOf(const RunQuery& query) {
    return sandglass::FailureOf([&] { Names(query); });
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path();
  std::vector<std::string> notes_;
};

using Strings = std::vector<std::string>;

TEST_F(RunsTest, ListsFiltersAndSorts) {
  Finish(WriteRun("b", 3.0, 8), 2.5);
  WriteRun("a", 3.5);
  Finish(WriteRun("group/c", 3.0), 3.0);
  EXPECT_EQ(Names({}), (Strings{"a", "b", "c"}));
  EXPECT_EQ(Names({.where = "val_loss<3.2"}), (Strings{"b", "c"}));
  EXPECT_EQ(Names({.where = "val_loss<3.2 and train.batch = 4"}), (Strings{"c"}));
  EXPECT_EQ(Names({.where = "batch = 8"}), (Strings{"b"}));
  EXPECT_EQ(Names({.where = "status = 'unfinished'"}), (Strings{"a"}));
  EXPECT_EQ(Names({.where = "model.shape like 'L2%'"}), Strings{});
  EXPECT_EQ(Names({.sort = "val_loss"}), (Strings{"b", "c", "a"}));
  EXPECT_EQ(Names({.sort = "val_loss desc"}), (Strings{"a", "c", "b"}));
  // A run without a result has the last validation's loss, and no result.
  EXPECT_EQ(Names({.where = "val_loss = 4 and result.validation_loss is null"}), (Strings{"a"}));
}

TEST_F(RunsTest, EveryColumnIsThere) {
  Finish(WriteRun("run", 3.0), 2.5);
  RunIndex index(root_, [](std::string_view) {});
  index.Refresh(ProgressMode::kSilent);
  const RunTable table = index.List({.columns = index.Columns()});
  ASSERT_EQ(table.rows.size(), 1u);
  const auto value = [&](const std::string& column) {
    const auto at = std::ranges::find(table.columns, column);
    EXPECT_NE(at, table.columns.end()) << column;
    return table.rows[0][at - table.columns.begin()];
  };
  EXPECT_EQ(value("model.norm"), "pre");
  EXPECT_EQ(value("optimizer.decay"), R"(["attention","ffn","embedding","head"])");
  EXPECT_EQ(value("run.matrices"), 1 * (4 * 8 * 8 + 3 * 8 * 12));
  EXPECT_EQ(value("run.steps"), 10);
  EXPECT_EQ(value("run.train_loss"), 4.0);
  EXPECT_EQ(value("info.started"), "2026-01-02");
  EXPECT_TRUE(value("info.build").is_null());
  EXPECT_EQ(value("result.bits_per_byte"), 1.25);
}

TEST_F(RunsTest, FollowsChangesAndReadsOnlyThose) {
  const std::string run = WriteRun("a", 3.0);
  WriteRun("b", 3.0);
  RunIndex index(root_, [](std::string_view) {});
  EXPECT_EQ(index.Refresh(ProgressMode::kSilent).read, 2);
  EXPECT_EQ(index.Refresh(ProgressMode::kSilent).read, 0);
  Finish(run, 2.0);
  EXPECT_EQ(index.Refresh(ProgressMode::kSilent).read, 1);
  EXPECT_EQ(index.List({.where = "status = 'finished'"}).rows.size(), 1u);
  fs::remove_all(run);
  const IndexChanges changes = index.Refresh(ProgressMode::kSilent);
  EXPECT_EQ(changes.removed, 1);
  EXPECT_EQ(changes.runs, 1);
  EXPECT_EQ(index.List({}).rows.size(), 1u);
}

TEST_F(RunsTest, DeletingOrDamagingTheIndexLosesNothing) {
  Finish(WriteRun("a", 3.0), 2.0);
  WriteRun("b", 3.0);
  const Strings before = Names({.sort = "val_loss"});
  ASSERT_TRUE(fs::exists(RunIndexPath(root_)));
  fs::remove(RunIndexPath(root_));
  EXPECT_EQ(Names({.sort = "val_loss"}), before);
  WriteFileAtomically(RunIndexPath(root_), std::string(5000, 'x'));
  EXPECT_EQ(Names({.sort = "val_loss"}), before);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("made again"), std::string::npos);
  // An index of another version.
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(RunIndexPath(root_).c_str(), &database), SQLITE_OK);
  sqlite3_exec(database, "DROP TABLE train; PRAGMA user_version = 7", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  EXPECT_EQ(Names({.sort = "val_loss"}), before);
  RunIndex index(root_, [](std::string_view) {});
  EXPECT_EQ(index.Rebuild(ProgressMode::kSilent).read, 2);
}

TEST_F(RunsTest, ADamagedRunIsListedWithTheReason) {
  WriteRun("good", 3.0);
  WriteFileAtomically(ConfigPath(WriteRun("bad", 3.0)), "nmae = 1");
  RunIndex index(root_, [](std::string_view) {});
  index.Refresh(ProgressMode::kSilent);
  const RunTable table =
      index.List({.where = "status = 'damaged'", .columns = {"run.name", "message"}});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][0], "bad");
  EXPECT_NE(table.rows[0][1].get<std::string>().find("unknown key \"nmae\""), std::string::npos);
}

// As the first version wrote them.
TEST_F(RunsTest, WhatOlderRunsDoNotSayIsUnknownAndNoDamage) {
  const std::string run = WriteRun("old", 3.0);
  Finish(run, 2.5);
  const auto strip = [](Json values, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) values.erase(key);
    return values;
  };
  WriteFileAtomically(InfoPath(run),
                      strip(Json::parse(ReadFile(InfoPath(run))),
                            {"build", "compiler", "host", "system", "imported_from", "starts"})
                          .dump());
  WriteFileAtomically(ResultPath(run), strip(Json::parse(ReadFile(ResultPath(run))),
                                             {"spikes", "rewinds", "save_seconds",
                                              "average_validation_loss", "average_bits_per_byte"})
                                           .dump());
  std::istringstream lines(ReadFile(MetricsPath(run)));
  std::string stripped;
  for (std::string line; std::getline(lines, line);) {
    stripped += strip(Json::parse(line), {"sequences", "gradient_norms"}).dump() + "\n";
  }
  WriteFileAtomically(MetricsPath(run), stripped);
  RunIndex index(root_, [](std::string_view) {});
  index.Refresh(ProgressMode::kSilent);
  const auto look = [&](const std::vector<std::string>& columns) {
    return index.List({.columns = columns}).rows.at(0);
  };
  EXPECT_EQ(look({"status", "val_loss", "result.steps"}), (std::vector<Json>{"finished", 2.5, 10}));
  for (const Json& value : look({"result.spikes", "result.rewinds", "result.save_seconds",
                                 "info.build", "info.starts", "message"})) {
    EXPECT_TRUE(value.is_null()) << value;
  }
  // What every version wrote must be there.
  WriteFileAtomically(ResultPath(run),
                      strip(Json::parse(ReadFile(ResultPath(run))), {"validation_loss"}).dump());
  index.Refresh(ProgressMode::kSilent);
  EXPECT_EQ(look({"status"}), (std::vector<Json>{"damaged"}));
}

TEST_F(RunsTest, ExpressionsThatAreNoneAreExplainedAndChangeNothing) {
  WriteRun("a", 3.0);
  const ErrorParts typo = FailureOf({.where = "vall_loss < 3"});
  EXPECT_NE(typo.what.find("vall_loss"), std::string::npos);
  EXPECT_EQ(typo.where, "vall_loss < 3");
  EXPECT_NE(typo.remedy.find("\"val_loss\""), std::string::npos);
  EXPECT_NE(FailureOf({.where = "tokens = 1"}).what.find("ambiguous"), std::string::npos);
  FailureOf({.where = "val_loss <"});
  FailureOf({.where = "1); DROP TABLE run; --"});
  FailureOf({.where = "1) UNION SELECT 1 FROM pragma_table_info('run'); DELETE FROM stamp"});
  FailureOf({.sort = "val_loss; DROP TABLE run"});
  EXPECT_EQ(Names({}), (Strings{"a"}));
  EXPECT_EQ(sandglass::FailureOf([&] { RunIndex(root_ + "/none", [](std::string_view) {}); }).where,
            root_ + "/none");
}

TEST_F(RunsTest, DifferencesNameKeysAndOutcomes) {
  const std::string a = WriteRun("a", 3.0, 4);
  const std::string b = WriteRun("b", 3.0, 8);
  Finish(a, 2.5);
  Finish(b, 2.25);
  RecordStart(a, ReadRunInfo(a), 3);
  const RunDiff diff = DiffRuns(a, b);
  ASSERT_EQ(diff.configuration.size(), 1u);
  EXPECT_EQ(diff.configuration[0].key, "train.batch");
  EXPECT_EQ(diff.configuration[0].a, 4);
  EXPECT_EQ(diff.configuration[0].b, 8);
  const auto loss = std::ranges::find(diff.outcome, "result.validation_loss", &RunDifference::key);
  ASSERT_NE(loss, diff.outcome.end());
  EXPECT_EQ(loss->b, 2.25);
  EXPECT_TRUE(DiffRuns(a, a).configuration.empty());
  EXPECT_EQ(sandglass::FailureOf([&] { DiffRuns(a, root_); }).where, root_);
}

}  // namespace
}  // namespace sandglass
