#include "interop/hf_config.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing.h"

namespace sandglass {
namespace {

Json Llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 30,
      "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "torch_dtype": "bfloat16"})");
}

HfConfig Parse(const Json& json) { return ParseHfConfig(json.dump(), "config.json"); }

// Llama() with other keys.
HfConfig With(const Json& changes) {
  Json json = Llama();
  json.update(changes);
  return Parse(json);
}

void ExpectRefused(const Json& changes, const std::string& text) {
  const ErrorParts parts = FailureOf([&] { With(changes); });
  EXPECT_EQ(parts.where, "config.json");
  EXPECT_NE(parts.what.find(text), std::string::npos) << parts.what;
}

TEST(HfConfig, Sizes) {
  const HfConfig parsed = Parse(Llama());
  EXPECT_EQ(parsed.architecture, Architecture::kHfLlama);
  EXPECT_EQ(parsed.config.shape.ToString(), "L2-d24-a4x8-kv2-f1x40");
  EXPECT_EQ(parsed.config.vocabulary, 30);
  EXPECT_EQ(parsed.config.norm_epsilon, 1e-5);
  EXPECT_EQ(parsed.config.rope_theta, 10000.0);
  EXPECT_EQ(parsed.config.embeddings, Embeddings::kUntied);
  EXPECT_EQ(parsed.context_length, 512);
  EXPECT_TRUE(parsed.not_used.empty());
  EXPECT_EQ(With({{"tie_word_embeddings", true}}).config.embeddings, Embeddings::kTied);
  EXPECT_EQ(With({{"head_dim", nullptr}}).config.shape.head_width, 6);
  EXPECT_EQ(With({{"num_key_value_heads", nullptr}}).config.shape.kv_heads, 4);
  EXPECT_EQ(With({{"new_idea", 3}}).not_used, std::vector<std::string>{"new_idea"});
}

TEST(HfConfig, Families) {
  const HfConfig qwen3 = With({{"architectures", {"Qwen3ForCausalLM"}},
                               {"model_type", "qwen3"},
                               {"head_dim", nullptr},
                               {"use_sliding_window", false},
                               {"sliding_window", 4096}});
  EXPECT_EQ(qwen3.config.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(qwen3.config.shape.head_width, 128);
  const HfConfig olmo2 = With({{"architectures", nullptr}, {"model_type", "olmo2"}});
  EXPECT_EQ(olmo2.architecture, Architecture::kHfOlmo2);
  EXPECT_EQ(olmo2.config.norm, NormPlacement::kPost);
  EXPECT_EQ(olmo2.config.qk_norm, QkNorm::kFullWidth);
  const HfConfig own = With({{"architectures", {"SandglassForCausalLM"}},
                             {"model_type", "sandglass"},
                             {"intermediate_size", nullptr},
                             {"intermediate_sizes", {16, 8}},
                             {"norm_placement", "post"},
                             {"qk_norm", "full"}});
  EXPECT_EQ(own.config.shape.ffn, (std::vector<int>{16, 8}));
  EXPECT_EQ(own.config.norm, NormPlacement::kPost);
}

// transformers 4 and 5 spell the same rotation in two ways.
TEST(HfConfig, RopeInBothSpellings) {
  const RopeScaling llama3{RopeScalingKind::kLlama3, 32.0, 1.0, 4.0, 8192};
  const Json numbers = {{"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  Json scaling = numbers;
  scaling["rope_type"] = "llama3";
  const ModelConfig older = With({{"rope_theta", 5e5}, {"rope_scaling", scaling}}).config;
  scaling["rope_theta"] = 5e5;
  const ModelConfig newer = With({{"rope_parameters", scaling}, {"dtype", "bfloat16"}}).config;
  for (const ModelConfig& config : {older, newer}) {
    EXPECT_EQ(config.rope_theta, 5e5);
    EXPECT_EQ(config.rope_scaling, llama3);
  }
  const Json linear = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(With({{"rope_scaling", linear}}).config.rope_scaling,
            (RopeScaling{RopeScalingKind::kLinear, 2.0}));
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 7e4}};
  EXPECT_EQ(With({{"rope_parameters", plain}}).config.rope_theta, 7e4);
  EXPECT_FALSE(With({{"rope_parameters", plain}}).config.rope_scaling);
}

TEST(HfConfig, WhatCannotBeRepresentedIsRefusedByName) {
  ExpectRefused({{"architectures", {"MixtralForCausalLM"}}}, "MixtralForCausalLM");
  ExpectRefused({{"architectures", nullptr}, {"model_type", "gemma3"}}, "\"gemma3\"");
  ExpectRefused({{"attention_bias", true}}, "attention_bias = true");
  ExpectRefused({{"mlp_bias", true}}, "mlp_bias = true");
  ExpectRefused({{"hidden_act", "gelu"}}, "hidden_act = \"gelu\"");
  ExpectRefused({{"sliding_window", 4096}}, "sliding_window = 4096");
  ExpectRefused({{"use_sliding_window", true}}, "use_sliding_window = true");
  ExpectRefused({{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types");
  ExpectRefused({{"num_local_experts", 8}}, "num_local_experts = 8");
  ExpectRefused({{"quantization_config", {{"bits", 4}}}}, "quantised weights");
  ExpectRefused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor = 0.5");
  ExpectRefused({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, "type \"yarn\"");
  ExpectRefused({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}, "type \"dynamic\"");
  ExpectRefused({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"mscale", 2}}}},
                "rope_parameters.mscale");
}

TEST(HfConfig, FactorsOfOneChangeNothingButOtherScalesOfScoresDo) {
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling",
                          "scale_emb", "partial_rotary_factor", "num_experts"}) {
    EXPECT_TRUE(With({{key, 1.0}}).not_used.empty()) << key;
    ExpectRefused({{key, 2.0}}, key);
  }
  for (const char* key : {"attention_multiplier", "query_pre_attn_scalar", "use_parallel_residual",
                          "use_alibi", "attn_output_gate", "scale_depth"}) {
    EXPECT_TRUE(With({{key, nullptr}}).not_used.empty()) << key;
    ExpectRefused({{key, 1}}, key);
  }
}

