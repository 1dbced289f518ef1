// The optimizer of a model: AdamW, or Muon for the matrices it is meant for and AdamW for the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "tensor/param_table.h"
#include "train/adamw.h"
#include "train/muon.h"
#include "train/options.h"

namespace sandglass {

// Norms of the gradients of each kind of parameter, and of all together.
struct GradientNorms {
  PerRole by_role;
  double global = 0.0;
};

GradientNorms MeasureGradients(Backend& ops, const ParamTable& params);

// What one update depends on beside the gradients.
struct OptimizerStep {
  int64_t update = 1;          // counts the updates that were made, from 1; skipped steps do not
  double learning_rate = 0.0;  // of the schedule
  double gradient_norm = 0.0;  // of all gradients; beyond clip_norm they are scaled down to it
};

// A part of the optimizer's state that belongs to one parameter.
struct OptimizerTensor {
  std::string name;  // "m/layers.0.ffn.0.w_down"
  const ParamSpec* spec;
  View view;  // [rows, cols] of the parameter
};

class Optimizer {
 public:
  // `params` must be declared completely and outlive the object.
  Optimizer(const ParamTable& params, const OptimizerOptions& options);

  // Updates the values; gradients are only read.
  void Step(Backend& ops, ParamTable& params, const OptimizerStep& step);

  // Everything that a checkpoint must hold, in the order of the table.
  std::vector<OptimizerTensor> State() const;

 private:
  OptimizerOptions options_;
  AdamW adamw_;
  std::optional<Muon> muon_;
};

// Bytes of state that Optimizer keeps for the parameters, scratch memory included.
int64_t OptimizerBytes(const ParamTable& params, const OptimizerOptions& options, DType dtype);

}  // namespace sandglass
