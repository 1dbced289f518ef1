// AdamW over some of the parameters of a table.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"
#include "train/options.h"
#include "train/state_slab.h"

namespace sandglass {

struct AdamWStep {
  int64_t update = 1;  // for the bias correction of the moments, from 1
  double learning_rate = 0.0;
  double grad_scale = 1.0;
};

class AdamW {
 public:
  AdamW(const ParamTable& params, const OptimizerOptions& options,
        std::vector<const ParamSpec*> specs);

  void Step(Backend& ops, ParamTable& params, const AdamWStep& step);

  const StateSlab& first_moment() const { return first_moment_; }
  const StateSlab& second_moment() const { return second_moment_; }

 private:
  // A stretch of the slabs in which everything is updated alike. Padding between parameters stays
  // zero, so a stretch may run across it.
  struct Range {
    int64_t begin;        // in the table's slabs
    int64_t state_begin;  // in the moments
    int64_t count;
    double weight_decay;
    double learning_rate_factor;
  };

  OptimizerOptions options_;
  std::vector<Range> ranges_;
  StateSlab first_moment_;
  StateSlab second_moment_;
};

}  // namespace sandglass
