// What goes wrong in other tools and must not here: docs/user-cases.md lists the cases with the
// tests that show them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <set>

#include "data/samples.h"
#include "train/checkpoint.h"
#include "train/schedule.h"
#include "train/testing.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

using UserCases = TrainTest;

TEST(Means, AreOverTokensNotOverBatches) {
  LossSums sums;
  sums += {.cross_entropy = 2, .tokens = 1};
  sums += {.cross_entropy = 90, .tokens = 9};
  EXPECT_DOUBLE_EQ(sums.cross_entropy / static_cast<double>(sums.tokens), 9.2);
}

// In double on the reference backend.
TEST(Means, GradientsOfTwoDocumentsAreTheSameInOneBatchAndInTwo) {
  // Documents of 11 and 101 scored tokens: a mean of means would weigh them alike.
  constexpr int kLength = 102;
  std::vector<int32_t> ids(2 * kLength), targets(2 * kLength, kIgnoredTarget);
  RandomStream random(4, "ids");
  for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(50));
  for (int t = 0; t < 11; ++t) targets[t] = ids[t + 1];
  for (int t = 0; t < 101; ++t) targets[kLength + t] = ids[kLength + t + 1];
  const auto ops = MakeReferenceBackend(DType::kF64);
  std::vector<double> gradients[2];
  for (const int micro_batch : {1, 2}) {
    Model model(FamilyConfig(Family::kLlama, Shape::Parse("L1-d8-a2x4-f1x12"), 50),
                {.batch = micro_batch, .length = kLength, .dtype = DType::kF64});
    model.Allocate(*ops);
    model.params().Initialize(1);
    for (int first = 0; first < 2; first += micro_batch) {
      const size_t begin = size_t(first) * kLength, count = size_t(micro_batch) * kLength;
      model.LossAndGradients({micro_batch, kLength, std::span(ids).subspan(begin, count),
                              std::span(targets).subspan(begin, count)},
                             1.0 / 112);
    }
    const double* grads = model.params().grads().Row<double>();
    gradients[micro_batch - 1].assign(grads, grads + model.params().slab_elements());
  }
  double difference = 0, norm = 0;
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    difference += std::pow(gradients[0][i] - gradients[1][i], 2);
    norm += std::pow(gradients[0][i], 2);
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(difference / norm), 1e-12);
}

TEST_F(UserCases, EveryEpochCoversAllSamplesOnceInTheSameOrderHoweverTheRunIsCut) {
  WriteShard(root_ + "/data/train.bin", ByteTokenizer(), 4, "train");  // 10 samples of 16 tokens
  config_.train.batch = 1;
  config_.train.tokens = 30 * 16;
  Run("whole", config_);
  RunUntil(9, "pieces", config_);
  RunUntil(23, "pieces", config_);  // in the third epoch
  Run("pieces", config_);
  const RunMetrics whole = ReadMetrics(root_ + "/whole");
  const RunMetrics pieces = ReadMetrics(root_ + "/pieces");
  ASSERT_EQ(pieces.steps.size(), 30u);
  const TokenShard shard(root_ + "/data/train.bin");
  const TrainSamples samples(shard, 16, config_.train.seed);
  ASSERT_EQ(samples.per_epoch(), 10);
  std::vector<std::set<int64_t>> seen(3);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(pieces.steps[i].loss, whole.steps[i].loss) << "step " << i + 1;
    const SampleRef sample = samples.At(*pieces.steps[i].sequences - 1);
    seen[i / 10].insert(sample.sample);
  }
  for (const std::set<int64_t>& epoch : seen) EXPECT_EQ(epoch.size(), 10u);
}

