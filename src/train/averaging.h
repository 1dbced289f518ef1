// An exponential average of the weights over the updates of a run.
#pragma once

#include <cstdint>

#include "ops/backend.h"
#include "tensor/param_table.h"

namespace sandglass {

// After n updates with weights w_1 .. w_n the average is
//   sum of decay^(n-i) w_i / sum of decay^(n-i):
// an average of the updates alone, in which the initial weights have no share.
class WeightAverage {
 public:
  WeightAverage(const ParamTable& params, double decay);

  // Takes in the present weights as those of update `count` (from 1).
  void Add(Backend& ops, const ParamTable& params, int64_t count);

  // Laid out as the parameter slabs: [1, slab_elements].
  View values() const { return {bytes_.data(), dtype_, 1, elements_, elements_}; }

 private:
  double decay_;
  DType dtype_;
  int64_t elements_;
  AlignedBytes bytes_;
};

// Exchanges the weights of a model with their average for as long as it lives.
class AveragedWeights {
 public:
  AveragedWeights(ParamTable& params, WeightAverage& average);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void Exchange();

  ParamTable& params_;
  WeightAverage& average_;
};

}  // namespace sandglass
