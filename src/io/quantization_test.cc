#include "io/quantization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "tensor/half.h"

namespace sandglass {
namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST(Half, KnownValues) {
  EXPECT_EQ(ToF16(1.0f), 0x3c00);
  EXPECT_EQ(ToF16(-2.0f), 0xc000);
  EXPECT_EQ(ToF16(65504.0f), 0x7bff);  // the largest
  EXPECT_EQ(ToF16(65519.9f), 0x7bff);  // rounds down
  EXPECT_EQ(ToF16(65520.0f), 0x7c00);  // a tie, to even: infinity
  EXPECT_EQ(ToF16(0x1p-24f), 0x0001);  // the smallest
  EXPECT_EQ(ToF16(0x1p-25f), 0x0000);  // a tie, to even
  EXPECT_EQ(ToF16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(ToF16(-0.0f), 0x8000);
  EXPECT_EQ(ToF16(1.0f + 0x1p-11f), 0x3c00);    // a tie, to even
  EXPECT_EQ(ToF16(1.0f + 0x1.8p-10f), 0x3c02);  // a tie, to even
  EXPECT_EQ(ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_TRUE(std::isnan(FromF16(ToF16(std::nanf("")))));
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f), 0x3f80);    // a tie, to even
  EXPECT_EQ(ToBf16(1.0f + 0x1.8p-7f), 0x3f82);  // a tie, to even
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::nanf("")))));
}

TEST(Half, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(FromF16(half))) {
      EXPECT_EQ(ToF16(FromF16(half)), half);
    }
    if (!std::isnan(FromBf16(half))) {
      EXPECT_EQ(ToBf16(FromBf16(half)), half);
    }
  }
}

TEST(Quantization, BlocksMeanWhatTheReferenceSays) {
  const Json golden = Json::parse(ReadFile(SANDGLASS_SOURCE_DIR "/src/io/testdata/quantized.json"));
  int types = 0;
  for (const auto& [name, block] : golden["types"].items()) {
    const GgufTypeInfo* info = nullptr;
    for (uint32_t id = 0; id < 64 && info == nullptr; ++id) {
      if (GgufTypeName(id) == name) info = FindGgufType(id);
    }
    ASSERT_NE(info, nullptr) << name;
    const std::string bytes = FromHex(block["bytes"].get<std::string>());
    const auto expected = block["values"].get<std::vector<float>>();
    ASSERT_EQ(std::ssize(bytes), info->block_bytes) << name;
    ASSERT_EQ(std::ssize(expected), info->block_elements) << name;
    std::vector<float> values(expected.size());
    Dequantize(info->type, bytes, values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], 1e-6f * std::fabs(expected[i])) << name << " " << i;
    }
    ++types;
  }
  EXPECT_EQ(types, 10);
}

TEST(Quantization, WrittenTypesReadBack) {
  RandomStream random(3, "quantization");
  std::vector<float> values(96);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  std::fill(values.begin() + 32, values.begin() + 64, 0.0f);  // a block with no scale
  const auto error = [&](GgufTensorType type) {
    std::vector<char> bytes;
    Quantize(type, values, bytes);
    std::vector<float> again(values.size());
    Dequantize(type, {bytes.data(), bytes.size()}, again);
    float largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::fabs(again[i] - values[i]));
    }
    return largest;
  };
  EXPECT_EQ(error(GgufTensorType::kF32), 0.0f);
  // Half a unit in the last place of values below 4, and half a step of max|x| / 127.
  EXPECT_LE(error(GgufTensorType::kF16), 0x1p-10f);
  EXPECT_LE(error(GgufTensorType::kBF16), 0x1p-7f);
  EXPECT_LE(error(GgufTensorType::kQ8_0), 0.51f * 4.0f / 127.0f);
  EXPECT_GT(error(GgufTensorType::kQ8_0), 0.0f);
  EXPECT_FALSE(CanQuantize(GgufTensorType::kQ4_K));
}

}  // namespace
}  // namespace sandglass
