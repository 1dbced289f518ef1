#include "train/averaging.h"

#include <algorithm>
#include <cmath>

namespace sandglass {

WeightAverage::WeightAverage(const ParamTable& params, double decay)
    : decay_(decay),
      dtype_(params.dtype()),
      elements_(params.slab_elements()),
      bytes_(elements_ * SizeOf(dtype_)) {}

void WeightAverage::Add(Backend& ops, const ParamTable& params, int64_t count) {
  SANDGLASS_CHECK(count >= 1, "updates count from one");
  // The share of the newest weights: 1 / (1 + decay + ... + decay^(count-1)).
  const double share = (1.0 - decay_) / (1.0 - std::pow(decay_, static_cast<double>(count)));
  ops.Blend(values(), params.values(), {.y = 1.0 - share, .x = share});
}

AveragedWeights::AveragedWeights(ParamTable& params, WeightAverage& average)
    : params_(params), average_(average) {
  Exchange();
}

AveragedWeights::~AveragedWeights() { Exchange(); }

void AveragedWeights::Exchange() {
  const View weights = params_.values();
  const int64_t bytes = weights.elements() * SizeOf(weights.dtype);
  std::swap_ranges(weights.data, weights.data + bytes, average_.values().data);
}

}  // namespace sandglass
