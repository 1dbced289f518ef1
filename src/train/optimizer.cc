#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sandglass {

double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps) {
  const double peak = options.learning_rate;
  const double minimum = options.min_learning_rate.value_or(peak / 10);
  const int64_t warmup = options.warmup_steps.value_or(std::min<int64_t>(100, steps / 10));
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  const double progress = static_cast<double>(step - warmup) /
                          static_cast<double>(std::max<int64_t>(1, steps - warmup));
  return minimum +
         (peak - minimum) * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress)));
}

AdamW::AdamW(const ParamTable& params, const OptimizerOptions& options)
    : options_(options),
      dtype_(params.dtype()),
      elements_(params.slab_elements()),
      first_moment_(elements_ * SizeOf(dtype_)),
      second_moment_(elements_ * SizeOf(dtype_)) {
  // Padding between parameters stays zero under AdamW, so ranges may run across it.
  const std::vector<ParamSpec>& specs = params.specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool decays = std::ranges::find(options.decay, specs[i].role) != options.decay.end();
    const double weight_decay = decays ? options.weight_decay : 0.0;
    const int64_t end = i + 1 < specs.size() ? specs[i + 1].offset : elements_;
    if (!ranges_.empty() && ranges_.back().weight_decay == weight_decay) {
      ranges_.back().count = end - ranges_.back().begin;
    } else {
      ranges_.push_back({specs[i].offset, end - specs[i].offset, weight_decay});
    }
  }
}

double AdamW::GradientNorm(Backend& ops, const ParamTable& params) {
  return std::sqrt(ops.SquaredNorm(params.grads()));
}

void AdamW::Step(Backend& ops, ParamTable& params, int64_t step, double learning_rate,
                 double gradient_norm) {
  AdamWSpec spec{.learning_rate = learning_rate,
                 .beta1 = options_.beta1,
                 .beta2 = options_.beta2,
                 .epsilon = options_.epsilon,
                 .correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(step)),
                 .correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(step))};
  if (options_.clip_norm > 0 && gradient_norm > options_.clip_norm) {
    spec.grad_scale = options_.clip_norm / gradient_norm;
  }
  for (const Range& range : ranges_) {
    spec.weight_decay = range.weight_decay;
    const auto part = [&](View slab) { return slab.Columns(range.begin, range.count); };
    ops.AdamW(part(params.values()), part(first_moment()), part(second_moment()),
              part(params.grads()), spec);
  }
}

View AdamW::first_moment() const { return {first_moment_.data(), dtype_, 1, elements_, elements_}; }

View AdamW::second_moment() const {
  return {second_moment_.data(), dtype_, 1, elements_, elements_};
}

}  // namespace sandglass
