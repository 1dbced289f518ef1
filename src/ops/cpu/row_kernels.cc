#include "ops/cpu/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/element.h"

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

template <class To, class From>
void CopyRows(View y, ConstView x) {
  for (int64_t m = 0; m < x.rows; ++m) {
    To* const to = y.Row<To>(m);
    const From* const from = x.Row<From>(m);
    ForEachVector(x.cols,
                  [&](auto d, int64_t i) HWY_ATTR { StoreF32(LoadF32(d, from + i), d, to + i); });
  }
}

void Copy(View y, ConstView x) {
  WithElement(y.dtype, [&](auto to) {
    WithElement(x.dtype, [&](auto from) { CopyRows<decltype(to), decltype(from)>(y, x); });
  });
}

// Adds to or replaces what stands at `place`.
template <class D, class T>
HWY_INLINE void Put(D d, hn::Vec<D> value, Into into, T* place) {
  if (into == Into::kAccumulate) value = hn::Add(value, LoadF32(d, place));
  StoreF32(value, d, place);
}

// Offset in a gain row of what belongs to segment `group`: a gain as wide as a segment is shared.
HWY_INLINE int64_t GainOffset(ConstView gain, int64_t group, int64_t width) {
  return gain.cols == width ? 0 : group * width;
}

template <class Y, class X>
void RmsNormRows(View y, View inverse_rms, ConstView x, ConstView gain, const RmsNormSpec& spec) {
  const int64_t width = x.cols / spec.groups;
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t group = 0; group < spec.groups; ++group) {
      const X* const x_row = x.Row<X>(m) + group * width;
      const float* const gain_row = gain.Row<float>() + GainOffset(gain, group, width);
      Y* const y_row = y.Row<Y>(m) + group * width;
      const double squares = SumOver(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto value = LoadF32(d, x_row + i);
        return hn::Mul(value, value);
      });
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(width) + spec.epsilon);
      inverse_rms.Row<float>(m)[group] = static_cast<float>(inverse);
      const float factor = static_cast<float>(spec.scale * inverse);
      ForEachVector(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto scaled = hn::Mul(LoadF32(d, x_row + i), hn::Set(d, factor));
        Put(d, hn::Mul(scaled, hn::LoadU(d, gain_row + i)), spec.into, y_row + i);
      });
    }
  }
}

void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain, const RmsNormSpec& spec) {
  WithElement(y.dtype, [&](auto to) {
    WithElement(x.dtype, [&](auto from) {
      RmsNormRows<decltype(to), decltype(from)>(y, inverse_rms, x, gain, spec);
    });
  });
}

// With r = 1 / rms and y = scale gain x r:
//   dgain += scale dy x r
//   dx = scale gain dy r - x (r^3 scale / width) sum(gain dy x)
template <class DX, class DY, class X>
void RmsNormBackwardRows(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                         ConstView gain, const RmsNormSpec& spec) {
  const int64_t width = x.cols / spec.groups;
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t group = 0; group < spec.groups; ++group) {
      const X* const x_row = x.Row<X>(m) + group * width;
      const DY* const dy_row = dy.Row<DY>(m) + group * width;
      const float* const gain_row = gain.Row<float>() + GainOffset(gain, group, width);
      float* const dgain_row = dgain.Row<float>() + GainOffset(gain, group, width);
      DX* const dx_row = dx.Row<DX>(m) + group * width;
      const double inverse = inverse_rms.Row<float>(m)[group];
      const float factor = static_cast<float>(spec.scale * inverse);
      const double projection = SumOver(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto product = hn::Mul(LoadF32(d, dy_row + i), LoadF32(d, x_row + i));
        const auto old = hn::LoadU(d, dgain_row + i);
        hn::StoreU(hn::MulAdd(product, hn::Set(d, factor), old), d, dgain_row + i);
        return hn::Mul(product, hn::LoadU(d, gain_row + i));
      });
      const float along_x =
          static_cast<float>(spec.scale * inverse * inverse * inverse * projection / width);
      ForEachVector(width, [&](auto d, int64_t i) HWY_ATTR {
        const auto dscaled = hn::Mul(LoadF32(d, dy_row + i), hn::LoadU(d, gain_row + i));
        const auto radial = hn::Mul(LoadF32(d, x_row + i), hn::Set(d, along_x));
        Put(d, hn::MulSub(dscaled, hn::Set(d, factor), radial), spec.into, dx_row + i);
      });
    }
  }
}

void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                     ConstView gain, const RmsNormSpec& spec) {
  WithElement(dx.dtype, [&](auto to) {
    WithElement(dy.dtype, [&](auto gradient) {
      WithElement(x.dtype, [&](auto from) {
        RmsNormBackwardRows<decltype(to), decltype(gradient), decltype(from)>(
            dx, dgain, dy, x, inverse_rms, gain, spec);
      });
    });
  });
}

