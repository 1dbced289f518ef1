// A backend that passes every op on to another one and notes what it took.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "bench/measure.h"
#include "ops/backend.h"

namespace sandglass {

enum class OpClass {
  kMatmul,
  kAttention,
  kAttentionBackward,
  kRmsNorm,
  kRope,
  kSwiGlu,
  kCrossEntropy,
  kEmbedding,
  kCopy,
  kOptimizer,
};
inline constexpr int kOpClasses = 10;
const char* NameOf(OpClass op);

class ProfilingBackend final : public Backend {
 public:
  // `inner` must outlive the object.
  explicit ProfilingBackend(Backend& inner) : inner_(inner) {}

  // Seconds spent in each class since the last Reset.
  double seconds(OpClass op) const { return seconds_[static_cast<int>(op)]; }
  // The products since the last Reset, with how often each was asked for.
  const std::map<MatmulShape, int>& matmuls() const { return matmuls_; }
  // Causal FLOPs of attention, forward and backward, since the last Reset.
  double attention_flops() const { return attention_flops_; }
  void Reset();

  std::string Name() const override { return inner_.Name(); }
  std::string Description() const override { return inner_.Description(); }
  DType dtype() const override { return inner_.dtype(); }
  void Matmul(View c, ConstView a, ConstView b, const MatmulSpec& spec) override;
  void Embed(View x, ConstView table, std::span<const int32_t> ids) override;
  void EmbedBackward(View dtable, ConstView dx, std::span<const int32_t> ids) override;
  void Copy(View y, ConstView x) override;
  void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain,
               const RmsNormSpec& spec) override;
  void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                       ConstView gain, const RmsNormSpec& spec) override;
  void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
            const RopeSpec& spec) override;
  void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                 const AttentionSpec& spec) override;
  void AttentionBackward(View dq, View dk, View dv, ConstView dout, ConstView out,
                         ConstView log_sum_exp, ConstView q, ConstView k, ConstView v,
                         const AttentionSpec& spec) override;
  void SwiGlu(View h, ConstView gate_up) override;
  void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) override;
  LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                        std::span<const int32_t> targets, const CrossEntropySpec& spec) override;
  LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                                const CrossEntropySpec& spec) override;
  void Zero(View x) override;
  void Blend(View y, ConstView x, const BlendSpec& spec) override;
  double SquaredNorm(ConstView x) override;
  void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) override;

 private:
  template <class Action>
  auto Timed(OpClass op, const Action& action);

  Backend& inner_;
  std::array<double, kOpClasses> seconds_{};
  std::map<MatmulShape, int> matmuls_;
  double attention_flops_ = 0.0;
};

}  // namespace sandglass
