#include "io/gguf_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/testing.h"
#include "io/gguf_file.h"
#include "io/quantization.h"

namespace sandglass {
namespace {

// Elements 0, step, 2*step, ...
auto Ramp(float step) {
  return [step](std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = step * static_cast<float>(i);
  };
}

std::vector<float> ReadBack(const GgufFile& file, const std::string& name) {
  const GgufFile::Tensor* tensor = file.Find(name);
  std::vector<float> values(tensor->elements());
  Dequantize(tensor->type, file.Bytes(*tensor), values);
  return values;
}

TEST(GgufWriter, ReadsBackAsWritten) {
  const TestDirectory place;
  const std::string path = place / "model.gguf";
  GgufWriter writer;
  writer.Add("general.architecture", "deci");
  writer.Add("deci.block_count", uint32_t{7});
  writer.Add("deci.rope.freq_base", 10000.5f);
  writer.Add("tokenizer.ggml.add_bos_token", true);
  writer.Add("deci.feed_forward_length", std::vector<uint32_t>{3, 1, 4000000000u});
  writer.Add("types", std::vector<int32_t>{-1, 6});
  writer.Add("scores", std::vector<float>{0.5f, -2.0f});
  writer.Add("tokens", std::vector<std::string>{"", "Ġa", "\n"});
  writer.AddTensor("odd", GgufTensorType::kF32, {5}, Ramp(0.25f));
  writer.AddTensor("half", GgufTensorType::kF16, {3, 2}, Ramp(0.5f));
  writer.AddTensor("brain", GgufTensorType::kBF16, {2, 3}, Ramp(2.0f));
  writer.AddTensor("blocks", GgufTensorType::kQ8_0, {2, 64}, Ramp(1.0f));
  uint64_t last = 0;
  writer.Write(path, [&](uint64_t done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_EQ(last, writer.tensor_bytes());
  EXPECT_EQ(last, 5u * 4 + 6 * 2 + 6 * 2 + 4 * 34);

  const GgufFile file(path);
  EXPECT_EQ(file.Require<std::string_view>("general.architecture"), "deci");
  EXPECT_EQ(file.Require<int64_t>("deci.block_count"), 7);
  EXPECT_EQ(file.Require<double>("deci.rope.freq_base"), 10000.5);
  EXPECT_EQ(file.Require<bool>("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(file.Require<std::vector<int64_t>>("deci.feed_forward_length"),
            (std::vector<int64_t>{3, 1, 4000000000}));
  EXPECT_EQ(file.Require<std::vector<int64_t>>("types"), (std::vector<int64_t>{-1, 6}));
  EXPECT_EQ(file.Require<std::vector<double>>("scores"), (std::vector<double>{0.5, -2.0}));
  EXPECT_EQ(file.Require<std::vector<std::string_view>>("tokens"),
            (std::vector<std::string_view>{"", "Ġa", "\n"}));
  EXPECT_EQ(file.Find("half")->shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(ReadBack(file, "odd"), (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1}));
  EXPECT_EQ(ReadBack(file, "half"), (std::vector<float>{0, 0.5f, 1, 1.5f, 2, 2.5f}));
  EXPECT_EQ(ReadBack(file, "brain"), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  const std::vector<float> blocks = ReadBack(file, "blocks");
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_NEAR(blocks[i], i, 0.5f) << i;
}

TEST(GgufWriter, ValuesBeyondF16AreRefusedAndNothingIsLeft) {
  const TestDirectory place;
  const std::string directory = place.path();
  GgufWriter writer;
  writer.AddTensor("blk.0.ffn_up.weight", GgufTensorType::kF16, {3}, Ramp(40000.0f));
  const ErrorParts failure = FailureOf([&] { writer.Write(directory + "/x.gguf"); });
  EXPECT_NE(failure.what.find("blk.0.ffn_up.weight holds 80000"), std::string::npos)
      << failure.what;
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

}  // namespace
}  // namespace sandglass
