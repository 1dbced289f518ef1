#include "train/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "base/testing.h"
#include "data/samples.h"
#include "event.pb.h"
#include "train/checkpoint.h"
#include "train/import_run.h"
#include "train/open_model.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/testing.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

TEST_F(TrainTest, ResumeGivesTheUninterruptedRunBitForBit) {
  const RunResult whole = *Run("whole", config_);
  EXPECT_EQ(whole.steps, 8);
  EXPECT_EQ(whole.tokens, 8 * 4 * 16);
  EXPECT_EQ(whole.validation_tokens, 3 * 41 - 1);
  EXPECT_EQ(whole.validation_bytes, 3 * 40);
  RunUntil(3, "pieces", config_);  // right before the validation that is due after step 3
  RunUntil(5, "pieces", config_);
  const RunResult pieces = *Run("pieces", config_);
  EXPECT_TRUE(Noted("continuing from step 5 of 8"));
  EXPECT_EQ(pieces.weights_hash, whole.weights_hash);
  EXPECT_EQ(pieces.validation_loss, whole.validation_loss);

  const RunMetrics expected = ReadMetrics(root_ + "/whole");
  const RunMetrics resumed = ReadMetrics(root_ + "/pieces");
  ASSERT_EQ(resumed.steps.size(), 8u);
  ASSERT_EQ(expected.steps.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(resumed.steps[i].step, int64_t(i) + 1);
    EXPECT_EQ(resumed.steps[i].loss, expected.steps[i].loss);
    EXPECT_EQ(resumed.steps[i].learning_rate, expected.steps[i].learning_rate);
  }
  ASSERT_EQ(resumed.validations.size(), 3u);  // after steps 3, 6 and at the end
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(resumed.validations[i].step, expected.validations[i].step);
    EXPECT_EQ(resumed.validations[i].loss, expected.validations[i].loss);
  }
}

