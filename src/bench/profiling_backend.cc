#include "bench/profiling_backend.h"

#include <type_traits>

namespace sandglass {
namespace {

using Clock = std::chrono::steady_clock;

// Two products of 2 E FLOPs for every (query, visible key) pair and head.
double ForwardFlops(const AttentionSpec& spec) {
  const double first_keys = spec.kv_length - spec.query_length + 1;
  const double mean_keys = (first_keys + spec.kv_length) / 2;
  return 4.0 * spec.head_width * spec.heads * spec.batch * spec.query_length * mean_keys;
}

}  // namespace

const char* NameOf(OpClass op) {
  constexpr std::array<const char*, kOpClasses> kNames = {
      "matmul", "attention",     "attention backward", "rmsnorm", "rope",
      "swiglu", "cross-entropy", "embedding",          "copy",    "optimizer"};
  return kNames[static_cast<size_t>(op)];
}

void ProfilingBackend::Reset() {
  seconds_.fill(0.0);
  matmuls_.clear();
  attention_flops_ = 0.0;
}

template <class Action>
auto ProfilingBackend::Timed(OpClass op, const Action& action) {
  const Clock::time_point start = Clock::now();
  const auto note = [&] {
    seconds_[static_cast<int>(op)] += std::chrono::duration<double>(Clock::now() - start).count();
  };
  if constexpr (std::is_void_v<decltype(action())>) {
    action();
    note();
  } else {
    const auto result = action();
    note();
    return result;
  }
}

void ProfilingBackend::Matmul(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  ++matmuls_[{.rows = c.rows,
              .cols = c.cols,
              .inner = ColumnsOf(a, spec.a),
              .spec = spec,
              .factors = a.dtype,
              .result = c.dtype}];
  Timed(OpClass::kMatmul, [&] { inner_.Matmul(c, a, b, spec); });
}

void ProfilingBackend::Embed(View x, ConstView table, std::span<const int32_t> ids) {
  Timed(OpClass::kEmbedding, [&] { inner_.Embed(x, table, ids); });
}

void ProfilingBackend::EmbedBackward(View dtable, ConstView dx, std::span<const int32_t> ids) {
  Timed(OpClass::kEmbedding, [&] { inner_.EmbedBackward(dtable, dx, ids); });
}

void ProfilingBackend::Copy(View y, ConstView x) {
  Timed(OpClass::kCopy, [&] { inner_.Copy(y, x); });
}

void ProfilingBackend::RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain,
                               const RmsNormSpec& spec) {
  Timed(OpClass::kRmsNorm, [&] { inner_.RmsNorm(y, inverse_rms, x, gain, spec); });
}

void ProfilingBackend::RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x,
                                       ConstView inverse_rms, ConstView gain,
                                       const RmsNormSpec& spec) {
  Timed(OpClass::kRmsNorm,
        [&] { inner_.RmsNormBackward(dx, dgain, dy, x, inverse_rms, gain, spec); });
}

void ProfilingBackend::Rope(View x, ConstView cosines, ConstView sines,
                            std::span<const int32_t> positions, const RopeSpec& spec) {
  Timed(OpClass::kRope, [&] { inner_.Rope(x, cosines, sines, positions, spec); });
}

void ProfilingBackend::Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                                 const AttentionSpec& spec) {
  attention_flops_ += ForwardFlops(spec);
  Timed(OpClass::kAttention, [&] { inner_.Attention(out, log_sum_exp, q, k, v, spec); });
}

void ProfilingBackend::AttentionBackward(View dq, View dk, View dv, ConstView dout, ConstView out,
                                         ConstView log_sum_exp, ConstView q, ConstView k,
                                         ConstView v, const AttentionSpec& spec) {
  // Five products where the forward pass has two: the scores again, dP, dV, dQ and dK.
  attention_flops_ += 2.5 * ForwardFlops(spec);
  Timed(OpClass::kAttentionBackward,
        [&] { inner_.AttentionBackward(dq, dk, dv, dout, out, log_sum_exp, q, k, v, spec); });
}

void ProfilingBackend::SwiGlu(View h, ConstView gate_up) {
  Timed(OpClass::kSwiGlu, [&] { inner_.SwiGlu(h, gate_up); });
}

void ProfilingBackend::SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) {
  Timed(OpClass::kSwiGlu, [&] { inner_.SwiGluBackward(dgate_up, h, dh, gate_up); });
}

LossSums ProfilingBackend::CrossEntropy(std::span<double> token_loss, ConstView logits,
                                        std::span<const int32_t> targets,
                                        const CrossEntropySpec& spec) {
  return Timed(OpClass::kCrossEntropy,
               [&] { return inner_.CrossEntropy(token_loss, logits, targets, spec); });
}

LossSums ProfilingBackend::CrossEntropyBackward(View dlogits, View logits,
                                                std::span<const int32_t> targets,
                                                const CrossEntropySpec& spec) {
  return Timed(OpClass::kCrossEntropy,
               [&] { return inner_.CrossEntropyBackward(dlogits, logits, targets, spec); });
}

void ProfilingBackend::Zero(View x) {
  Timed(OpClass::kOptimizer, [&] { inner_.Zero(x); });
}

void ProfilingBackend::Blend(View y, ConstView x, const BlendSpec& spec) {
  Timed(OpClass::kOptimizer, [&] { inner_.Blend(y, x, spec); });
}

double ProfilingBackend::SquaredNorm(ConstView x) {
  return Timed(OpClass::kOptimizer, [&] { return inner_.SquaredNorm(x); });
}

void ProfilingBackend::AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) {
  Timed(OpClass::kOptimizer, [&] { inner_.AdamW(values, m, v, grads, spec); });
}

}  // namespace sandglass
