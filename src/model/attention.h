// Causal self-attention with grouped key-value heads: x <- x + W_o Attention(q, k, v), where
// q, k, v = W_qkv n, optional QK-norm and RoPE on q and k. The attention width H*E may differ from
// d_model.
#pragma once

#include <string>

#include "model/residual_norm.h"
#include "model/sub_layer.h"

namespace sandglass {

class Attention final : public SubLayer {
 public:
  Attention(const ModelConfig& config, int layer);

  const std::string& name() const override { return name_; }
  void Declare(ParamTable& params) override;
  void Book(MemoryPlan& plan, const Capacity& capacity) override;
  void Forward(const Pass& pass, View x) override;
  void Backward(const Pass& pass, View dx) override;
  std::optional<AttentionInputs> attention_inputs(const Pass& pass) const override;

 private:
  // Queries, keys and values as columns of one buffer.
  struct Heads {
    View q;  // [M, H*E]
    View k;  // [M, KV*E]
    View v;  // [M, KV*E]
  };
  Heads Split(View qkv) const;
  // q and k as attention reads them: normed (if configured) and rotated.
  Heads NormAndRotate(const Pass& pass, const Heads& raw);
  void NormAndRotateBackward(const Pass& pass, const Heads& gradient, const Heads& raw);
  void Rotate(const Pass& pass, const Heads& heads, RopeDirection direction) const;
  // One norm over each head, or one over the whole row.
  RmsNormSpec QkNormSpec(int heads) const;
  // Puts this pass's keys and values behind the cached ones.
  void AppendToCache(const Pass& pass, const Heads& heads);
  AttentionSpec Spec(const Pass& pass) const;

  std::string name_;
  Shape shape_;
  QkNorm qk_norm_;
  double norm_epsilon_;
  ParamInit init_;
  ParamInit output_init_;
  bool keeps_normed_ = false;
  bool caches_ = false;

  ResidualNorm residual_;
  Param w_qkv_;         // [(H+2KV)*E, D]
  Param w_o_;           // [D, H*E]
  Param q_gain_;        // [1, E] per head, [1, H*E] full width
  Param k_gain_;        // [1, E] per head, [1, KV*E] full width
  View qkv_;            // [M, (H+2KV)*E]
  View normed_;         // [M, (H+KV)*E] q and k after QK-norm and RoPE
  View q_inverse_rms_;  // [M, heads or 1]
  View k_inverse_rms_;
  View out_;          // [M, H*E]
  View log_sum_exp_;  // [M, H]
  View dout_;         // [M, H*E]
  View dqkv_;         // [M, (H+2KV)*E]
  View k_cache_;      // [cache_length, KV*E]
  View v_cache_;
};

}  // namespace sandglass