TEST_F(TrainTest, ACrashAfterTheCheckpointDropsTheLaterMetrics) {
  config_.train.checkpoint_every = 3;
  const RunResult whole = *Run("whole", config_);
  RunUntil(7, "crashed", config_);
  fs::remove_all(root_ + "/crashed/checkpoints/step-00000007");
  EXPECT_EQ(Run("crashed", config_)->weights_hash, whole.weights_hash);
  EXPECT_TRUE(Noted("continuing from step 6"));
  const RunMetrics metrics = ReadMetrics(root_ + "/crashed");
  ASSERT_EQ(metrics.steps.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(metrics.steps[i].step, int64_t(i) + 1);
}

TEST_F(TrainTest, ADamagedCheckpointIsReportedAndThePreviousOneUsed) {
  config_.train.checkpoint_every = 2;
  const RunResult whole = *Run("whole", config_);
  RunUntil(5, "damaged", config_);
  const std::string path = root_ + "/damaged/checkpoints/step-00000005/model.safetensors";
  std::string bytes = ReadFile(path);
  bytes[bytes.size() - 3] ^= 1;
  WriteFileAtomically(path, bytes);
  EXPECT_EQ(Run("damaged", config_)->weights_hash, whole.weights_hash);
  EXPECT_TRUE(Noted("checksum of model.safetensors does not hold"));
  EXPECT_TRUE(Noted("continuing from step 4"));
}

TEST_F(TrainTest, AFailedSaveLeavesTheEarlierCheckpoint) {
  RunUntil(3, "full", config_);
  // A limit on file sizes fails writes as a full disk does, and is to be had without a full disk.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 9000;  // enough for metrics, too little for the weights
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ErrorParts parts = FailureOf("full", config_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(parts.what.find("cannot write"), std::string::npos) << parts.what;
  EXPECT_NE(parts.where.find("model.safetensors"), std::string::npos) << parts.where;
  EXPECT_TRUE(fs::exists(root_ + "/full/checkpoints/step-00000003/manifest.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/full/checkpoints"), {}), 1);
  EXPECT_EQ(Run("full", config_)->weights_hash, Run("whole", config_)->weights_hash);
}

TEST_F(TrainTest, AKilledRunLosesNoMetrics) {
  config_.train.checkpoint_every = 2;
  config_.system.background_saves = false;  // so that it is known what is on disk
  const RunResult whole = *Run("whole", config_);
  const pid_t child = ::fork();
  if (child == 0) {
    TrainCallbacks callbacks = callbacks_;
    callbacks.step = [](const StepMetrics& metrics) {
      if (metrics.step == 5) ::kill(::getpid(), SIGKILL);
    };
    Train(config_, root_ + "/killed", ExistingRun::kContinue, callbacks);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Run("killed", config_)->steps, whole.steps);
  EXPECT_TRUE(Noted("continuing from step 4"));
  const RunMetrics metrics = ReadMetrics(root_ + "/killed");
  ASSERT_EQ(metrics.steps.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(metrics.steps[i].step, int64_t(i) + 1);
}

// Steps of one tag over all event files of a run, in the order in which TensorBoard reads them.
std::vector<int64_t> EventSteps(const std::string& run, const std::string& tag) {
  std::vector<int64_t> steps;
  for (const std::string& path : ListEventFiles(run)) {
    const std::string file = ReadFile(path);
    for (size_t at = 0; at + 16 <= file.size();) {
      uint64_t length = 0;
      std::memcpy(&length, file.data() + at, sizeof(length));
      events::Event event;
      EXPECT_TRUE(event.ParseFromString(file.substr(at + 12, length)));
      at += 16 + length;
      if (event.has_summary() && event.summary().value(0).tag() == tag) {
        steps.push_back(event.step());
      }
    }
  }
  return steps;
}

TEST_F(TrainTest, EventStepsStrictlyIncreaseAfterAKill) {
  config_.train.checkpoint_every = 3;
  config_.log.histogram_every = 2;
  // As a kill after step 5 leaves it: everything on disk, the newest checkpoint two steps older.
  RunUntil(5, "run", config_);
  fs::remove_all(root_ + "/run/checkpoints/step-00000005");
  Run("run", config_);
  EXPECT_TRUE(Noted("continuing from step 3"));
  const std::vector<int64_t> all = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int64_t> even = {2, 4, 6, 8};
  EXPECT_EQ(EventSteps(root_ + "/run", "train/loss"), all);
  EXPECT_EQ(EventSteps(root_ + "/run", "weights/layers.0.ffn.1.w_down"), even);
  EXPECT_EQ(EventSteps(root_ + "/run", "gradients/head"), even);
  EXPECT_EQ(EventSteps(root_ + "/run", "validation/loss"), (std::vector<int64_t>{3, 6, 8}));
}

TEST_F(TrainTest, HistogramsCanBeLeftOut) {
  config_.log.histogram_every = 0;
  Run("run", config_);
  EXPECT_TRUE(EventSteps(root_ + "/run", "gradients/head").empty());
  EXPECT_EQ(EventSteps(root_ + "/run", "train/loss").size(), 8u);
  config_.log.histogram_every = -1;
  EXPECT_EQ(FailureOf("other", config_).where, "log.histogram_every");
}

TEST_F(TrainTest, ARunRecordsWhatItRanWith) {
  Run("run", config_);
  const RunInfo info = ReadRunInfo(root_ + "/run");
  EXPECT_EQ(info.build, HashHex(HashFile("/proc/self/exe")));
  EXPECT_NE(info.compiler->find_first_of("0123456789"), std::string::npos);
  EXPECT_FALSE(info.host->empty());
  EXPECT_NE(info.system->find("Linux"), std::string::npos);
  EXPECT_EQ(info.train_hash.size(), 16u);
  EXPECT_TRUE(Differences(ReadRunConfig(root_ + "/run"), config_, {"model.vocabulary"}).empty());
  // What is recorded may change from one start to the next, as speed and memory may.
  fs::remove(root_ + "/run/result.json");
  config_.log.histogram_every = 1;
  EXPECT_NO_THROW(Run("run", config_));
}

TEST_F(TrainTest, ANewCheckpointOutlivesDamagedLaterOnes) {
  config_.train.checkpoint_every = 2;
  RunUntil(6, "run", config_);
  for (const char* step : {"step-00000004", "step-00000006"}) {
    WriteFileAtomically(root_ + "/run/checkpoints/" + step + "/state.json", "{}");
  }
  RunUntil(3, "run", config_);  // starts over, since no checkpoint is sound
  EXPECT_TRUE(fs::exists(root_ + "/run/checkpoints/step-00000003/manifest.json"));
  EXPECT_EQ(Run("run", config_)->weights_hash, Run("whole", config_)->weights_hash);
  EXPECT_TRUE(Noted("continuing from step 3"));
}

TEST_F(TrainTest, DiscardingARunLeavesOtherFilesAlone) {
  Run("run", config_);
  WriteFileAtomically(root_ + "/run/thesis.txt", "mine");
  Run("run", config_, ExistingRun::kDiscard);
  EXPECT_EQ(ReadFile(root_ + "/run/thesis.txt"), "mine");
  // A directory with a run.toml of somebody's own is not a run.
  CreateDirectories(root_ + "/own");
  WriteFileAtomically(root_ + "/own/notes.txt", "mine");
  Run("own", config_, ExistingRun::kDiscard);
  EXPECT_EQ(ReadFile(root_ + "/own/notes.txt"), "mine");
}

TEST_F(TrainTest, AFinishedRunWhoseResultIsLostValidatesOnce) {
  const RunResult first = *Run("run", config_);
  fs::remove(root_ + "/run/result.json");
  EXPECT_EQ(Run("run", config_)->validation_loss, first.validation_loss);
  EXPECT_EQ(ReadMetrics(root_ + "/run").validations.size(), 3u);
}

TEST_F(TrainTest, OldCheckpointsAreRemoved) {
  config_.train.checkpoint_every = 1;
  config_.train.keep_checkpoints = 3;
  Run("keep", config_);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root_ + "/keep/checkpoints")) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"step-00000006", "step-00000007", "step-00000008"}));
}

