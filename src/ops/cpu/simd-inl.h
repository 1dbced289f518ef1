// Vector loops and functions shared by the kernels; compiled once for every instruction set.
#if defined(SANDGLASS_OPS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SANDGLASS_OPS_CPU_SIMD_INL_H_
#undef SANDGLASS_OPS_CPU_SIMD_INL_H_
#else
#define SANDGLASS_OPS_CPU_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "tensor/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FullTag = hn::ScalableTag<float>;
using OneTag = hn::CappedTag<float, 1>;  // for what is left over after the last whole vector

// Kernels compute in f32. What lies in memory as bf16 becomes f32 on the way in and is rounded (to
// the nearest, ties to even) on the way out.
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const BF16* from) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

// The bits of value in bf16, in the lower halves.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> RoundedBF16(D /*d*/, hn::Vec<D> value) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto half = hn::Add(hn::And(upper, hn::Set(d32, 1)), hn::Set(d32, 0x7fff));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> value, D d, float* to) {
  hn::StoreU(value, d, to);
}
template <class D>
HWY_INLINE void StoreF32(hn::Vec<D> value, D d, BF16* to) {
  const hn::Rebind<int32_t, D> di32;
  const hn::Rebind<uint16_t, D> d16;
  const auto result = hn::BitCast(di32, RoundedBF16(d, value));
  hn::StoreU(hn::DemoteTo(d16, result), d16, reinterpret_cast<uint16_t*>(to));
}

// Calls body(tag, i) for vectors of `tag` that start at i and together cover [0, n).
template <class Body>
HWY_INLINE void ForEachVector(int64_t n, const Body& body) {
  constexpr int64_t kLanes = hn::MaxLanes(FullTag());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(FullTag(), i);
  for (; i < n; ++i) body(OneTag(), i);
}

// Sum of term(tag, i) over [begin, end). Four partial sums hide the latency of the addition.
template <class Term>
HWY_INLINE float BlockSum(int64_t begin, int64_t end, const Term& term) {
  const FullTag d;
  constexpr int64_t kLanes = hn::MaxLanes(FullTag());
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    sum0 = hn::Add(sum0, term(d, i));
    sum1 = hn::Add(sum1, term(d, i + kLanes));
    sum2 = hn::Add(sum2, term(d, i + 2 * kLanes));
    sum3 = hn::Add(sum3, term(d, i + 3 * kLanes));
  }
  for (; i + kLanes <= end; i += kLanes) sum0 = hn::Add(sum0, term(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < end; ++i) sum += hn::GetLane(term(OneTag(), i));
  return sum;
}

// Sum of term(tag, i) over [0, n): blocks in float, their sum in double, so that the rounding error
// of a row does not grow with its length.
template <class Term>
HWY_INLINE double SumOver(int64_t n, const Term& term) {
  constexpr int64_t kBlock = 2048;
  double sum = 0.0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    sum += BlockSum(begin, std::min(n, begin + kBlock), term);
  }
  return sum;
}

// Largest of n >= 1 values.
HWY_INLINE float MaxOf(const float* x, int64_t n) {
  const FullTag d;
  constexpr int64_t kLanes = hn::MaxLanes(FullTag());
  auto max0 = hn::Set(d, x[0]);
  auto max1 = max0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    max0 = hn::Max(max0, hn::LoadU(d, x + i));
    max1 = hn::Max(max1, hn::LoadU(d, x + i + kLanes));
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
  for (; i < n; ++i) max = std::max(max, x[i]);
  return max;
}

// The largest argument of ExpBounded.
inline constexpr float kExpBound = 88.37f;

// e^x for x <= kExpBound, within 2 units in the last place; 0 where e^x would be subnormal
// (x < -87.33). NaN stays NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 q(r), q interpolated at the Chebyshev
// nodes of that interval (relative error of e^r 8e-9). Adding 1.5 * 2^23 rounds to an integer and
// leaves n in the low bits of the sum, from where it is added to the exponent of e^r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpBounded(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V rounder = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), rounder);
  const V n = hn::Sub(shifted, rounder);
  // ln 2 in two parts; n times the first, which has 9 bits, is exact.
  const V coarse = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), coarse);
  V q = hn::Set(d, 1.392640048e-3f);
  q = hn::MulAdd(q, r, hn::Set(d, 8.363352683e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 4.166655331e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.666657594e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
  const V exp_r = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const V y = hn::BitCast(d, hn::Add(hn::BitCast(di, exp_r), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), y);
}

// 1 / (1 + e^-x). NaN stays NaN (Min returns its second argument then, or NaN).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V bounded = hn::Min(hn::Set(d, kExpBound), hn::Neg(x));
  return hn::Div(one, hn::Add(one, ExpBounded(d, bounded)));
}

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#endif  // SANDGLASS_OPS_CPU_SIMD_INL_H_