TEST(HfConfig, ModellingCodeOfItsOwnIsRefused) {
  const Json code = {{"AutoModelForCausalLM", "modeling_other.OtherForCausalLM"}};
  ExpectRefused({{"auto_map", code}}, "modelling code of its own");
  EXPECT_TRUE(With({{"auto_map", {{"AutoConfig", "configuration.Config"}}}}).not_used.empty());
  EXPECT_EQ(With({{"architectures", {"SandglassForCausalLM"}},
                  {"intermediate_sizes", {16, 8}},
                  {"auto_map", code}})
                .architecture,
            Architecture::kHfSandglass);
}

TEST(HfConfig, DamagedFilesAreRefused) {
  for (const char* text : {"", "{", "[]", "3", "{\"architectures\": 5}"}) {
    EXPECT_EQ(FailureOf([&] { ParseHfConfig(text, "config.json"); }).where, "config.json") << text;
  }
  ExpectRefused({{"hidden_size", nullptr}}, "hidden_size is missing");
  EXPECT_NE(FailureOf([] {
              With({{"hidden_size", "24"}});
            }).where.find("hidden_size"),
            std::string::npos);
  EXPECT_NE(FailureOf([] { With({{"vocab_size", -1}}); }).what.find("-1"), std::string::npos);
  EXPECT_NE(FailureOf([] {
              With({{"num_attention_heads", 0}});
            }).what.find("num_attention_heads"),
            std::string::npos);
  EXPECT_THROW(With({{"num_hidden_layers", 1e30}}), Error);
  EXPECT_THROW(With({{"head_dim", 7}}), Error);
}

TEST(HfConfig, BlocksOfNemotronNasRegroup) {
  const auto block = [](bool attention, int width) {
    return Json{{"attention", {{"no_op", !attention}, {"n_heads_in_group", attention ? 2 : 1}}},
                {"ffn", {{"no_op", false}, {"intermediate_size", width}}}};
  };
  const Json four = {block(true, 16), block(false, 8), block(true, 16), block(false, 8)};
  const Json names = {{"architectures", {"DeciLMForCausalLM"}}, {"model_type", "nemotron-nas"}};
  Json changes = names;
  changes["block_configs"] = four;
  EXPECT_EQ(With(changes).config.shape.ToString(), "L2-d24-a4x8-kv2-f16,8");
  changes["block_configs"][0]["ffn"]["ffn_mult"] = 1.3;
  ExpectRefused(changes, "block_configs[0].ffn.ffn_mult");
  changes["block_configs"] = 3;
  ExpectRefused(changes, "block_configs is not a list");
  ExpectRefused(names, "block_configs is missing");
}

}  // namespace
}  // namespace sandglass