TEST_F(TrainTest, FinishedRunsAreNotRepeatedAndOthersNotOverwritten) {
  const RunResult first = *Run("run", config_);
  int steps = 0;
  callbacks_.step = [&steps](const StepMetrics&) { ++steps; };
  EXPECT_EQ(Run("run", config_)->weights_hash, first.weights_hash);
  EXPECT_EQ(steps, 0);

  RunConfig other = config_;
  other.train.batch = 2;
  const ErrorParts parts = FailureOf("run", other);
  EXPECT_NE(parts.what.find("train.batch (4, now 2)"), std::string::npos) << parts.what;
  EXPECT_EQ(ReadRunConfig(root_ + "/run").train.batch, 4);
  // Settings of speed alone are free to change.
  RunConfig faster = config_;
  faster.system.recompute = Recompute::kNothing;
  EXPECT_EQ(Run("run", faster)->weights_hash, first.weights_hash);

  EXPECT_NE(Run("run", other, ExistingRun::kDiscard)->weights_hash, first.weights_hash);
  EXPECT_EQ(steps, 16);
}

TEST_F(TrainTest, ChangedDataIsNoticedOnResume) {
  RunUntil(2, "run", config_);
  WriteShard(root_ + "/data/train.bin", ByteTokenizer(), 21, "other");
  EXPECT_NE(FailureOf("run", config_).what.find("contents of the data"), std::string::npos);
}

TEST_F(TrainTest, ATokenizerOfOtherDataIsRefused) {
  ByteTokenizer(SplitPattern::kCl100k).Save(root_ + "/data/tokenizer.json");
  EXPECT_NE(FailureOf("run", config_).what.find("tokenizer"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ + "/run"));
}

TEST_F(TrainTest, ImpossibleConfigurationsAreRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const std::string& assignment) {
    const ConfigTree tree = ParseToml(ToToml(WriteFields(config_)), "run.toml");
    const RunConfig config = RunConfig::FromTree(tree, {assignment});
    const ErrorParts parts = FailureOf("run", config);
    EXPECT_FALSE(fs::exists(root_ + "/run")) << assignment;
    return parts;
  };
  EXPECT_EQ(refused("train.batch=0").where, "train.batch");
  EXPECT_EQ(refused("train.tokens=0").what, "no training budget is given");
  EXPECT_EQ(refused("train.tokens_per_parameter=20").what, "two training budgets are given");
  EXPECT_EQ(refused("optimizer.learning_rate=0").where, "optimizer.learning_rate");
  EXPECT_EQ(refused("optimizer.beta2=1").where, "optimizer.beta2");
  EXPECT_EQ(refused("model.vocabulary=200").where, "model.vocabulary");
  EXPECT_EQ(refused("name=a/b").where, "name");
  EXPECT_EQ(refused("optimizer.weight_decay=inf").where, "optimizer.weight_decay");
  EXPECT_EQ(refused("train.batch=2000000000").where, "train.batch");
  refused("train.length=100000");  // more than there are tokens
  EXPECT_NE(refused("data.path=/no-such-directory").what.find("no such data"), std::string::npos);
}

