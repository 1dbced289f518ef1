#include "io/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/half.h"

namespace sandglass {
namespace {

constexpr int kSmall = 32;   // elements of a block of Q4_0 ... Q8_0
constexpr int kLarge = 256;  // elements of a K-quant block

// The fields of one block, by their offsets in it.
class Block {
 public:
  explicit Block(const char* bytes) : bytes_(bytes) {}

  int Byte(int offset) const { return static_cast<uint8_t>(bytes_[offset]); }
  int SignedByte(int offset) const { return static_cast<int8_t>(bytes_[offset]); }
  int Low(int offset) const { return Byte(offset) & 15; }
  int High(int offset) const { return Byte(offset) >> 4; }
  // Bit `bit` of a bit field that starts at `offset`, as 0 or 1.
  int Bit(int offset, int bit) const { return Byte(offset + bit / 8) >> (bit % 8) & 1; }
  float Half(int offset) const {
    uint16_t half;
    std::memcpy(&half, bytes_ + offset, sizeof(half));
    return FromF16(half);
  }

 private:
  const char* bytes_;
};

// In blocks of 32, byte i of the nibbles holds element i (low) and element i + 16 (high).
template <class Value>
void FromNibbles(const Block& block, int nibbles, float* out, const Value& value) {
  constexpr int kHalf = kSmall / 2;
  for (int i = 0; i < kHalf; ++i) {
    out[i] = value(i, block.Low(nibbles + i));
    out[i + kHalf] = value(i + kHalf, block.High(nibbles + i));
  }
}

void DequantizeQ4_0(const Block& block, float* out) {
  const float scale = block.Half(0);
  FromNibbles(block, 2, out, [&](int, int q) { return static_cast<float>(q - 8) * scale; });
}

void DequantizeQ4_1(const Block& block, float* out) {
  const float scale = block.Half(0);
  const float minimum = block.Half(2);
  FromNibbles(block, 4, out, [&](int, int q) { return static_cast<float>(q) * scale + minimum; });
}

void DequantizeQ5_0(const Block& block, float* out) {
  const float scale = block.Half(0);
  FromNibbles(block, 6, out, [&](int i, int q) {
    return static_cast<float>((q | block.Bit(2, i) << 4) - 16) * scale;
  });
}

void DequantizeQ5_1(const Block& block, float* out) {
  const float scale = block.Half(0);
  const float minimum = block.Half(2);
  FromNibbles(block, 8, out, [&](int i, int q) {
    return static_cast<float>(q | block.Bit(4, i) << 4) * scale + minimum;
  });
}

void DequantizeQ8_0(const Block& block, float* out) {
  const float scale = block.Half(0);
  for (int i = 0; i < kSmall; ++i) out[i] = static_cast<float>(block.SignedByte(2 + i)) * scale;
}

// Two-bit fields of Q2_K and Q3_K: each half of 128 elements has 32 bytes; element e of it is bits
// 2*(e / 32) of byte e % 32.
int TwoBits(const Block& block, int offset, int element) {
  const int within = element % 128;
  return block.Byte(offset + element / 128 * 32 + within % 32) >> (within / 32 * 2) & 3;
}

void DequantizeQ2_K(const Block& block, float* out) {
  constexpr int kScales = 0, kQuants = 16, kScale = 80, kMinimum = 82;
  const float scale = block.Half(kScale);
  const float minimum = block.Half(kMinimum);
  for (int i = 0; i < kLarge; ++i) {
    const int group = kScales + i / 16;
    out[i] = scale * static_cast<float>(block.Low(group)) *
                 static_cast<float>(TwoBits(block, kQuants, i)) -
             minimum * static_cast<float>(block.High(group));
  }
}

// Scale `group` of 16 of Q3_K, 6 bits less 32: the low four bits lie in bytes 0..7 (groups 8..15 in
// their upper halves), the high two in bytes 8..11 (four groups apart share a byte).
int ScaleOfQ3_K(const Block& block, int offset, int group) {
  const int low = group < 8 ? block.Low(offset + group) : block.High(offset + group - 8);
  const int high = block.Byte(offset + 8 + group % 4) >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void DequantizeQ3_K(const Block& block, float* out) {
  constexpr int kHighBits = 0, kQuants = 32, kScales = 96, kScale = 108;
  const float scale = block.Half(kScale);
  for (int i = 0; i < kLarge; ++i) {
    const int high = block.Byte(kHighBits + i % 32) >> (i / 32) & 1;
    const int q = TwoBits(block, kQuants, i) + 4 * high - 4;
    const float group = scale * static_cast<float>(ScaleOfQ3_K(block, kScales, i / 16));
    out[i] = group * static_cast<float>(q);
  }
}

// Scale and minimum `group` of 8 of Q4_K and Q5_K, 6 bits each: groups 0..3 in the low bits of
// bytes 0..3 and 4..7; groups 4..7 in the halves of bytes 8..11, with their high two bits above the
// others' six.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum GroupOf(const Block& block, int offset, int group) {
  if (group < 4) return {block.Byte(offset + group) & 63, block.Byte(offset + group + 4) & 63};
  const int packed = offset + group + 4;
  return {block.Low(packed) | block.Byte(offset + group - 4) >> 6 << 4,
          block.High(packed) | block.Byte(offset + group) >> 6 << 4};
}

// Groups of 32 elements; pairs of groups share 32 bytes of nibbles. `high` adds to each quant.
template <class High>
void DequantizeGroups(const Block& block, int nibbles, float* out, const High& high) {
  constexpr int kScale = 0, kMinimum = 2, kGroups = 4;
  const float scale = block.Half(kScale);
  const float minimum = block.Half(kMinimum);
  for (int group = 0; group < kLarge / 32; ++group) {
    const ScaleAndMinimum of_group = GroupOf(block, kGroups, group);
    const float group_scale = scale * static_cast<float>(of_group.scale);
    const float group_minimum = minimum * static_cast<float>(of_group.minimum);
    for (int i = 0; i < 32; ++i) {
      const int byte = nibbles + group / 2 * 32 + i;
      const int q = (group % 2 == 0 ? block.Low(byte) : block.High(byte)) + high(group, i);
      out[group * 32 + i] = group_scale * static_cast<float>(q) - group_minimum;
    }
  }
}

void DequantizeQ4_K(const Block& block, float* out) {
  DequantizeGroups(block, 16, out, [](int, int) { return 0; });
}

void DequantizeQ5_K(const Block& block, float* out) {
  constexpr int kHighBits = 16;
  DequantizeGroups(block, 48, out,
                   [&](int group, int i) { return (block.Byte(kHighBits + i) >> group & 1) << 4; });
}

void DequantizeQ6_K(const Block& block, float* out) {
  constexpr int kLowBits = 0, kHighBits = 128, kScales = 192, kScale = 208;
  const float scale = block.Half(kScale);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128;
    const int within = i % 128;
    const int byte = kLowBits + half * 64 + within % 64;
    const int low = within < 64 ? block.Low(byte) : block.High(byte);
    const int high = block.Byte(kHighBits + half * 32 + within % 32) >> (within / 32 * 2) & 3;
    const float group = scale * static_cast<float>(block.SignedByte(kScales + i / 16));
    out[i] = group * static_cast<float>((low | high << 4) - 32);
  }
}

using DequantizeBlock = void (*)(const Block&, float*);

// How a block of a type is read; nullptr for the plain number formats.
DequantizeBlock BlockReader(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kQ4_0:
      return DequantizeQ4_0;
    case GgufTensorType::kQ4_1:
      return DequantizeQ4_1;
    case GgufTensorType::kQ5_0:
      return DequantizeQ5_0;
    case GgufTensorType::kQ5_1:
      return DequantizeQ5_1;
    case GgufTensorType::kQ8_0:
      return DequantizeQ8_0;
    case GgufTensorType::kQ2_K:
      return DequantizeQ2_K;
    case GgufTensorType::kQ3_K:
      return DequantizeQ3_K;
    case GgufTensorType::kQ4_K:
      return DequantizeQ4_K;
    case GgufTensorType::kQ5_K:
      return DequantizeQ5_K;
    case GgufTensorType::kQ6_K:
      return DequantizeQ6_K;
    case GgufTensorType::kF32:
    case GgufTensorType::kF16:
    case GgufTensorType::kBF16:
      break;
  }
  return nullptr;
}

