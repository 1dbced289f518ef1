#include "model/residual_norm.h"

#include <cmath>

namespace sandglass {

ResidualNorm::ResidualNorm(const ModelConfig& config, int layer)
    : placement_(config.norm), d_model_(config.shape.d_model) {
  norm_.epsilon = config.norm_epsilon;
  if (config.depth_scaled_norm) norm_.scale = 1.0 / std::sqrt(layer + 1.0);
}

void ResidualNorm::Declare(ParamTable& params, const std::string& name) {
  params.Declare(gain_, name, ParamRole::kNorm, 1, d_model_, {ParamInit::Kind::kOnes});
}

void ResidualNorm::Book(MemoryPlan& plan, const Capacity& capacity) {
  trains_ = capacity.purpose == Purpose::kTrain;
  keeps_normed_ = capacity.recompute != Recompute::kCheap;
  rounds_ = capacity.rounds_activations();
  const auto book = [&](View& view, int64_t cols, Lifetime lifetime) {
    plan.Book(view, capacity.tokens(), cols, capacity.activation_dtype(), lifetime);
  };
  const Lifetime kept = trains_ ? Lifetime::kSaved : Lifetime::kScratch;
  keeps_input_ = trains_ || (rounds_ && placement_ == NormPlacement::kPost);
  if (keeps_input_) book(input_, d_model_, kept);
  plan.Book(inverse_rms_, capacity.tokens(), 1, capacity.dtype, kept);
  if (placement_ == NormPlacement::kPre) {
    book(normed_, d_model_, keeps_normed_ ? kept : Lifetime::kScratch);
  } else {
    book(projected_, d_model_, kept);
  }
  if (trains_) book(gradient_, d_model_, Lifetime::kScratch);
}

ConstView ResidualNorm::Enter(const Pass& pass, View x) {
  const int64_t m = pass.tokens();
  if (keeps_input_) pass.ops.Copy(input_.Top(m), x);
  if (placement_ == NormPlacement::kPost) return keeps_input_ ? input_.Top(m) : x;
  pass.ops.RmsNorm(normed_.Top(m), inverse_rms_.Top(m), x, gain_.value, norm_);
  return normed_.Top(m);
}

void ResidualNorm::Leave(const Pass& pass, View x, ConstView h, const Param& w_out) {
  if (placement_ == NormPlacement::kPre) {
    pass.ops.Matmul(x, h, w_out.operand, {.b = Transpose::kYes, .into = Into::kAccumulate});
    return;
  }
  const int64_t m = pass.tokens();
  RmsNormSpec add_norm = norm_;
  add_norm.into = Into::kAccumulate;
  pass.ops.Matmul(projected_.Top(m), h, w_out.operand, {.b = Transpose::kYes});
  pass.ops.RmsNorm(x, inverse_rms_.Top(m), projected_.Top(m), gain_.value, add_norm);
}

ConstView ResidualNorm::LeaveBackward(const Pass& pass, View dx) {
  const int64_t m = pass.tokens();
  if (placement_ == NormPlacement::kPre) {
    if (!rounds_) return dx;
    pass.ops.Copy(gradient_.Top(m), dx);
    return gradient_.Top(m);
  }
  pass.ops.RmsNormBackward(gradient_.Top(m), gain_.grad, dx, projected_.Top(m), inverse_rms_.Top(m),
                           gain_.value, norm_);
  return gradient_.Top(m);
}

ConstView ResidualNorm::Entered(const Pass& pass) {
  const int64_t m = pass.tokens();
  if (placement_ == NormPlacement::kPost) return input_.Top(m);
  if (!keeps_normed_) {
    pass.ops.RmsNorm(normed_.Top(m), inverse_rms_.Top(m), input_.Top(m), gain_.value, norm_);
  }
  return normed_.Top(m);
}

void ResidualNorm::EnterBackward(const Pass& pass, View dx, ConstView dprojected, Param& w_in) {
  pass.ops.Matmul(w_in.grad, dprojected, Entered(pass),
                  {.a = Transpose::kYes, .into = Into::kAccumulate});
  if (placement_ == NormPlacement::kPost) {
    pass.ops.Matmul(dx, dprojected, w_in.operand, {.into = Into::kAccumulate});
    return;
  }
  const int64_t m = pass.tokens();
  RmsNormSpec add_gradient = norm_;
  add_gradient.into = Into::kAccumulate;
  pass.ops.Matmul(gradient_.Top(m), dprojected, w_in.operand, {});
  pass.ops.RmsNormBackward(dx, gain_.grad, gradient_.Top(m), input_.Top(m), inverse_rms_.Top(m),
                           gain_.value, add_gradient);
}

}  // namespace sandglass
