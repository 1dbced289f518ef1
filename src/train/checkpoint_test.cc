#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/testing.h"
#include "train/checkpoint_writer.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    params_.Declare(weight_, "w", ParamRole::kFfn, 300, 7, {.std = 1.0});
    params_.Grant(DType::kF32, true);
    params_.Initialize(1);
    optimizer_.emplace(params_, OptimizerOptions{});
  }

  CheckpointContents At(int64_t step) {
    weight_.value.Row<float>()[0] = static_cast<float>(step);
    return {.files = TensorFilesOf(params_, *optimizer_, nullptr),
            .state = {.step = step},
            .configuration = "name = \"test\"\n"};
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ + "/checkpoints")) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  static std::string Name(int step) { return "step-0000000" + std::to_string(step); }
  std::string Newest() {
    const auto found = FindCheckpoint(root_, [](std::string_view) {});
    return found ? fs::path(*found).filename().string() : "";
  }
  float FirstWeightOf(const std::string& name) {
    LoadWeights(root_ + "/checkpoints/" + name, params_);
    return weight_.value.Row<float>()[0];
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path();
  ParamTable params_;
  Param weight_;
  std::optional<Optimizer> optimizer_;
};

TEST_F(CheckpointTest, KeepsTheNewestDueOnesAndThoseForGood) {
  const Retention retention{.newest = 2, .every = 4, .due_every = 1};
  for (int step = 1; step <= 9; ++step) SaveCheckpoint(root_, At(step), retention);
  EXPECT_EQ(Names(), (std::set<std::string>{Name(4), Name(8), Name(9)}));
}

TEST_F(CheckpointTest, OneThatWasNotDuePushesNoneOut) {
  const Retention retention{.newest = 1, .due_every = 3};
  for (const int step : {3, 4, 5}) SaveCheckpoint(root_, At(step), retention);
  EXPECT_EQ(Names(), (std::set<std::string>{Name(3), Name(5)}));
  SaveCheckpoint(root_, At(6), retention);
  EXPECT_EQ(Names(), (std::set<std::string>{Name(6)}));
}

TEST_F(CheckpointTest, AReplacedCheckpointIsThereUntilTheNewOneIs) {
  SaveCheckpoint(root_, At(1), {});
  // A process that was killed between the two renames, and one that was killed before the last
  // removal.
  const std::string place = root_ + "/checkpoints/" + Name(1);
  fs::rename(place, place + ".replaced");
  EXPECT_EQ(Newest(), Name(1) + ".replaced");
  SaveCheckpoint(root_, At(1), {});
  EXPECT_EQ(Newest(), Name(1));
  fs::copy(place, place + ".replaced");
  EXPECT_EQ(Newest(), Name(1));
  SaveCheckpoint(root_, At(1), {});
  EXPECT_EQ(Names(), (std::set<std::string>{Name(1)}));
}

TEST_F(CheckpointTest, WhatAKilledSaveLeftIsNeverUsedAndRemoved) {
  SaveCheckpoint(root_, At(1), {});
  fs::copy(root_ + "/checkpoints/" + Name(1), root_ + "/checkpoints/" + Name(2) + ".partial");
  CreateDirectories(root_ + "/checkpoints/" + Name(3) + ".removed");
  EXPECT_EQ(Newest(), Name(1));
  RemovePartialCheckpoints(root_);
  EXPECT_EQ(Names(), (std::set<std::string>{Name(1)}));
}

TEST_F(CheckpointTest, TheWriterSavesTheValuesOfTheCallWhateverComesAfter) {
  const auto ops = MakeReferenceBackend(DType::kF32);
  for (const SaveMode mode : {SaveMode::kBackground, SaveMode::kForeground}) {
    CheckpointWriter writer(*ops, root_, {.newest = 9}, mode);
    for (int step = 1; step <= 5; ++step) {
      writer.Save(At(step));
      weight_.value.Row<float>()[0] = -1.0f;
    }
    writer.Wait();
    EXPECT_GT(writer.stalled_seconds(), 0);
    for (int step = 1; step <= 5; ++step) EXPECT_EQ(FirstWeightOf(Name(step)), step);
    fs::remove_all(root_ + "/checkpoints");
  }
}

TEST_F(CheckpointTest, AFailureInTheBackgroundSurfaces) {
  const auto ops = MakeReferenceBackend(DType::kF32);
  CheckpointWriter writer(*ops, root_, {}, SaveMode::kBackground);
  writer.Save(At(1));
  writer.Wait();
  fs::remove_all(root_ + "/checkpoints");
  WriteFileAtomically(root_ + "/checkpoints", "in the way");
  writer.Save(At(3));
  EXPECT_NE(FailureOf([&] { writer.Wait(); }).what.find("cannot create the directory"),
            std::string::npos);
  writer.Wait();  // reported once
  fs::remove(root_ + "/checkpoints");
  writer.Save(At(4));
  writer.Wait();
  EXPECT_EQ(Newest(), Name(4));
}

TEST_F(CheckpointTest, AnotherModelOrOptimizerIsRefused) {
  SaveCheckpoint(root_, At(1), {});
  const std::string directory = root_ + "/checkpoints/" + Name(1);
  const auto refused = [&](int64_t rows, int64_t cols, const OptimizerOptions& options) {
    ParamTable params;
    Param weight;
    params.Declare(weight, "w", ParamRole::kFfn, rows, cols, {});
    params.Grant(DType::kF32, true);
    Optimizer optimizer(params, options);
    return FailureOf([&] { LoadCheckpoint(directory, params, optimizer, nullptr); }).what;
  };
  // As many elements in another shape.
  EXPECT_EQ(refused(7, 300, {}), "tensor \"w\" has the shape [300, 7]");
  OptimizerOptions muon;
  muon.kind = OptimizerKind::kMuon;
  EXPECT_EQ(refused(300, 7, muon), "there is no tensor \"momentum/w\"");
  SaveCheckpoint(root_, {.files = {WeightsFileOf(params_)}, .state = {.step = 2}}, {});
  EXPECT_NE(FailureOf([&] {
              LoadCheckpoint(root_ + "/checkpoints/" + Name(2), params_, *optimizer_, nullptr);
            }).what.find("weights alone"),
            std::string::npos);
  ParamTable params;
  Param weight, other;
  params.Declare(other, "other", ParamRole::kFfn, 1, 1, {});
  params.Grant(DType::kF32, true);
  EXPECT_EQ(FailureOf([&] { LoadWeights(directory, params); }).what,
            "there is no tensor \"other\"");
  EXPECT_EQ(FailureOf([&] { LoadWeights(directory, params_, WeightsKind::kAverage); }).what,
            "the checkpoint holds no averaged weights");
}

}  // namespace
}  // namespace sandglass
