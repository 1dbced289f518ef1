#include "ops/cpu/row_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

void Add(View y, ConstView x) {
  for (int64_t m = 0; m < x.rows; ++m) {
    float* const to = y.Row<float>(m);
    const float* const from = x.Row<float>(m);
    ForEachVector(x.cols, [&](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
    });
  }
}

// Adds to or replaces what stands at `place`.
template <class D>
HWY_INLINE void Put(D d, hn::Vec<D> value, Into into, float* place) {
  if (into == Into::kAccumulate) value = hn::Add(value, hn::LoadU(d, place));
  hn::StoreU(value, d, place);
}

// Offset in a gain row of what belongs to segment `group`: a gain as wide as a segment is shared.
HWY_INLINE int64_t GainOffset(ConstView gain, int64_t group, int64_t width) {
  return gain.cols == width ? 0 : group * width;
}

void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain, const RmsNormSpec& spec) {
  const int64_t width = x.cols / spec.groups;
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t group = 0; group < spec.groups; ++group) {
      const float* const x_row = x.Row<float>(m) + group * width;
      const float* const gain_row = gain.Row<float>() + GainOffset(gain, group, width);
      float* const y_row = y.Row<float>(m) + group * width;
      const double squares = SumOver(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto value = hn::LoadU(d, x_row + i);
        return hn::Mul(value, value);
      });
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(width) + spec.epsilon);
      inverse_rms.Row<float>(m)[group] = static_cast<float>(inverse);
      const float factor = static_cast<float>(spec.scale * inverse);
      ForEachVector(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto scaled = hn::Mul(hn::LoadU(d, x_row + i), hn::Set(d, factor));
        Put(d, hn::Mul(scaled, hn::LoadU(d, gain_row + i)), spec.into, y_row + i);
      });
    }
  }
}

// With r = 1 / rms and y = scale gain x r:
//   dgain += scale dy x r
//   dx = scale gain dy r - x (r^3 scale / width) sum(gain dy x)
void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                     ConstView gain, const RmsNormSpec& spec) {
  const int64_t width = x.cols / spec.groups;
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t group = 0; group < spec.groups; ++group) {
      const float* const x_row = x.Row<float>(m) + group * width;
      const float* const dy_row = dy.Row<float>(m) + group * width;
      const float* const gain_row = gain.Row<float>() + GainOffset(gain, group, width);
      float* const dgain_row = dgain.Row<float>() + GainOffset(gain, group, width);
      float* const dx_row = dx.Row<float>(m) + group * width;
      const double inverse = inverse_rms.Row<float>(m)[group];
      const float factor = static_cast<float>(spec.scale * inverse);
      const double projection = SumOver(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto product = hn::Mul(hn::LoadU(d, dy_row + i), hn::LoadU(d, x_row + i));
        const auto old = hn::LoadU(d, dgain_row + i);
        hn::StoreU(hn::MulAdd(product, hn::Set(d, factor), old), d, dgain_row + i);
        return hn::Mul(product, hn::LoadU(d, gain_row + i));
      });
      const float along_x =
          static_cast<float>(spec.scale * inverse * inverse * inverse * projection / width);
      ForEachVector(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto dscaled = hn::Mul(hn::LoadU(d, dy_row + i), hn::LoadU(d, gain_row + i));
        const auto radial = hn::Mul(hn::LoadU(d, x_row + i), hn::Set(d, along_x));
        Put(d, hn::MulSub(dscaled, hn::Set(d, factor), radial), spec.into, dx_row + i);
      });
    }
  }
}

void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
          const RopeSpec& spec) {
  const int64_t width = x.cols / spec.heads;
  const int64_t half = width / 2;
  const float sign = spec.direction == RopeDirection::kForward ? 1.0f : -1.0f;
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* const cosine_row = cosines.Row<float>(positions[m]);
    const float* const sine_row = sines.Row<float>(positions[m]);
    for (int64_t head = 0; head < spec.heads; ++head) {
      float* const first_half = x.Row<float>(m) + head * width;
      float* const second_half = first_half + half;
      ForEachVector(half, [&](auto d, int64_t i) HWY_ATTR {
        const auto cosine = hn::LoadU(d, cosine_row + i);
        const auto sine = hn::Mul(hn::LoadU(d, sine_row + i), hn::Set(d, sign));
        const auto first = hn::LoadU(d, first_half + i);
        const auto second = hn::LoadU(d, second_half + i);
        hn::StoreU(hn::MulSub(first, cosine, hn::Mul(second, sine)), d, first_half + i);
        hn::StoreU(hn::MulAdd(second, cosine, hn::Mul(first, sine)), d, second_half + i);
      });
    }
  }
}

void SwiGlu(View h, ConstView gate_up) {
  for (int64_t m = 0; m < h.rows; ++m) {
    const float* const gate_row = gate_up.Row<float>(m);
    const float* const up_row = gate_row + h.cols;
    float* const h_row = h.Row<float>(m);
    ForEachVector(h.cols, [&](auto d, int64_t i) HWY_ATTR {
      const auto gate = hn::LoadU(d, gate_row + i);
      const auto silu = hn::Mul(gate, Sigmoid(d, gate));
      hn::StoreU(hn::Mul(silu, hn::LoadU(d, up_row + i)), d, h_row + i);
    });
  }
}