TEST_F(TrainTest, TheReportedLossHoldsNoZLoss) {
  Run("without", config_);
  config_.model.config.z_loss = 0.1;
  Run("with", config_);
  // The first steps begin with the same weights; only the gradients differ.
  const StepMetrics with = ReadMetrics(root_ + "/with").steps[0];
  const StepMetrics without = ReadMetrics(root_ + "/without").steps[0];
  EXPECT_EQ(with.loss, without.loss);
  EXPECT_EQ(with.z_loss, without.z_loss);
  EXPECT_GT(with.z_loss, 1.0);  // (log 257)^2 is 31
  EXPECT_NE(with.gradient_norm, without.gradient_norm);
}

TEST_F(TrainTest, NonFiniteLossSkipsStepsThenStops) {
  config_.optimizer.learning_rate = 1e30;
  config_.optimizer.warmup_steps = 0;
  config_.train.tokens = 100 * 4 * 16;
  config_.train.max_skipped_steps = 4;
  config_.train.checkpoint_every = 1;
  config_.train.average_decay = 0.5;
  const ErrorParts parts = FailureOf("nan", config_);
  EXPECT_NE(parts.what.find("4 steps in a row"), std::string::npos) << parts.what;
  // Every checkpoint since the last step that was not skipped holds the same state.
  const std::string checkpoints = root_ + "/nan/checkpoints/";
  for (const char* file :
       {"/model.safetensors", "/optimizer.safetensors", "/average.safetensors"}) {
    std::vector<std::string> hashes;
    for (const auto& entry : fs::directory_iterator(checkpoints)) {
      hashes.push_back(HashHex(HashFile(entry.path().string() + file)));
    }
    ASSERT_EQ(hashes.size(), 2u);
    EXPECT_EQ(hashes[0], hashes[1]) << file;
  }
  const RunMetrics metrics = ReadMetrics(root_ + "/nan");
  EXPECT_TRUE(metrics.steps.back().skipped);
  EXPECT_TRUE(std::isnan(metrics.steps.back().loss) || std::isinf(metrics.steps.back().loss) ||
              !std::isfinite(metrics.steps.back().gradient_norm));
}

TEST_F(TrainTest, ALimitOfSkippedStepsHoldsAcrossARestart) {
  config_.optimizer.learning_rate = 1e30;
  config_.optimizer.warmup_steps = 0;
  config_.train.tokens = 100 * 4 * 16;
  config_.train.max_skipped_steps = 4;
  const int64_t stopped = [&] {
    FailureOf("whole", config_);
    return ReadMetrics(root_ + "/whole").steps.back().step;
  }();
  RunUntil(stopped - 2, "pieces", config_);
  EXPECT_NE(FailureOf("pieces", config_).what.find("4 steps in a row"), std::string::npos);
  EXPECT_EQ(ReadMetrics(root_ + "/pieces").steps.back().step, stopped);
}

TEST_F(TrainTest, AveragedWeightsAreScoredBesideTheRawOnes) {
  config_.train.average_decay = 0.8;
  const RunResult result = *Run("run", config_);
  ASSERT_TRUE(result.average_validation_loss.has_value());
  EXPECT_NE(*result.average_validation_loss, result.validation_loss);
  for (const ValidationMetrics& validation : ReadMetrics(root_ + "/run").validations) {
    EXPECT_TRUE(validation.average_loss.has_value());
  }
  // The average is no part of training.
  config_.train.average_decay = 0.0;
  const RunResult plain = *Run("plain", config_);
  EXPECT_EQ(plain.weights_hash, result.weights_hash);
  EXPECT_EQ(plain.validation_loss, result.validation_loss);
  EXPECT_FALSE(plain.average_validation_loss.has_value());
}

