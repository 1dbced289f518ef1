// Numbers of the GGUF container (github.com/ggml-org/ggml, docs/gguf.md): what the ids of value and
// tensor types mean, and how many bytes a tensor of a type takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sandglass {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufVersion = 3;
// Of the tensors' bytes, unless the key general.alignment says otherwise.
inline constexpr uint64_t kGgufAlignment = 32;
// A tensor name is shorter than this; a tensor has at most so many dimensions.
inline constexpr size_t kGgufNameBytes = 64;
inline constexpr uint32_t kGgufMaxDimensions = 4;

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Types whose values Sandglass can read. Others are known by name alone.
enum class GgufTensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// A tensor is rows of whole blocks.
struct GgufTypeInfo {
  GgufTensorType type;
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
};

const GgufTypeInfo& InfoOf(GgufTensorType type);
// Nullptr for an id that is not a GgufTensorType.
const GgufTypeInfo* FindGgufType(uint32_t id);
// The name of any id, those that cannot be read among them; "an unknown type" for the rest.
std::string_view GgufTypeName(uint32_t id);

// general.file_type: what most tensors of a file are.
enum class GgufFileType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 7, kBF16 = 32 };

}  // namespace sandglass
