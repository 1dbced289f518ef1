// How a sub-layer reads from and writes to the residual stream. The norm placement lives here and
// nowhere else:
//
//   pre-norm:   x <- x + f(n) W_out^T,            n = scale * RMSNorm(x)
//   post-norm:  x <- x + RMSNorm(f(n) W_out^T),   n = x
#pragma once

#include <string>

#include "model/sub_layer.h"

namespace sandglass {

class ResidualNorm {
 public:
  // `layer` counts from 0.
  ResidualNorm(const ModelConfig& config, int layer);

  void Declare(ParamTable& params, const std::string& name);
  void Book(MemoryPlan& plan, const Capacity& capacity);

  // n [M, D], what the sub-layer reads. Remembers x for the backward pass.
  ConstView Enter(const Pass& pass, View x);
  // Adds the output projection of h [M, .] to the stream: w_out [D, .].
  void Leave(const Pass& pass, View x, ConstView h, const Param& w_out);

  // Gradient [M, D] of the output projection's result, from the gradient dx of the stream. Holds
  // until EnterBackward.
  ConstView LeaveBackward(const Pass& pass, View dx);
  // n again, as Enter returned it.
  ConstView Entered(const Pass& pass);
  // Sends the gradient of the input projection n W_in^T back into the stream's gradient dx and adds
  // to that of w_in: w_in [., D], dprojected [M, .].
  void EnterBackward(const Pass& pass, View dx, ConstView dprojected, Param& w_in);

 private:
  NormPlacement placement_;
  RmsNormSpec norm_;
  int64_t d_model_;
  bool keeps_input_ = false;
  bool keeps_normed_ = false;
  bool trains_ = false;
  bool rounds_ = false;  // activations are of a narrower type than the stream

  Param gain_;        // [1, D]
  View input_;        // [M, D] x before the sub-layer (where it is read again)
  View normed_;       // [M, D] n (pre-norm)
  View projected_;    // [M, D] f(n) W_out^T (post-norm)
  View inverse_rms_;  // [M, 1]
  View gradient_;     // [M, D] of normed_, of projected_, or dx rounded
};

}  // namespace sandglass