TEST_F(TrainTest, AveragedWeightsOfACheckpointCanBeOpened) {
  config_.train.average_decay = 0.8;
  config_.train.checkpoint_every = 3;
  Run("run", config_);
  const auto weights_of = [&](WeightsKind kind) {
    const auto source = OpenModel(root_ + "/run", callbacks_.note, kind);
    EXPECT_EQ(source->description().ends_with(", averaged weights"), kind == WeightsKind::kAverage);
    Model model(source->config(), {.purpose = Purpose::kEvaluate});
    model.params().Grant(DType::kF32, false);
    source->LoadWeights(model.params());
    const View values = model.params().values();
    return std::vector<float>(values.Row<float>(), values.Row<float>() + values.cols);
  };
  EXPECT_NE(weights_of(WeightsKind::kRaw), weights_of(WeightsKind::kAverage));
  // Steps that were all skipped leave an average of nothing.
  const std::string state = root_ + "/run/checkpoints/step-00000008/state.json";
  Json values = Json::parse(ReadFile(state));
  ASSERT_EQ(values.at("averaged_updates"), 8);
  values["averaged_updates"] = 0;
  WriteFileAtomically(state, values.dump());
  Model model(ReadRunConfig(root_ + "/run").model.config, {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, false);
  EXPECT_EQ(sandglass::FailureOf([&] {
              LoadWeights(root_ + "/run/checkpoints/step-00000008", model.params(),
                          WeightsKind::kAverage);
            }).what,
            "the checkpoint holds no averaged weights");
}

TEST_F(TrainTest, ACoolDownFromACheckpointIsTheRunOfThatBudget) {
  config_.optimizer.schedule = Schedule::kWsd;
  config_.optimizer.cooldown_steps = 2;
  config_.optimizer.warmup_steps = 1;
  config_.train.checkpoint_every = 2;
  config_.train.keep_every = 2;
  config_.train.average_decay = 0.8;
  Run("base", config_);
  config_.train.tokens = 6 * 4 * 16;
  const RunResult direct = *Run("direct", config_);
  config_.train.branch_from = root_ + "/base/checkpoints/step-00000004";
  const RunResult branch = *Run("branch", config_);
  EXPECT_TRUE(Noted("branching from"));
  EXPECT_TRUE(Noted("train.tokens (512, now 384)"));
  EXPECT_EQ(branch.weights_hash, direct.weights_hash);
  EXPECT_EQ(branch.average_validation_loss, direct.average_validation_loss);
  EXPECT_EQ(ReadMetrics(root_ + "/branch").steps.front().step, 5);

  // From its own checkpoints it goes on without the source.
  RunUntil(5, "again", config_);
  fs::remove_all(root_ + "/base");
  EXPECT_EQ(Run("again", config_)->weights_hash, direct.weights_hash);
  EXPECT_NE(FailureOf("gone", config_).what.find("is not there"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ + "/gone"));

  config_.train.branch_from = root_ + "/direct";
  EXPECT_NE(FailureOf("nothing", config_).what.find("nothing to train"), std::string::npos);
  config_.model.config.shape = Shape::Parse("L1-d8-a2x4-f2x7");
  EXPECT_NE(FailureOf("other", config_).what.find("another model: shape"), std::string::npos);
}

TEST_F(TrainTest, ARunMayStartFromGivenWeights) {
  const RunResult first = *Run("first", config_);
  config_.train.initial_weights = root_ + "/first";
  const RunResult second = *Run("second", config_);
  EXPECT_NE(second.weights_hash, first.weights_hash);
  // Everything but the weights is new.
  const RunMetrics metrics = ReadMetrics(root_ + "/second");
  EXPECT_EQ(metrics.steps.front().step, 1);
  EXPECT_LT(metrics.steps.front().loss, ReadMetrics(root_ + "/first").steps.front().loss);
  RunUntil(3, "pieces", config_);
  EXPECT_EQ(Run("pieces", config_)->weights_hash, second.weights_hash);
  config_.model.config.shape = Shape::Parse("L1-d8-a2x4-f2x7");
  EXPECT_NE(FailureOf("other", config_).what.find("another model"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ + "/other"));
  config_.train.branch_from = root_ + "/first";
  EXPECT_EQ(FailureOf("both", config_).what, "two beginnings are given");
}

TEST_F(TrainTest, WeightsAloneStartARunButDoNotContinueOne) {
  Run("first", config_);
  ImportRun(*OpenModel(root_ + "/first", callbacks_.note), root_ + "/imported");
  config_.model = ReadRunConfig(root_ + "/imported").model;
  config_.train.branch_from = root_ + "/imported";
  const ErrorParts parts = FailureOf("branch", config_);
  EXPECT_EQ(parts.what, "the checkpoint holds weights alone, so no run can go on from it");
  EXPECT_NE(parts.remedy.find("train.initial_weights"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ + "/branch"));
  // As the remedy says: new moments, and the weights where they were.
  config_.train.branch_from.clear();
  config_.train.initial_weights = root_ + "/imported";
  Run("tuned", config_);
  config_.train.initial_weights = root_ + "/first";
  Run("tuned-from-the-run", config_);
  EXPECT_EQ(FindResult(root_ + "/tuned")->weights_hash,
            FindResult(root_ + "/tuned-from-the-run")->weights_hash);
}

TEST_F(TrainTest, ABranchOnOtherDataReadsItFromTheBeginning) {
  config_.train.checkpoint_every = 4;
  Run("base", config_);
  WriteShard(root_ + "/data/train.bin", ByteTokenizer(), 25, "other");
  config_.train.branch_from = root_ + "/base/checkpoints/step-00000004";
  Run("branch", config_);
  EXPECT_TRUE(Noted("the training data is another"));
  const RunMetrics metrics = ReadMetrics(root_ + "/branch");
  EXPECT_EQ(metrics.steps.front().sequences, 4);
  EXPECT_EQ(PositionOf(5, config_.train, metrics).first, 0);
}

TEST_F(TrainTest, ASpikeRewindsToTheLastDueCheckpointAndPastTheData) {
  config_.train.tokens = 24 * 4 * 16;
  config_.train.checkpoint_every = 3;
  config_.optimizer.learning_rate = 1e-4;  // the loss stays where it is, but for its noise
  config_.train.spikes = {
      .z_score = 1.2, .window = 3, .action = SpikeAction::kRewind, .max_rewinds = 50};
  const RunResult whole = *Run("whole", config_);
  EXPECT_GT(whole.rewinds, 0);
  EXPECT_EQ(whole.rewinds, whole.spikes);
  EXPECT_TRUE(Noted("standard deviations above the last 3"));
  const RunMetrics metrics = ReadMetrics(root_ + "/whole");
  ASSERT_EQ(metrics.steps.size(), 24u);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(metrics.steps[i].step, int64_t(i) + 1);
  EXPECT_GT(metrics.steps.back().sequences, 24 * 4);  // some were passed over

  // Interrupted where no checkpoint is due, it rewinds to the same places. A start that rewinds to
  // behind where it began has computed the steps from there on.
  notes_.clear();
  for (const int64_t step : {4, 8, 11, 17}) RunUntil(step, "pieces", config_);
  const RunResult pieces = *Run("pieces", config_);
  EXPECT_EQ(pieces.weights_hash, whole.weights_hash);
  EXPECT_EQ(pieces.rewinds, whole.rewinds);
  std::vector<int64_t> expected = {0}, recorded;
  int undercut = 0;
  for (const std::string& note : notes_) {
    const bool rewind = note.starts_with("back to step ");
    if (!rewind && !note.starts_with("continuing from step ")) continue;
    const int64_t step = std::stoll(note.substr(note.find("step ") + 5));
    if (rewind && step >= expected.back()) continue;
    undercut += rewind ? 1 : 0;
    std::erase_if(expected, [step](int64_t other) { return other >= step; });
    expected.push_back(step);
  }
  EXPECT_GT(undercut, 0);
  const RunInfo info = ReadRunInfo(root_ + "/pieces");
  for (const RunStart& start : *info.starts) recorded.push_back(start.step);
  EXPECT_EQ(recorded, expected);

  config_.train.spikes.max_rewinds = 0;
  EXPECT_NE(FailureOf("limited", config_).what.find("spiked again"), std::string::npos);
  config_.train.spikes.action = SpikeAction::kNote;
  EXPECT_GT(Run("noted", config_)->spikes, 0);
  EXPECT_EQ(Run("noted", config_)->rewinds, 0);
}

// The weights stay as they were drawn, so the loss of a step tells which text it had.
TEST_F(TrainTest, PositionsAfterARewindAreThoseOfTheTextThatWasRead) {
  config_.train.tokens = 24 * 4 * 16;
  config_.train.checkpoint_every = 3;
  config_.optimizer.learning_rate_factors = PerRole::All(0.0);
  config_.train.spikes = {
      .z_score = 1.2, .window = 3, .action = SpikeAction::kRewind, .max_rewinds = 50};
  const RunResult result = *Run("run", config_);
  ASSERT_GT(result.rewinds, 0);
  const RunMetrics metrics = ReadMetrics(root_ + "/run");
  const TokenShard shard(root_ + "/data/train.bin");
  const TrainSamples samples(shard, 16, config_.train.seed);
  const auto ops = config_.system.MakeBackend();
  Model model(ReadRunConfig(root_ + "/run").model.config,
              {.purpose = Purpose::kTrain, .batch = 4, .length = 16});
  model.Allocate(*ops);
  model.params().Initialize(config_.train.seed);
  std::vector<int32_t> ids(4 * 16), targets(4 * 16);
  for (const StepMetrics& step : metrics.steps) {
    const StepPosition position = PositionOf(step.step, config_.train, metrics);
    EXPECT_EQ(position.first, (step.step - 1) * 4 + position.passed_over);
    for (int b = 0; b < 4; ++b) {
      samples.Fill(position.first + b, std::span(ids).subspan(size_t(b) * 16, 16),
                   std::span(targets).subspan(size_t(b) * 16, 16), {});
    }
    const LossSums sums = model.LossAndGradients({4, 16, ids, targets}, 1.0 / 64);
    EXPECT_NEAR(sums.cross_entropy / 64, step.loss, 1e-6) << "step " << step.step;
  }
  // A step to come lies behind all that was passed over.
  EXPECT_EQ(PositionOf(25, config_.train, metrics).first, metrics.steps.back().sequences);
  EXPECT_GT(PositionOf(25, config_.train, metrics).passed_over, 0);
}

TEST_F(TrainTest, EveryStartIsRecordedWithTheStepsItComputed) {
  config_.train.checkpoint_every = 3;
  RunUntil(2, "run", config_);
  fs::remove_all(root_ + "/run/checkpoints");  // as after a kill: begun anew
  RunUntil(2, "run", config_);
  RunUntil(5, "run", config_);
  const auto steps = [&] {
    const RunInfo info = ReadRunInfo(root_ + "/run");
    std::vector<int64_t> out;
    for (const RunStart& start : *info.starts) out.push_back(start.step);
    return out;
  };
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 2}));
  // Another build did the steps so far.
  RunInfo info = ReadRunInfo(root_ + "/run");
  EXPECT_EQ(info.starts->back().build, *info.build);
  EXPECT_EQ(info.starts->back().host, *info.host);
  EXPECT_EQ(info.starts->back().backend, info.backend);
  for (RunStart& start : *info.starts) start.build = "0123456789abcdef";
  WriteFileAtomically(InfoPath(root_ + "/run"), WriteFields(info).dump());
  RunUntil(6, "run", config_);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 2, 5}));
  // As after a kill: the checkpoint of step 6 is lost, so the steps behind 3 are done again.
  fs::remove_all(root_ + "/run/checkpoints/step-00000006");
  fs::remove_all(root_ + "/run/checkpoints/step-00000005");
  Run("run", config_);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 2, 3}));
  info = ReadRunInfo(root_ + "/run");
  EXPECT_EQ(info.starts->at(1).build, "0123456789abcdef");
  EXPECT_EQ(info.starts->at(2).build, *info.build);
}

