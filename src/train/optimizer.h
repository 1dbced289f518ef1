// AdamW over the slabs of a parameter table.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"
#include "tensor/param_table.h"
#include "train/options.h"

namespace sandglass {

// Learning rate of step `step` (from 1) of `steps`: linear warm-up to the peak, then cosine to the
// minimum, which the last step has.
double LearningRateAt(const OptimizerOptions& options, int64_t step, int64_t steps);

class AdamW {
 public:
  AdamW(const ParamTable& params, const OptimizerOptions& options);

  // Global norm of the gradients.
  static double GradientNorm(Backend& ops, const ParamTable& params);
  // Step `step` (from 1). Gradients of a global norm beyond the limit are scaled down to it.
  void Step(Backend& ops, ParamTable& params, int64_t step, double learning_rate,
            double gradient_norm);

  // The moments, laid out as the parameter slabs: [1, slab_elements].
  View first_moment() const;
  View second_moment() const;

 private:
  // A stretch of the slabs with one weight decay.
  struct Range {
    int64_t begin;
    int64_t count;
    double weight_decay;
  };

  OptimizerOptions options_;
  DType dtype_;
  int64_t elements_;
  std::vector<Range> ranges_;
  AlignedBytes first_moment_;
  AlignedBytes second_moment_;
};

}  // namespace sandglass
