// The two 16-bit floating-point formats: IEEE binary16 (F16) and the upper half of binary32 (BF16).
// Both keep infinities and NaN; rounding is to nearest, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sandglass {

inline float FromBf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

inline uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// F16 has 5 exponent bits with bias 15 and 10 mantissa bits; F32 has 8 with bias 127, and 23.
inline constexpr uint32_t kF16BiasShift = (127 - 15) << 10;

inline float FromF16(uint16_t half) {
  const uint32_t sign = uint32_t{half} << 16 & 0x80000000;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t exponent = magnitude >> 10;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (exponent == 0) {  // a multiple of 2^-24
    return std::copysign(static_cast<float>(magnitude) * 0x1p-24f, std::bit_cast<float>(sign));
  }
  return std::bit_cast<float>(sign | (magnitude + kF16BiasShift) << 13);
}

inline uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    return static_cast<uint16_t>(sign |
                                 static_cast<uint32_t>(std::nearbyint(std::fabs(value) * 0x1p24f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - kF16BiasShift));
}

}  // namespace sandglass