TEST_F(TrainTest, AHandEditedRunFileIsNotContinued) {
  RunUntil(5, "run", config_);
  config_.optimizer.learning_rate = 0.02;
  // As if someone had edited both the recipe and the run directory.
  RunConfig edited = ReadRunConfig(root_ + "/run");
  edited.optimizer.learning_rate = 0.02;
  WriteFileAtomically(root_ + "/run/run.toml", ToToml(WriteFields(edited)));
  const ErrorParts parts = FailureOf("run", config_);
  EXPECT_NE(parts.what.find("optimizer.learning_rate (0.01, now 0.02)"), std::string::npos)
      << parts.what;
  EXPECT_NE(parts.where.find("step-00000005"), std::string::npos);
}

TEST_F(TrainTest, TwoProcessesCannotTrainInOneDirectory) {
  RunUntil(3, "run", config_);
  {
    const DirectoryLock other(root_ + "/run", "trains");
    EXPECT_EQ(FailureOf("run", config_).what, "another process trains in this directory");
  }
  EXPECT_EQ(Run("run", config_)->steps, 8);
}

TEST_F(TrainTest, WhatAKilledProcessLeftIsRemoved) {
  RunUntil(3, "run", config_);
  WriteFileAtomically(root_ + "/run/metrics.jsonl.tmp12345", "half a li");
  WriteFileAtomically(root_ + "/run/metrics.jsonl.tmpnotes", "mine");
  CreateDirectories(root_ + "/run/checkpoints/step-00000002.partial");
  Run("run", config_);
  EXPECT_FALSE(fs::exists(root_ + "/run/metrics.jsonl.tmp12345"));
  EXPECT_TRUE(fs::exists(root_ + "/run/metrics.jsonl.tmpnotes"));
  EXPECT_FALSE(fs::exists(root_ + "/run/checkpoints/step-00000002.partial"));
}

