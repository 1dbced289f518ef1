#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

namespace sandglass {
namespace {

bool UsesMuon(const ParamSpec& spec, const OptimizerOptions& options) {
  return options.kind == OptimizerKind::kMuon &&
         std::ranges::find(options.muon.roles, spec.role) != options.muon.roles.end();
}

// The parameters that Muon updates, or those that AdamW does.
std::vector<const ParamSpec*> Select(const ParamTable& params, const OptimizerOptions& options,
                                     OptimizerKind kind) {
  std::vector<const ParamSpec*> selected;
  for (const ParamSpec& spec : params.specs()) {
    if (UsesMuon(spec, options) == (kind == OptimizerKind::kMuon)) selected.push_back(&spec);
  }
  return selected;
}

}  // namespace

GradientNorms MeasureGradients(Backend& ops, const ParamTable& params) {
  PerRole squares;
  for (const ParamSpec& spec : params.specs()) {
    squares[spec.role] += ops.SquaredNorm(spec.param->grad);
  }
  GradientNorms norms;
  double sum = 0.0;
  for (int role = 0; role < kParamRoles; ++role) {
    const double square = squares[static_cast<ParamRole>(role)];
    norms.by_role[static_cast<ParamRole>(role)] = std::sqrt(square);
    sum += square;
  }
  norms.global = std::sqrt(sum);
  return norms;
}

Optimizer::Optimizer(const ParamTable& params, const OptimizerOptions& options)
    : options_(options), adamw_(params, options, Select(params, options, OptimizerKind::kAdamW)) {
  if (options.kind == OptimizerKind::kMuon) {
    muon_.emplace(params, options, Select(params, options, OptimizerKind::kMuon));
  }
}

void Optimizer::Step(Backend& ops, ParamTable& params, const OptimizerStep& step) {
  double grad_scale = 1.0;
  if (options_.clip_norm > 0 && step.gradient_norm > options_.clip_norm) {
    grad_scale = options_.clip_norm / step.gradient_norm;
  }
  adamw_.Step(
      ops, params,
      {.update = step.update, .learning_rate = step.learning_rate, .grad_scale = grad_scale});
  if (!muon_) return;
  // Muon's peak has the same schedule.
  const double share = step.learning_rate / options_.learning_rate;
  muon_->Step(
      ops, {.learning_rate = options_.muon.learning_rate.value_or(options_.learning_rate) * share,
            .grad_scale = grad_scale});
}

std::vector<OptimizerTensor> Optimizer::State() const {
  std::vector<OptimizerTensor> state;
  const auto add = [&](const char* prefix, const StateSlab& slab) {
    for (size_t i = 0; i < slab.specs().size(); ++i) {
      const ParamSpec* const spec = slab.specs()[i];
      state.push_back({prefix + spec->name, spec, slab.Of(i)});
    }
  };
  add("m/", adamw_.first_moment());
  add("v/", adamw_.second_moment());
  if (muon_) add("momentum/", muon_->momentum());
  return state;
}

int64_t OptimizerBytes(const ParamTable& params, const OptimizerOptions& options, DType dtype) {
  const auto adamw = Select(params, options, OptimizerKind::kAdamW);
  const auto muon = Select(params, options, OptimizerKind::kMuon);
  return (2 * StateSlab::Elements(adamw) + StateSlab::Elements(muon) +
          Muon::ScratchElements(muon)) *
         SizeOf(dtype);
}

}  // namespace sandglass
