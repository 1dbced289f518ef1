#include "model/gated_mlp.h"

#include <fmt/format.h>

#include "model/init.h"

namespace sandglass {

GatedMlp::GatedMlp(const ModelConfig& config, int layer, int index)
    : name_(fmt::format("layers.{}.ffn.{}", layer, index)),
      d_model_(config.shape.d_model),
      width_(config.shape.ffn[index]),
      init_(MatrixInit(config)),
      output_init_(ResidualOutputInit(config)),
      residual_(config, layer) {}

void GatedMlp::Declare(ParamTable& params) {
  residual_.Declare(params, name_ + ".norm");
  params.Declare(w_gate_up_, name_ + ".w_gate_up", ParamRole::kFfn, 2 * width_, d_model_, init_)
      .packed_rows = {width_, width_};
  params.Declare(w_down_, name_ + ".w_down", ParamRole::kFfn, d_model_, width_, output_init_);
}

void GatedMlp::Book(MemoryPlan& plan, const Capacity& capacity) {
  const bool trains = capacity.purpose == Purpose::kTrain;
  keeps_hidden_ = trains && capacity.recompute != Recompute::kCheap;
  const auto book = [&](View& view, int64_t cols, Lifetime lifetime) {
    plan.Book(view, capacity.tokens(), cols, capacity.activation_dtype(), lifetime);
  };
  plan.BeginScratchScope();
  residual_.Book(plan, capacity);
  book(gate_up_, 2 * width_, trains ? Lifetime::kSaved : Lifetime::kScratch);
  book(hidden_, width_, keeps_hidden_ ? Lifetime::kSaved : Lifetime::kScratch);
  if (trains) book(dhidden_, width_, Lifetime::kScratch);
}

void GatedMlp::Forward(const Pass& pass, View x) {
  const View gate_up = gate_up_.Top(pass.tokens());
  const View hidden = hidden_.Top(pass.tokens());

  const ConstView n = residual_.Enter(pass, x);
  pass.ops.Matmul(gate_up, n, w_gate_up_.operand, {.b = Transpose::kYes});
  pass.ops.SwiGlu(hidden, gate_up);
  residual_.Leave(pass, x, hidden, w_down_);
}

void GatedMlp::Backward(const Pass& pass, View dx) {
  const View gate_up = gate_up_.Top(pass.tokens());
  const View hidden = hidden_.Top(pass.tokens());
  const View dhidden = dhidden_.Top(pass.tokens());

  const ConstView doutput = residual_.LeaveBackward(pass, dx);
  pass.ops.Matmul(dhidden, doutput, w_down_.operand, {});
  const View dgate_up = gate_up;  // in place: the forward values are not needed any more
  pass.ops.SwiGluBackward(dgate_up, keeps_hidden_ ? View{} : hidden, dhidden, gate_up);
  pass.ops.Matmul(w_down_.grad, doutput, hidden, {.a = Transpose::kYes, .into = Into::kAccumulate});
  residual_.EnterBackward(pass, dx, dgate_up, w_gate_up_);
}

}  // namespace sandglass
