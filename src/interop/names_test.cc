#include "interop/names.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "model/model.h"

namespace sandglass {
namespace {

ModelConfig Config(const char* shape) {
  ModelConfig config{.shape = Shape::Parse(shape), .vocabulary = 30};
  config.vocabulary_multiple = 8;
  return config;
}

const TensorPlace& Find(const std::vector<TensorPlace>& places, const std::string& name) {
  for (const TensorPlace& place : places) {
    if (place.name == name) return place;
  }
  ADD_FAILURE() << "no tensor " << name;
  return places.front();
}

// Every architecture with a model that it can hold.
std::vector<std::pair<Architecture, ModelConfig>> Examples() {
  const ModelConfig one = Config("L2-d24-a4x8-kv2-f1x40");
  ModelConfig qwen3 = one;
  qwen3.qk_norm = QkNorm::kPerHead;
  ModelConfig olmo2 = one;
  olmo2.norm = NormPlacement::kPost;
  olmo2.qk_norm = QkNorm::kFullWidth;
  ModelConfig four = Config("L2-d24-a4x8-kv2-f16,8,12");
  four.embeddings = Embeddings::kTied;
  ModelConfig any = four;
  any.qk_norm = QkNorm::kFullWidth;
  using enum Architecture;
  return {{kHfLlama, one},        {kHfQwen3, qwen3}, {kHfOlmo2, olmo2},
          {kHfSandglass, any},    {kGgufLlama, one}, {kGgufQwen3, qwen3},
          {kHfNemotronNas, four}, {kGgufDeci, four}, {kGgufOlmo2, olmo2}};
}

TEST(TensorPlaces, HoldEveryRowOfEveryParameterOnce) {
  for (const auto& [architecture, config] : Examples()) {
    SCOPED_TRACE(EnumName(architecture));
    const Model model(config, {.purpose = Purpose::kEvaluate});
    std::map<std::string, std::vector<int>> seen;  // how often each row is held
    for (const ParamSpec& spec : model.params().specs()) seen[spec.name].resize(spec.rows);
    std::set<std::string> names;
    for (const TensorPlace& place : TensorPlaces(config, architecture)) {
      EXPECT_TRUE(names.insert(place.name).second) << place.name << " twice";
      ASSERT_TRUE(seen.contains(place.param)) << place.param;
      for (int64_t row = 0; row < place.rows; ++row) ++seen[place.param].at(place.first_row + row);
    }
    for (const auto& [param, rows] : seen) {
      const bool padded = param == "embedding" || param == "head";
      for (size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(rows[row], padded && row >= 30 ? 0 : 1) << param << " row " << row;
      }
    }
  }
}

TEST(TensorPlaces, InterleavedRowsGoThereAndBack) {
  const ModelConfig config = Config("L1-d2-a2x6-kv1-f1x4");
  const TensorPlace place =
      Find(TensorPlaces(config, Architecture::kGgufLlama), "blk.0.attn_q.weight");
  std::vector<float> param(24 * 2);
  std::iota(param.begin(), param.end(), 0.0f);
  std::vector<float> file(12 * 2);
  ToFileOrder(place, ViewOf(param.data(), 24, 2), file);
  // Channel 2i of a head in the file is our channel i, channel 2i + 1 our channel i + 3.
  const std::vector<float> rows = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};
  for (size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(file[2 * row], 2 * rows[row]) << row;
  std::vector<float> back(24 * 2);
  FromFileOrder(place, file, ViewOf(back.data(), 24, 2));
  for (int i = 0; i < 24; ++i) EXPECT_EQ(back[i], param[i]) << i;
}

TEST(TensorPlaces, NamesAndBlocksOfEachArchitecture) {
  using enum Architecture;
  const auto places = [](Architecture architecture) {
    for (const auto& [candidate, config] : Examples()) {
      if (candidate == architecture) return TensorPlaces(config, architecture);
    }
    return std::vector<TensorPlace>();
  };
  EXPECT_EQ(Find(places(kGgufDeci), "blk.4.ffn_up.weight").param, "layers.1.ffn.1.w_gate_up");
  EXPECT_EQ(Find(places(kGgufDeci), "blk.3.attn_k.weight").param, "layers.1.attention.w_qkv");
  EXPECT_EQ(Find(places(kHfNemotronNas), "model.layers.5.post_attention_layernorm.weight").param,
            "layers.1.ffn.2.norm");
  EXPECT_EQ(Find(places(kHfSandglass), "model.layers.1.mlps.2.down_proj.weight").cols, 12);
  EXPECT_EQ(Find(places(kHfSandglass), "model.layers.0.self_attn.k_norm.weight").cols, 16);
  EXPECT_EQ(Find(places(kHfOlmo2), "model.layers.0.post_attention_layernorm.weight").param,
            "layers.0.attention.norm");
  EXPECT_EQ(Find(places(kGgufOlmo2), "blk.1.post_ffw_norm.weight").param, "layers.1.ffn.0.norm");
  EXPECT_EQ(Find(places(kGgufQwen3), "blk.1.attn_q_norm.weight").cols, 8);
  EXPECT_EQ(Find(places(kGgufQwen3), "blk.1.attn_q.weight").order, RowOrder::kSame);
  EXPECT_EQ(Find(places(kGgufLlama), "output.weight").rows, 30);
}

TEST(TensorPlaces, GainsTakeInTheDepthFactorWhereTheProgramKnowsNone) {
  ModelConfig config = Config("L4-d24-a4x8-f2x16");
  config.depth_scaled_norm = true;
  const auto factor = [&](Architecture architecture, const char* name) {
    return Find(TensorPlaces(config, architecture), name).factor;
  };
  EXPECT_EQ(factor(Architecture::kGgufDeci, "blk.6.attn_norm.weight"), 0.5);
  EXPECT_EQ(factor(Architecture::kGgufDeci, "blk.7.ffn_norm.weight"), 0.5);
  EXPECT_EQ(factor(Architecture::kGgufDeci, "output_norm.weight"), 1.0);
  EXPECT_EQ(factor(Architecture::kHfSandglass, "model.layers.3.attention_norm.weight"), 1.0);
}

}  // namespace
}  // namespace sandglass
