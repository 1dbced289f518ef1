#include "train/adamw.h"

#include <cmath>
#include <utility>

namespace sandglass {

AdamW::AdamW(const ParamTable& params, const OptimizerOptions& options,
             std::vector<const ParamSpec*> specs)
    : options_(options),
      first_moment_(specs, params.dtype()),
      second_moment_(std::move(specs), params.dtype()) {
  for (size_t i = 0; i < first_moment_.specs().size(); ++i) {
    const ParamSpec& spec = *first_moment_.specs()[i];
    const Range range{.begin = spec.offset,
                      .state_begin = first_moment_.offset(i),
                      .count = ParamTable::Padded(spec.elements()),
                      .weight_decay = options.WeightDecayOf(spec.role),
                      .learning_rate_factor = options.learning_rate_factors[spec.role]};
    Range* const last = ranges_.empty() ? nullptr : &ranges_.back();
    if (last != nullptr && last->begin + last->count == range.begin &&
        last->weight_decay == range.weight_decay &&
        last->learning_rate_factor == range.learning_rate_factor) {
      last->count += range.count;
    } else {
      ranges_.push_back(range);
    }
  }
}

void AdamW::Step(Backend& ops, ParamTable& params, const AdamWStep& step) {
  const auto update = static_cast<double>(step.update);
  AdamWSpec spec{.beta1 = options_.beta1,
                 .beta2 = options_.beta2,
                 .epsilon = options_.epsilon,
                 .correction1 = 1.0 - std::pow(options_.beta1, update),
                 .correction2 = 1.0 - std::pow(options_.beta2, update),
                 .grad_scale = step.grad_scale};
  for (const Range& range : ranges_) {
    spec.learning_rate = step.learning_rate * range.learning_rate_factor;
    spec.weight_decay = range.weight_decay;
    const auto part = [&](View slab) { return slab.Columns(range.begin, range.count); };
    const auto state = [&](const StateSlab& slab) {
      return slab.values().Columns(range.state_begin, range.count);
    };
    ops.AdamW(part(params.values()), state(first_moment_), state(second_moment_),
              part(params.grads()), spec);
  }
}

}  // namespace sandglass
