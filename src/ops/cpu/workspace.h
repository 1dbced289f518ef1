// Scratch memory of the cpu backend, and how its sizes are rounded.
#pragma once

#include <cstdint>

#include "tensor/memory_plan.h"

namespace sandglass::cpu {

constexpr int64_t DivideUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return DivideUp(value, multiple) * multiple;
}

// Takes memory only when an op needs more than any before. What it held is lost then.
inline void Reserve(AlignedBytes& bytes, int64_t floats) {
  const int64_t size = floats * SizeOf(DType::kF32);
  if (bytes.size_bytes() < size) bytes = AlignedBytes(size);
}

}  // namespace sandglass::cpu
