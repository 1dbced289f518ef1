// What depends on the step alone: the learning rate, the size of the batch and with it the place in
// the data.
#pragma once

#include <cstdint>

#include "train/options.h"

namespace sandglass {

// Learning rate of step `step` (from 1) of `steps`: a linear warm-up to the peak, then as
// options.schedule says. The last step of all but the constant schedule has the minimum.
double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps);

// Sequences of step `step` (from 1): grows by equal amounts, rounded down, from batch_start at the
// first step to batch at step batch_warmup_steps + 1.
int BatchAt(const TrainOptions& options, int64_t step);

// Sequences of all steps before `step` (from 1): the position of its first one in the data, unless
// a rewind has skipped some (TrainState::sequences).
int64_t SequencesBefore(const TrainOptions& options, int64_t step);

// The fewest steps that train on `tokens` tokens.
int64_t StepsFor(const TrainOptions& options, double tokens);

}  // namespace sandglass