void QuantizeQ8_0(std::span<const float> values, char* out) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127.0f;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  const uint16_t half = ToF16(scale);
  std::memcpy(out, &half, sizeof(half));
  for (int i = 0; i < kSmall; ++i) {
    out[2 + i] = static_cast<char>(static_cast<int8_t>(std::round(values[i] * inverse)));
  }
}

}  // namespace

int64_t QuantizedBytes(GgufTensorType type, int64_t elements) {
  const GgufTypeInfo& info = InfoOf(type);
  SANDGLASS_CHECK(elements % info.block_elements == 0, "elements are whole blocks");
  return elements / info.block_elements * info.block_bytes;
}

void Dequantize(GgufTensorType type, std::string_view bytes, std::span<float> out) {
  const GgufTypeInfo& info = InfoOf(type);
  SANDGLASS_CHECK(std::ssize(bytes) == QuantizedBytes(type, std::ssize(out)), "bytes of a tensor");
  if (type == GgufTensorType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  const DequantizeBlock read = BlockReader(type);
  if (read == nullptr) {
    const auto convert = type == GgufTensorType::kF16 ? FromF16 : FromBf16;
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + 2 * i, sizeof(half));
      out[i] = convert(half);
    }
    return;
  }
  const char* block = bytes.data();
  for (size_t i = 0; i < out.size(); i += info.block_elements, block += info.block_bytes) {
    read(Block(block), out.data() + i);
  }
}

bool CanQuantize(GgufTensorType type) {
  return type == GgufTensorType::kF32 || type == GgufTensorType::kF16 ||
         type == GgufTensorType::kBF16 || type == GgufTensorType::kQ8_0;
}

void Quantize(GgufTensorType type, std::span<const float> values, std::vector<char>& out) {
  SANDGLASS_CHECK(CanQuantize(type), "a type that can be written");
  out.resize(QuantizedBytes(type, std::ssize(values)));
  switch (type) {
    case GgufTensorType::kQ8_0: {
      char* block = out.data();
      const int64_t block_bytes = InfoOf(type).block_bytes;
      for (size_t i = 0; i < values.size(); i += kSmall, block += block_bytes) {
        QuantizeQ8_0(values.subspan(i, kSmall), block);
      }
      return;
    }
    case GgufTensorType::kF16:
    case GgufTensorType::kBF16: {
      const auto convert = type == GgufTensorType::kF16 ? ToF16 : ToBf16;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t half = convert(values[i]);
        std::memcpy(out.data() + 2 * i, &half, sizeof(half));
      }
      return;
    }
    default:
      if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  }
}

}  // namespace sandglass
