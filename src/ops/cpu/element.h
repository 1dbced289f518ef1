// From the element type of a view to a type of C++, and how the processor multiplies bf16.
#pragma once

#include "base/error.h"
#include "tensor/bf16.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// Calls action with a value of the element type: float or BF16.
template <class Action>
void WithElement(DType dtype, const Action& action) {
  SANDGLASS_CHECK(dtype == DType::kF32 || dtype == DType::kBF16,
                  "cpu kernels are for f32 and bf16");
  dtype == DType::kF32 ? action(float()) : action(BF16());
}

// Elements of a type in a 32-bit word, the unit that matrix products multiply (tile-inl.h).
constexpr int64_t WordDepth(DType dtype) { return SizeOf(DType::kF32) / SizeOf(dtype); }

// Whether the processor adds products of bf16 pairs in one instruction. Elsewhere they are widened
// to f32 on the way to the multiplier, and are as fast as f32 at best.
inline bool HasDotBF16() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

}  // namespace sandglass::cpu
