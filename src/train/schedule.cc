#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sandglass {
namespace {

// Share of the way from the peak to the minimum that is left, from the share of the steps done.
double CosineLeft(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }

}  // namespace

double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps) {
  const double peak = options.learning_rate;
  const double minimum = options.min_learning_rate.value_or(peak / 10);
  const int64_t warmup = options.warmup_steps.value_or(std::min<int64_t>(100, steps / 10));
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);

  // Progress through the steps after `begin`.
  const auto progress_from = [&](int64_t begin) {
    const auto whole = static_cast<double>(std::max<int64_t>(1, steps - begin));
    return std::clamp(static_cast<double>(step - begin) / whole, 0.0, 1.0);
  };
  double left = 1.0;
  switch (options.schedule) {
    case Schedule::kCosine:
      left = CosineLeft(progress_from(warmup));
      break;
    case Schedule::kLinear:
      left = 1.0 - progress_from(warmup);
      break;
    case Schedule::kWsd: {
      const double progress = progress_from(steps - options.cooldown_steps.value_or(steps / 5));
      left = 1.0 - (options.cooldown == CoolDown::kSqrt ? std::sqrt(progress) : progress);
      break;
    }
    case Schedule::kConstant:
      break;
  }
  return minimum + (peak - minimum) * left;
}

int BatchAt(const TrainOptions& options, int64_t step) {
  if (step > options.batch_warmup_steps) return options.batch;
  const int64_t growth = options.batch - options.batch_start;
  return options.batch_start + static_cast<int>(growth * (step - 1) / options.batch_warmup_steps);
}

int64_t SequencesBefore(const TrainOptions& options, int64_t step) {
  const int64_t before = step - 1;
  const int64_t warmup = std::min(before, options.batch_warmup_steps);
  int64_t sequences = (before - warmup) * options.batch;
  for (int64_t s = 1; s <= warmup; ++s) sequences += BatchAt(options, s);
  return sequences;
}

int64_t StepsFor(const TrainOptions& options, double tokens) {
  double sequences = std::ceil(tokens / options.length);
  int64_t steps = 0;
  while (steps < options.batch_warmup_steps && sequences > 0) {
    sequences -= BatchAt(options, ++steps);
  }
  if (sequences <= 0) return steps;
  return steps + static_cast<int64_t>(std::ceil(sequences / options.batch));
}

}  // namespace sandglass