TEST_F(TrainTest, GradientNormsOfTheGroupsMakeUpTheGlobalOne) {
  Run("run", config_);
  for (const StepMetrics& step : ReadMetrics(root_ + "/run").steps) {
    double sum = 0;
    PerRole::VisitFields(*step.gradient_norms,
                         [&](const char*, double norm, const char*) { sum += norm * norm; });
    EXPECT_NEAR(std::sqrt(sum), step.gradient_norm, 1e-12);
    EXPECT_GT(step.gradient_norms->attention, 0);
    EXPECT_EQ(step.gradient_norms->qk_norm, 0);  // the model has none
  }
}

TEST_F(TrainTest, BudgetInTokensPerParameterDerivesTheSteps) {
  config_.train.tokens = 0;
  config_.train.tokens_per_parameter = 2;
  config_.model.config.vocabulary = 257;
  // 4 attention matrices of 8x8, 2 sub-MLPs of 3*8*6, norms 8*(1+2) + 8.
  const int64_t parameters = 4 * 64 + 2 * 144 + 24 + 8;
  EXPECT_EQ(config_.Steps(), (2 * parameters + 63) / 64);
}

TEST_F(TrainTest, MicroBatchesGiveTheSameRunButForRounding) {
  const double whole = Run("whole", config_)->validation_loss;
  for (const int micro_batch : {1, 3}) {
    RunConfig config = config_;
    config.train.micro_batch = micro_batch;
    const double loss = Run("micro" + std::to_string(micro_batch), config)->validation_loss;
    EXPECT_NEAR(loss / whole, 1.0, 1e-5);
  }
}