TEST_F(UserCases, TenStepsAreFiveStepsAKillAndFiveSteps) {
  // Everything that is state takes part.
  config_.train.tokens = 10 * 4 * 16;
  config_.train.checkpoint_every = 5;
  config_.train.average_decay = 0.9;
  config_.train.spikes = {.z_score = 2, .window = 3};
  config_.optimizer.kind = OptimizerKind::kMuon;
  config_.system.background_saves = false;
  const pid_t child = ::fork();
  if (child == 0) {
    TrainCallbacks callbacks = callbacks_;
    callbacks.step = [](const StepMetrics& metrics) {
      if (metrics.step == 7) ::kill(::getpid(), SIGKILL);
    };
    Train(config_, root_ + "/killed", ExistingRun::kContinue, callbacks);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RunResult whole = *Run("whole", config_);
  const RunResult killed = *Run("killed", config_);
  EXPECT_TRUE(Noted("continuing from step 5 of 10"));
  EXPECT_EQ(killed.weights_hash, whole.weights_hash);
  EXPECT_EQ(killed.validation_loss, whole.validation_loss);
  EXPECT_EQ(killed.average_validation_loss, whole.average_validation_loss);
  const RunMetrics a = ReadMetrics(root_ + "/killed"), b = ReadMetrics(root_ + "/whole");
  ASSERT_EQ(a.steps.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm);
    EXPECT_EQ(a.steps[i].sequences, b.steps[i].sequences);
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "average.safetensors"}) {
    const std::string path = std::string("/checkpoints/step-00000010/") + file;
    EXPECT_EQ(ReadFile(root_ + "/killed" + path), ReadFile(root_ + "/whole" + path)) << file;
  }
}

TEST_F(UserCases, TheLearningRateAfterAResumeIsThatOfTheSchedule) {
  for (const Schedule schedule : {Schedule::kCosine, Schedule::kLinear, Schedule::kWsd}) {
    config_.optimizer.schedule = schedule;
    config_.optimizer.warmup_steps = 3;
    const std::string name = EnumName(schedule);
    RunUntil(2, name, config_);  // inside the warm-up
    RunUntil(6, name, config_);
    Run(name, config_);
    const RunMetrics metrics = ReadMetrics(root_ + "/" + name);
    ASSERT_EQ(metrics.steps.size(), 8u);
    for (const StepMetrics& step : metrics.steps) {
      EXPECT_EQ(step.learning_rate, LearningRateAt(config_.optimizer, step.step, 8))
          << name << ", step " << step.step;
    }
  }
}

TEST_F(UserCases, AnotherNumberOfThreadsChangesNoBit) {
  config_.system.products = Products::kOwn;
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    const std::string name = EnumName(precision);
    SCOPED_TRACE(name);
    config_.train.precision = precision;
    config_.system.threads = 1;
    const RunResult whole_result = *Run("whole-" + name, config_);
    RunUntil(4, "pieces-" + name, config_);
    config_.system.threads = 3;
    EXPECT_EQ(Run("pieces-" + name, config_)->weights_hash, whole_result.weights_hash);
    const RunMetrics whole = ReadMetrics(root_ + "/whole-" + name);
    const RunMetrics pieces = ReadMetrics(root_ + "/pieces-" + name);
    ASSERT_EQ(pieces.steps.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(pieces.steps[i].sequences, whole.steps[i].sequences);
      EXPECT_EQ(pieces.steps[i].loss, whole.steps[i].loss);
    }
  }
}

TEST(RunFiles, StepsComeFromTheBudgetAndMistakesAreNamed) {
  const auto read = [](const std::string& train) {
    return RunConfig::FromTree(ParseToml("[train]\n" + train, "run.toml"));
  };
  EXPECT_EQ(read("tokens = 18e9\nbatch = 1024\nlength = 4096\n").Steps(), 4292);
  const ErrorParts typo = FailureOf([&] { read("tokes = 18e9\n"); });
  EXPECT_EQ(typo.what, "unknown key \"tokes\"");
  EXPECT_EQ(typo.where, "run.toml:2, train.tokes");
  EXPECT_EQ(typo.remedy, "did you mean \"tokens\"?");
  EXPECT_NE(FailureOf([&] { read("eval_every = 0.914\n"); }).what.find("0.914"), std::string::npos);
}

}  // namespace
}  // namespace sandglass
