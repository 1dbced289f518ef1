#include "interop/gguf_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/testing.h"
#include "interop/blocks.h"
#include "interop/names.h"
#include "io/testing.h"

namespace sandglass {
namespace {

// What the shape of a llama file is read from.
GgufTestFile Llama(const char* architecture = "llama") {
  const auto key = [&](const char* name) { return std::string(architecture) + "." + name; };
  GgufTestFile file;
  file.Text("general.architecture", architecture)
      .U32(key("block_count"), 2)
      .U32(key("context_length"), 64)
      .U32(key("embedding_length"), 24)
      .U32(key("attention.head_count_kv"), 2)
      .F32(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .U32(key("rope.dimension_count"), 8)
      .U32(key("attention.key_length"), 8)
      .U32(key("attention.value_length"), 8);
  file.F32Tensor("token_embd.weight", {3, 24}, std::vector<float>(72));
  file.F32Tensor("output_norm.weight", {24}, std::vector<float>(24));
  return file;
}

GgufTestFile WithSizes(GgufTestFile file) {
  return file.U32("llama.attention.head_count", 4).U32("llama.feed_forward_length", 40);
}

GgufConfig Read(const GgufTestFile& file) {
  const std::string bytes = file.bytes();
  return ReadGgufConfig(GgufFile(bytes, "model.gguf"));
}

void ExpectRefused(const GgufTestFile& file, const std::string& text) {
  const ErrorParts parts = FailureOf([&] { Read(file); });
  EXPECT_NE(parts.what.find(text), std::string::npos) << parts.what;
}

TEST(GgufConfig, Sizes) {
  const GgufConfig read = Read(WithSizes(Llama()));
  EXPECT_EQ(read.architecture, Architecture::kGgufLlama);
  EXPECT_EQ(read.config.shape.ToString(), "L2-d24-a4x8-kv2-f1x40");
  EXPECT_EQ(read.config.norm_epsilon, 1e-5);
  EXPECT_EQ(read.config.vocabulary, 3);
  EXPECT_EQ(read.config.embeddings, Embeddings::kTied);
  EXPECT_EQ(read.context_length, 64);
}

TEST(GgufConfig, WhatCannotBeRepresentedIsRefusedByName) {
  const auto with = [](const auto& change) {
    GgufTestFile file = WithSizes(Llama());
    change(file);
    return file;
  };
  ExpectRefused(GgufTestFile().Text("general.architecture", "gemma3"), "gemma3");
  ExpectRefused(GgufTestFile(), "general.architecture");
  ExpectRefused(with([](auto& f) { f.U32("llama.expert_count", 8); }), "llama.expert_count");
  ExpectRefused(with([](auto& f) { f.U32("llama.attention.sliding_window", 512); }),
                "sliding_window");
  ExpectRefused(with([](auto& f) { f.Text("llama.rope.scaling.type", "yarn"); }), "\"yarn\"");
  ExpectRefused(with([](auto& f) { f.F32("llama.logit_scale", 2.0f); }), "llama.logit_scale");
  ExpectRefused(with([](auto& f) { f.U32("split.count", 3); }), "several files");
  ExpectRefused(with([](auto& f) {
                  f.F32Tensor("rope_freqs.weight", {4}, {1, 1, 3, 2});
                }),
                "rope_freqs.weight");
  ExpectRefused(with([](auto& f) {
                  f.F32Tensor("rope_freqs.weight", {3}, {1, 1, 1});
                }),
                "another number of factors");
  ExpectRefused(Llama().U32("llama.attention.head_count", 4), "no key llama.feed_forward_length");
  ExpectRefused(Llama().U32("llama.attention.head_count", 0).U32("llama.feed_forward_length", 4),
                "it has no attention");
  ExpectRefused(
      Llama().U32("llama.attention.head_count", 4).I32s("llama.feed_forward_length", {40, 41}),
      "block 1: the layer that ends here has 1 MLPs of widths 41");
  ExpectRefused(
      Llama().U32("llama.attention.head_count", 4).I32s("llama.feed_forward_length", {40}),
      "has 1 entries for 2 blocks");
}

TEST(GgufConfig, LinearScaling) {
  const auto read = [](const auto& change) {
    GgufTestFile file = WithSizes(Llama());
    change(file);
    return Read(file).config.rope_scaling;
  };
  EXPECT_EQ(read([](auto& f) {
              f.Text("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4.0f);
            }),
            (RopeScaling{RopeScalingKind::kLinear, 4.0}));
  EXPECT_EQ(read([](auto& f) { f.Text("llama.rope.scaling.type", "none"); }), std::nullopt);
}

TEST(GgufConfig, DeciBlocksRegroup) {
  const auto read = [](const std::vector<int32_t>& heads, const std::vector<int32_t>& kv_heads,
                       const std::vector<int32_t>& ffn) {
    GgufTestFile file;
    file.Text("general.architecture", "deci")
        .U32("deci.block_count", static_cast<uint32_t>(heads.size()))
        .U32("deci.embedding_length", 24)
        .F32("deci.attention.layer_norm_rms_epsilon", 1e-5f)
        .I32s("deci.attention.head_count", heads)
        .I32s("deci.attention.head_count_kv", kv_heads)
        .I32s("deci.feed_forward_length", ffn)
        .U32("deci.attention.key_length", 8);
    for (const char* name : {"token_embd.weight", "a", "b", "c", "d", "e"}) {
      file.F32Tensor(name, {1, 24}, std::vector<float>(24));
    }
    return Read(file).config.shape.ToString();
  };
  EXPECT_EQ(read({4, 0, 4, 0}, {2, 0, 2, 0}, {16, 8, 16, 8}), "L2-d24-a4x8-kv2-f16,8");
  EXPECT_EQ(read({4, 0, 0}, {4, 0, 0}, {9, 9, 9}), "L1-d24-a4x8-f3x9");
  const auto refusal = [&](auto heads, auto kv_heads, auto ffn) {
    return FailureOf([&] { read(heads, kv_heads, ffn); }).what;
  };
  using Sizes = std::vector<int32_t>;
  EXPECT_NE(refusal(Sizes{0, 4}, Sizes{0, 4}, Sizes{8, 8}).find("block 0: it has no attention"),
            std::string::npos);
  EXPECT_NE(refusal(Sizes{4, 0, 4}, Sizes{4, 0, 4}, Sizes{8, 8, 8}).find("block 2: the layer"),
            std::string::npos);
  EXPECT_NE(refusal(Sizes{4, 4}, Sizes{4, 2}, Sizes{8, 8}).find("block 1: 4 heads and 2"),
            std::string::npos);
  EXPECT_NE(refusal(Sizes{4, 4}, Sizes{4, 0}, Sizes{8, 8}).find("linear attention"),
            std::string::npos);
  EXPECT_NE(refusal(Sizes{4, 4}, Sizes{4, 4}, Sizes{8, 0}).find("block 1: it has no MLP"),
            std::string::npos);
}

// What is stored of Llama 3.1's scaling is enough to find it again.
TEST(GgufConfig, Llama3ScalingIsFoundInItsFactors) {
  ModelConfig config{.shape = Shape::Parse("L1-d8-a1x64-f1x8"), .vocabulary = 4};
  config.rope_theta = 500000.0;
  for (const RopeScaling& scaling : {RopeScaling{RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 8192},
                                     RopeScaling{RopeScalingKind::kLlama3, 32.0, 1.0, 4.0, 8192},
                                     RopeScaling{RopeScalingKind::kLlama3, 4.0, 1.0, 8.0, 4096}}) {
    config.rope_scaling = scaling;
    EXPECT_EQ(FindLlama3Scaling(RopeFactors(config), config.rope_theta), scaling);
  }
  std::vector<float> factors = RopeFactors(config);
  factors[factors.size() / 2] *= 1.01f;
  EXPECT_EQ(FindLlama3Scaling(factors, config.rope_theta), std::nullopt);
}

}  // namespace
}  // namespace sandglass
