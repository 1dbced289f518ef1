// One sub-MLP: x <- x + W_down ( silu(W_gate n) * (W_up n) ). A conventional FFN is one of these in
// a layer, an hourglass is K narrow ones in a row.
#pragma once

#include <string>

#include "model/residual_norm.h"
#include "model/sub_layer.h"

namespace sandglass {

class GatedMlp final : public SubLayer {
 public:
  // Sub-MLP `index` of layer `layer`, both from 0; its width is config.shape.ffn[index].
  GatedMlp(const ModelConfig& config, int layer, int index);

  const std::string& name() const override { return name_; }
  void Declare(ParamTable& params) override;
  void Book(MemoryPlan& plan, const Capacity& capacity) override;
  void Forward(const Pass& pass, View x) override;
  void Backward(const Pass& pass, View dx) override;

 private:
  std::string name_;
  int64_t d_model_;
  int64_t width_;  // F
  ParamInit init_;
  ParamInit output_init_;
  bool keeps_hidden_ = false;

  ResidualNorm residual_;
  Param w_gate_up_;  // [2F, D], W_gate above W_up
  Param w_down_;     // [D, F]
  View gate_up_;     // [M, 2F]
  View hidden_;      // [M, F]
  View dhidden_;     // [M, F]
};

}  // namespace sandglass