// silu'(gate) = sigmoid + silu (1 - sigmoid).
void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) {
  for (int64_t m = 0; m < dh.rows; ++m) {
    const float* const gate_row = gate_up.Row<float>(m);
    const float* const up_row = gate_row + dh.cols;
    const float* const dh_row = dh.Row<float>(m);
    float* const dgate_row = dgate_up.Row<float>(m);
    float* const dup_row = dgate_row + dh.cols;
    float* const h_row = h ? h.Row<float>(m) : nullptr;
    ForEachVector(dh.cols, [&](auto d, int64_t i) HWY_ATTR {
      const auto gate = hn::LoadU(d, gate_row + i);
      const auto up = hn::LoadU(d, up_row + i);
      const auto grad = hn::LoadU(d, dh_row + i);
      const auto sigmoid = Sigmoid(d, gate);
      const auto silu = hn::Mul(gate, sigmoid);
      const auto slope = hn::Add(sigmoid, hn::NegMulAdd(silu, sigmoid, silu));
      hn::StoreU(hn::Mul(hn::Mul(grad, up), slope), d, dgate_row + i);
      hn::StoreU(hn::Mul(grad, silu), d, dup_row + i);
      if (h_row != nullptr) hn::StoreU(hn::Mul(silu, up), d, h_row + i);
    });
  }
}

// The loss of a token from softmax = e^(logit - largest) / sum.
struct TokenLoss {
  TokenLoss(float target_logit, float largest, double sum)
      : log_sum_exp(largest + std::log(sum)),
        sums{.cross_entropy = log_sum_exp - target_logit,
             .z_loss = log_sum_exp * log_sum_exp,
             .tokens = 1} {}

  double log_sum_exp;
  LossSums sums;
};

LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                      std::span<const int32_t> targets, const CrossEntropySpec& spec) {
  LossSums sums;
  for (int64_t m = 0; m < logits.rows; ++m) {
    const float* const row = logits.Row<float>(m);
    LossSums token;
    if (targets[m] != kIgnoredTarget) {
      const float largest = MaxOf(row, spec.vocabulary);
      const double sum = SumOver(spec.vocabulary, [&](auto d, int64_t i) HWY_ATTR {
        return ExpBounded(d, hn::Sub(hn::LoadU(d, row + i), hn::Set(d, largest)));
      });
      token = TokenLoss(row[targets[m]], largest, sum).sums;
    }
    sums += token;
    if (!token_loss.empty()) token_loss[m] = token.cross_entropy;
  }
  return sums;
}

// The exponentials replace the logits and are then scaled: reading a row again from the cache
// costs less than a second exponential.
LossSums CrossEntropyBackward(View logits, std::span<const int32_t> targets,
                              const CrossEntropySpec& spec) {
  LossSums sums;
  for (int64_t m = 0; m < logits.rows; ++m) {
    float* const row = logits.Row<float>(m);
    if (targets[m] == kIgnoredTarget) {
      std::fill_n(row, logits.cols, 0.0f);
      continue;
    }
    const float target_logit = row[targets[m]];
    const float largest = MaxOf(row, spec.vocabulary);
    const double sum = SumOver(spec.vocabulary, [&](auto d, int64_t i) HWY_ATTR {
      const auto e = ExpBounded(d, hn::Sub(hn::LoadU(d, row + i), hn::Set(d, largest)));
      hn::StoreU(e, d, row + i);
      return e;
    });
    const TokenLoss token(target_logit, largest, sum);
    sums += token.sums;
    const double per_logit = 1.0 + 2.0 * spec.z_loss * token.log_sum_exp;
    const float factor = static_cast<float>(spec.grad_scale * per_logit / sum);
    ForEachVector(spec.vocabulary, [&](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, factor)), d, row + i);
    });
    row[targets[m]] -= static_cast<float>(spec.grad_scale);
    std::fill_n(row + spec.vocabulary, logits.cols - spec.vocabulary, 0.0f);
  }
  return sums;
}

void Blend(View y, ConstView x, const BlendSpec& spec) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = hn::Lanes(d);
  const auto x_factor = hn::Set(d, spec.x);
  const auto y_factor = hn::Set(d, spec.y);
  for (int64_t m = 0; m < y.rows; ++m) {
    float* const y_row = y.Row<float>(m);
    const float* const x_row = x.Row<float>(m);
    int64_t i = 0;
    for (; i + lanes <= y.cols; i += lanes) {
      const auto term = hn::Mul(x_factor, hn::PromoteTo(d, hn::LoadU(df, x_row + i)));
      const auto kept = spec.y == 0.0
                            ? hn::Zero(d)
                            : hn::Mul(y_factor, hn::PromoteTo(d, hn::LoadU(df, y_row + i)));
      hn::StoreU(hn::DemoteTo(df, hn::Add(kept, term)), df, y_row + i);
    }
    for (; i < y.cols; ++i) {
      const double kept = spec.y == 0.0 ? 0.0 : spec.y * y_row[i];
      y_row[i] = static_cast<float>(kept + spec.x * x_row[i]);
    }
  }
}