TEST(Overfitting, OneBatchIsLearntByHeart) {
  for (const Family family : {Family::kLlama, Family::kHourglass, Family::kOlmo2}) {
    const char* shape = family == Family::kHourglass ? "L2-d32-a2x16-f3x16" : "L2-d32-a2x16-f1x48";
    const auto ops = MakeReferenceBackend(DType::kF32);
    Model model(FamilyConfig(family, Shape::Parse(shape), 40), {.batch = 2, .length = 12});
    model.Allocate(*ops);
    model.params().Initialize(1);
    std::vector<int32_t> ids(24), targets(24);
    RandomStream random(4, "ids");
    for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(40));
    for (int32_t& id : targets) id = static_cast<int32_t>(random.NextBelow(40));
    OptimizerOptions options;
    options.weight_decay = 0;
    Optimizer optimizer(model.params(), options);
    const Batch batch{2, 12, ids, targets};
    const double first = model.Loss(batch).cross_entropy / 24;
    EXPECT_NEAR(first, std::log(40.0), 0.2);
    for (int step = 1; step <= 150; ++step) {
      ops->Zero(model.params().grads());
      model.LossAndGradients(batch, 1.0 / 24);
      optimizer.Step(*ops, model.params(),
                     {.update = step,
                      .learning_rate = 0.01,
                      .gradient_norm = MeasureGradients(*ops, model.params()).global});
    }
    EXPECT_LT(model.Loss(batch).cross_entropy / 24, 0.02) << EnumName(family);
  }
}

TEST(RunConfig, FamilyGivesDefaultsThatKeysOverride) {
  const char* text =
      "[model]\nfamily = \"olmo2\"\nshape = \"L2-d8-a2x4-f1x16\"\nrope_theta = 1e4\n";
  const RunConfig config = RunConfig::FromTree(ParseToml(text, "run.toml"));
  EXPECT_EQ(config.model.config.norm, NormPlacement::kPost);
  EXPECT_EQ(config.model.config.qk_norm, QkNorm::kFullWidth);
  EXPECT_EQ(config.model.config.rope_theta, 1e4);
  const RunConfig changed =
      RunConfig::FromTree(ParseToml(text, "run.toml"), {"model.family=llama", "train.batch=3"});
  EXPECT_EQ(changed.model.config.norm, NormPlacement::kPre);
  EXPECT_EQ(changed.train.batch, 3);
  EXPECT_THROW(RunConfig::FromTree(ParseToml("[train]\ntokes = 3\n", "run.toml")), Error);
}

}  // namespace
}  // namespace sandglass
