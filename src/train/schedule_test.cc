#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace sandglass {
namespace {

OptimizerOptions WithSchedule(Schedule schedule) {
  OptimizerOptions options;
  options.learning_rate = 1.0;
  options.min_learning_rate = 0.2;
  options.warmup_steps = 4;
  options.schedule = schedule;
  return options;
}

TEST(LearningRate, WarmsUpThenFollowsTheCosine) {
  const OptimizerOptions options = WithSchedule(Schedule::kCosine);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 1, 20), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 4, 20), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 12, 20), 0.6);
  EXPECT_NEAR(LearningRateAt(options, 20, 20), 0.2, 1e-15);
  EXPECT_DOUBLE_EQ(LearningRateAt({.learning_rate = 1.0}, 10, 100), 1.0);  // a tenth warms up
  EXPECT_NEAR(LearningRateAt({.learning_rate = 1.0}, 100, 100), 0.1, 1e-15);
}

TEST(LearningRate, EveryStepOfEveryScheduleHasItsExactValue) {
  constexpr int64_t kSteps = 50;
  for (int64_t step = 5; step <= kSteps; ++step) {
    const double progress = static_cast<double>(step - 4) / 46;
    const double cosine = 0.2 + 0.8 * (1 + std::cos(std::numbers::pi * progress)) / 2;
    EXPECT_NEAR(LearningRateAt(WithSchedule(Schedule::kCosine), step, kSteps), cosine, 1e-15);
    EXPECT_NEAR(LearningRateAt(WithSchedule(Schedule::kLinear), step, kSteps), 1 - 0.8 * progress,
                1e-15);
    EXPECT_EQ(LearningRateAt(WithSchedule(Schedule::kConstant), step, kSteps), 1.0);
    // The last fifth of the steps cools down.
    const double cooled = step <= 40 ? 0 : static_cast<double>(step - 40) / 10;
    OptimizerOptions wsd = WithSchedule(Schedule::kWsd);
    EXPECT_NEAR(LearningRateAt(wsd, step, kSteps), 1 - 0.8 * cooled, 1e-15);
    wsd.cooldown = CoolDown::kSqrt;
    EXPECT_NEAR(LearningRateAt(wsd, step, kSteps), 1 - 0.8 * std::sqrt(cooled), 1e-15);
    wsd.cooldown = CoolDown::kLinear;
    wsd.cooldown_steps = 3;
    const double last = step <= 47 ? 0 : static_cast<double>(step - 47) / 3;
    EXPECT_NEAR(LearningRateAt(wsd, step, kSteps), 1 - 0.8 * last, 1e-15);
  }
}

TEST(LearningRate, WsdDependsOnTheBudgetOnlyInTheCoolDown) {
  OptimizerOptions options = WithSchedule(Schedule::kWsd);
  options.cooldown_steps = 10;
  for (int64_t step = 1; step <= 30; ++step) {
    EXPECT_EQ(LearningRateAt(options, step, 40), LearningRateAt(options, step, 1000)) << step;
  }
}

TEST(BatchWarmup, GrowsEvenlyAndCountsEverySequence) {
  TrainOptions options{.batch = 12, .batch_start = 2, .batch_warmup_steps = 4, .length = 8};
  const int expected[] = {2, 4, 7, 9, 12, 12};
  int64_t sequences = 0;
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(BatchAt(options, step), expected[step - 1]) << step;
    EXPECT_EQ(SequencesBefore(options, step), sequences) << step;
    sequences += expected[step - 1];
  }
  // 22 sequences of 8 tokens in the warm-up, then 12 a step.
  EXPECT_EQ(StepsFor(options, 1), 1);
  EXPECT_EQ(StepsFor(options, 16), 1);
  EXPECT_EQ(StepsFor(options, 17), 2);
  EXPECT_EQ(StepsFor(options, 22 * 8), 4);
  EXPECT_EQ(StepsFor(options, 22 * 8 + 1), 5);
  EXPECT_EQ(StepsFor(options, (22 + 24) * 8), 6);
  for (int64_t steps = 1; steps < 9; ++steps) {
    EXPECT_EQ(StepsFor(options, 8.0 * static_cast<double>(SequencesBefore(options, steps + 1))),
              steps);
  }
}

}  // namespace
}  // namespace sandglass