// Squares of floats are exact in double.
double SquaredNorm(ConstView x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  double rest = 0.0;
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* const row = x.Row<float>(m);
    const auto load = [&](int64_t i) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(df, row + i)); };
    int64_t i = 0;
    for (; i + 4 * kLanes <= x.cols; i += 4 * kLanes) {
      const auto v0 = load(i);
      const auto v1 = load(i + kLanes);
      const auto v2 = load(i + 2 * kLanes);
      const auto v3 = load(i + 3 * kLanes);
      sum0 = hn::MulAdd(v0, v0, sum0);
      sum1 = hn::MulAdd(v1, v1, sum1);
      sum2 = hn::MulAdd(v2, v2, sum2);
      sum3 = hn::MulAdd(v3, v3, sum3);
    }
    for (; i < x.cols; ++i) rest += double{row[i]} * row[i];
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)))) + rest;
}

// The update is formed whole before it is subtracted: the weight is rounded once, and a decay too
// small to show in 1 - lr * weight_decay is not lost.
void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) {
  const float beta1 = static_cast<float>(spec.beta1);
  const float beta2 = static_cast<float>(spec.beta2);
  const float first_factor = static_cast<float>((1.0 - spec.beta1) * spec.grad_scale);
  const float second_factor =
      static_cast<float>((1.0 - spec.beta2) * spec.grad_scale * spec.grad_scale);
  const float step = static_cast<float>(spec.learning_rate / spec.correction1);
  const float root_factor = static_cast<float>(1.0 / std::sqrt(spec.correction2));
  const float epsilon = static_cast<float>(spec.epsilon);
  const float decay = static_cast<float>(spec.learning_rate * spec.weight_decay);
  float* const value_row = values.Row<float>();
  float* const m_row = m.Row<float>();
  float* const v_row = v.Row<float>();
  const float* const grad_row = grads.Row<float>();
  ForEachVector(values.cols, [&](auto d, int64_t i) HWY_ATTR {
    const auto grad = hn::LoadU(d, grad_row + i);
    const auto first = hn::MulAdd(hn::LoadU(d, m_row + i), hn::Set(d, beta1),
                                  hn::Mul(grad, hn::Set(d, first_factor)));
    const auto second = hn::MulAdd(hn::LoadU(d, v_row + i), hn::Set(d, beta2),
                                   hn::Mul(hn::Mul(grad, grad), hn::Set(d, second_factor)));
    hn::StoreU(first, d, m_row + i);
    hn::StoreU(second, d, v_row + i);
    const auto root = hn::MulAdd(hn::Sqrt(second), hn::Set(d, root_factor), hn::Set(d, epsilon));
    const auto value = hn::LoadU(d, value_row + i);
    const auto update =
        hn::MulAdd(value, hn::Set(d, decay), hn::Div(hn::Mul(first, hn::Set(d, step)), root));
    hn::StoreU(hn::Sub(value, update), d, value_row + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sandglass::cpu {

HWY_EXPORT(TargetName);
HWY_EXPORT(Add);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(RmsNormBackward);
HWY_EXPORT(Rope);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(SwiGluBackward);
HWY_EXPORT(CrossEntropy);
HWY_EXPORT(CrossEntropyBackward);
HWY_EXPORT(Blend);
HWY_EXPORT(SquaredNorm);
HWY_EXPORT(AdamW);

const char* TargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

void Add(View y, ConstView x) { HWY_DYNAMIC_DISPATCH(Add)(y, x); }

void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain, const RmsNormSpec& spec) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(y, inverse_rms, x, gain, spec);
}

void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                     ConstView gain, const RmsNormSpec& spec) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackward)(dx, dgain, dy, x, inverse_rms, gain, spec);
}

void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
          const RopeSpec& spec) {
  HWY_DYNAMIC_DISPATCH(Rope)(x, cosines, sines, positions, spec);
}

void SwiGlu(View h, ConstView gate_up) { HWY_DYNAMIC_DISPATCH(SwiGlu)(h, gate_up); }

void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) {
  HWY_DYNAMIC_DISPATCH(SwiGluBackward)(dgate_up, h, dh, gate_up);
}

LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                      std::span<const int32_t> targets, const CrossEntropySpec& spec) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropy)(token_loss, logits, targets, spec);
}

LossSums CrossEntropyBackward(View logits, std::span<const int32_t> targets,
                              const CrossEntropySpec& spec) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropyBackward)(logits, targets, spec);
}

void Blend(View y, ConstView x, const BlendSpec& spec) { HWY_DYNAMIC_DISPATCH(Blend)(y, x, spec); }

double SquaredNorm(ConstView x) { return HWY_DYNAMIC_DISPATCH(SquaredNorm)(x); }

void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) {
  HWY_DYNAMIC_DISPATCH(AdamW)(values, m, v, grads, spec);
}

}  // namespace sandglass::cpu
#endif  // HWY_ONCE
