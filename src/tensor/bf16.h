// An element of a bf16 view.
#pragma once

#include <cstdint>

#include "tensor/half.h"

namespace sandglass {

struct BF16 {
  uint16_t bits = 0;
};

inline float ToFloat(BF16 value) { return FromBf16(value.bits); }
inline BF16 ToBF16(float value) { return {ToBf16(value)}; }

}  // namespace sandglass