template <class X>
void RopeRows(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
              const RopeSpec& spec) {
  const int64_t width = x.cols / spec.heads;
  const int64_t half = width / 2;
  const float sign = spec.direction == RopeDirection::kForward ? 1.0f : -1.0f;
  for (int64_t m = 0; m < x.rows; ++m) {
    const float* const cosine_row = cosines.Row<float>(positions[m]);
    const float* const sine_row = sines.Row<float>(positions[m]);
    for (int64_t head = 0; head < spec.heads; ++head) {
      X* const first_half = x.Row<X>(m) + head * width;
      X* const second_half = first_half + half;
      ForEachVector(half, [&](auto d, int64_t i) HWY_ATTR {
        const auto cosine = hn::LoadU(d, cosine_row + i);
        const auto sine = hn::Mul(hn::LoadU(d, sine_row + i), hn::Set(d, sign));
        const auto first = LoadF32(d, first_half + i);
        const auto second = LoadF32(d, second_half + i);
        StoreF32(hn::MulSub(first, cosine, hn::Mul(second, sine)), d, first_half + i);
        StoreF32(hn::MulAdd(second, cosine, hn::Mul(first, sine)), d, second_half + i);
      });
    }
  }
}

void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
          const RopeSpec& spec) {
  WithElement(x.dtype,
              [&](auto type) { RopeRows<decltype(type)>(x, cosines, sines, positions, spec); });
}

template <class T>
void SwiGluRows(View h, ConstView gate_up) {
  for (int64_t m = 0; m < h.rows; ++m) {
    const T* const gate_row = gate_up.Row<T>(m);
    const T* const up_row = gate_row + h.cols;
    T* const h_row = h.Row<T>(m);
    ForEachVector(h.cols, [&](auto d, int64_t i) HWY_ATTR {
      const auto gate = LoadF32(d, gate_row + i);
      const auto silu = hn::Mul(gate, Sigmoid(d, gate));
      StoreF32(hn::Mul(silu, LoadF32(d, up_row + i)), d, h_row + i);
    });
  }
}

void SwiGlu(View h, ConstView gate_up) {
  WithElement(h.dtype, [&](auto type) { SwiGluRows<decltype(type)>(h, gate_up); });
}

// silu'(gate) = sigmoid + silu (1 - sigmoid).
template <class T>
void SwiGluBackwardRows(View dgate_up, View h, ConstView dh, ConstView gate_up) {
  for (int64_t m = 0; m < dh.rows; ++m) {
    const T* const gate_row = gate_up.Row<T>(m);
    const T* const up_row = gate_row + dh.cols;
    const T* const dh_row = dh.Row<T>(m);
    T* const dgate_row = dgate_up.Row<T>(m);
    T* const dup_row = dgate_row + dh.cols;
    T* const h_row = h ? h.Row<T>(m) : nullptr;
    ForEachVector(dh.cols, [&](auto d, int64_t i) HWY_ATTR {
      const auto gate = LoadF32(d, gate_row + i);
      const auto up = LoadF32(d, up_row + i);
      const auto grad = LoadF32(d, dh_row + i);
      const auto sigmoid = Sigmoid(d, gate);
      const auto silu = hn::Mul(gate, sigmoid);
      const auto slope = hn::Add(sigmoid, hn::NegMulAdd(silu, sigmoid, silu));
      StoreF32(hn::Mul(hn::Mul(grad, up), slope), d, dgate_row + i);
      StoreF32(hn::Mul(grad, silu), d, dup_row + i);
      if (h_row != nullptr) StoreF32(hn::Mul(silu, up), d, h_row + i);
    });
  }
}

void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) {
  WithElement(dh.dtype,
              [&](auto type) { SwiGluBackwardRows<decltype(type)>(dgate_up, h, dh, gate_up); });
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
template <class T>
LossSums CrossEntropyBackwardRows(View dlogits, View logits, std::span<const int32_t> targets,
                                  const CrossEntropySpec& spec) {
  LossSums sums;
  for (int64_t m = 0; m < logits.rows; ++m) {
    float* const row = logits.Row<float>(m);
    T* const gradient_row = dlogits.Row<T>(m);
    if (targets[m] == kIgnoredTarget) {
      std::fill_n(gradient_row, logits.cols, T());
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
    // The target's gradient is the difference of two numbers that may be close: taken before it is
    // rounded.
    const float target_gradient = row[targets[m]] * factor - static_cast<float>(spec.grad_scale);
    ForEachVector(spec.vocabulary, [&](auto d, int64_t i) HWY_ATTR {
      StoreF32(hn::Mul(hn::LoadU(d, row + i), hn::Set(d, factor)), d, gradient_row + i);
    });
    StoreF32(hn::Set(OneTag(), target_gradient), OneTag(), gradient_row + targets[m]);
    std::fill_n(gradient_row + spec.vocabulary, logits.cols - spec.vocabulary, T());
  }
  return sums;
}

LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                              const CrossEntropySpec& spec) {
  return dlogits.dtype == DType::kBF16
             ? CrossEntropyBackwardRows<BF16>(dlogits, logits, targets, spec)
             : CrossEntropyBackwardRows<float>(dlogits, logits, targets, spec);
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
HWY_EXPORT(Copy);
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

void Copy(View y, ConstView x) { HWY_DYNAMIC_DISPATCH(Copy)(y, x); }

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

LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                              const CrossEntropySpec& spec) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropyBackward)(dlogits, logits, targets, spec);
}

void Blend(View y, ConstView x, const BlendSpec& spec) { HWY_DYNAMIC_DISPATCH(Blend)(y, x, spec); }

double SquaredNorm(ConstView x) { return HWY_DYNAMIC_DISPATCH(SquaredNorm)(x); }

void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) {
  HWY_DYNAMIC_DISPATCH(AdamW)(values, m, v, grads, spec);
}

}  // namespace sandglass::cpu
#endif  // HWY_ONCE
