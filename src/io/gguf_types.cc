#include "io/gguf_types.h"

#include <array>

#include "base/error.h"

namespace sandglass {
namespace {

constexpr std::array<GgufTypeInfo, 13> kTypes{{
    {GgufTensorType::kF32, "F32", 1, 4},
    {GgufTensorType::kF16, "F16", 1, 2},
    {GgufTensorType::kQ4_0, "Q4_0", 32, 2 + 16},
    {GgufTensorType::kQ4_1, "Q4_1", 32, 2 + 2 + 16},
    {GgufTensorType::kQ5_0, "Q5_0", 32, 2 + 4 + 16},
    {GgufTensorType::kQ5_1, "Q5_1", 32, 2 + 2 + 4 + 16},
    {GgufTensorType::kQ8_0, "Q8_0", 32, 2 + 32},
    {GgufTensorType::kQ2_K, "Q2_K", 256, 16 + 64 + 2 + 2},
    {GgufTensorType::kQ3_K, "Q3_K", 256, 32 + 64 + 12 + 2},
    {GgufTensorType::kQ4_K, "Q4_K", 256, 2 + 2 + 12 + 128},
    {GgufTensorType::kQ5_K, "Q5_K", 256, 2 + 2 + 12 + 32 + 128},
    {GgufTensorType::kQ6_K, "Q6_K", 256, 128 + 64 + 16 + 2},
    {GgufTensorType::kBF16, "BF16", 1, 2},
}};

struct IdName {
  uint32_t id;
  std::string_view name;
};
constexpr std::array kUnreadable = std::to_array<IdName>({{9, "Q8_1"},
                                                          {15, "Q8_K"},
                                                          {16, "IQ2_XXS"},
                                                          {17, "IQ2_XS"},
                                                          {18, "IQ3_XXS"},
                                                          {19, "IQ1_S"},
                                                          {20, "IQ4_NL"},
                                                          {21, "IQ3_S"},
                                                          {22, "IQ2_S"},
                                                          {23, "IQ4_XS"},
                                                          {24, "I8"},
                                                          {25, "I16"},
                                                          {26, "I32"},
                                                          {27, "I64"},
                                                          {28, "F64"},
                                                          {29, "IQ1_M"},
                                                          {34, "TQ1_0"},
                                                          {35, "TQ2_0"},
                                                          {39, "MXFP4"}});

}  // namespace

const GgufTypeInfo& InfoOf(GgufTensorType type) {
  const GgufTypeInfo* info = FindGgufType(static_cast<uint32_t>(type));
  SANDGLASS_CHECK(info != nullptr, "every tensor type is listed");
  return *info;
}

const GgufTypeInfo* FindGgufType(uint32_t id) {
  for (const GgufTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

std::string_view GgufTypeName(uint32_t id) {
  if (const GgufTypeInfo* info = FindGgufType(id)) return info->name;
  for (const IdName& other : kUnreadable) {
    if (other.id == id) return other.name;
  }
  return "an unknown type";
}

}  // namespace sandglass
