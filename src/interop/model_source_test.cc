#include "interop/model_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/testing.h"
#include "interop/names.h"
#include "io/safetensors.h"
#include "model/model.h"

namespace sandglass {
namespace {

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 5, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

// A directory of a tiny Llama, tied, which tests then damage.
class ModelSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    CreateDirectories(root_);
    Write("config.json", kConfig);
    ModelConfig config{.shape = Shape::Parse("L1-d8-a2x4-f1x12"), .vocabulary = 5};
    config.embeddings = Embeddings::kTied;
    float next = 0;
    for (const TensorPlace& place : TensorPlaces(config, Architecture::kHfLlama)) {
      Tensor& tensor = tensors_[place.name];
      tensor.shape = place.shape();
      for (int64_t i = 0; i < place.elements(); ++i) tensor.values.push_back(next += 0.25f);
    }
    WriteTensors();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  void WriteTensors() {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) {
      named.push_back(
          {name, tensor.shape, ViewOf(tensor.values.data(), 1, std::ssize(tensor.values))});
    }
    WriteSafetensors(root_ + "/model.safetensors", named);
  }
  void Write(const std::string& name, std::string_view text) {
    WriteFileAtomically(root_ + "/" + name, text);
  }
  ErrorParts Refusal() {
    WriteTensors();
    return FailureOf([&] { OpenForeignModel(root_); });
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path();
  std::map<std::string, Tensor> tensors_;
};

TEST_F(ModelSourceTest, WeightsLandWhereTheyBelong) {
  const auto source = OpenForeignModel(root_);
  EXPECT_EQ(source->description(), "LlamaForCausalLM in F32");
  EXPECT_FALSE(source->LoadTokenizer());
  Model model(source->config(), {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, false);
  int64_t done = 0;
  source->LoadWeights(model.params(), [&](int64_t elements) { done = elements; });
  EXPECT_EQ(done, model.params().elements());
  for (const ParamSpec& spec : model.params().specs()) {
    if (spec.name != "layers.0.attention.w_qkv") continue;
    const auto& key = tensors_["model.layers.0.self_attn.k_proj.weight"].values;
    EXPECT_EQ(spec.param->value.Row<float>(8)[0], key[0]);
    EXPECT_EQ(spec.param->value.Row<float>(15)[7], key[63]);
  }
}

TEST_F(ModelSourceTest, ATiedHeadMayBeStoredTwice) {
  tensors_["lm_head.weight"] = tensors_["model.embed_tokens.weight"];
  WriteTensors();
  EXPECT_NO_THROW(OpenForeignModel(root_));
  tensors_["lm_head.weight"].values[7] += 1;
  EXPECT_NE(Refusal().what.find("\"lm_head.weight\" has no place"), std::string::npos);
}

TEST_F(ModelSourceTest, TensorsThatDoNotFitAreRefusedByName) {
  const std::string query = "model.layers.0.self_attn.q_proj.weight";
  const std::string bias = "model.layers.0.self_attn.q_proj.bias";
  tensors_[bias] = {{8}, std::vector<float>(8)};
  ErrorParts parts = Refusal();
  EXPECT_NE(parts.what.find(bias), std::string::npos);
  EXPECT_EQ(parts.expected, "a model without biases");
  EXPECT_EQ(parts.where, root_ + "/model.safetensors");
  tensors_.erase(bias);

  const Tensor whole = tensors_[query];
  tensors_[query] = {{4, 8}, std::vector<float>(32)};
  parts = Refusal();
  EXPECT_EQ(parts.what, "tensor \"" + query + "\" is [4, 8]");
  EXPECT_EQ(parts.expected, "[8, 8], as the configuration has it");

  tensors_.erase(query);
  tensors_["model.layers.0.self_attn.q_proj.wieght"] = whole;
  parts = Refusal();
  EXPECT_EQ(parts.what, "there is no tensor \"" + query + "\"");
  EXPECT_TRUE(parts.remedy.starts_with("did you mean")) << parts.remedy;
}

TEST_F(ModelSourceTest, WeightsThatAreNotFiniteAreRefused) {
  tensors_["model.norm.weight"].values[3] = std::nanf("");
  WriteTensors();
  const auto source = OpenForeignModel(root_);
  Model model(source->config(), {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, false);
  const ErrorParts parts = FailureOf([&] { source->LoadWeights(model.params()); });
  EXPECT_EQ(parts.what, "tensor \"model.norm.weight\" holds nan at element 3");
  EXPECT_EQ(parts.where, root_ + "/model.safetensors");
}

TEST_F(ModelSourceTest, PlacesWithoutAModelAreRefused) {
  EXPECT_EQ(FailureOf([&] { OpenForeignModel(root_ + "/nothing"); }).what,
            "there is no such model");
  std::filesystem::remove(root_ + "/model.safetensors");
  EXPECT_NE(FailureOf([&] { OpenForeignModel(root_); }).what.find("there are no weights"),
            std::string::npos);
  std::filesystem::remove(root_ + "/config.json");
  EXPECT_EQ(FailureOf([&] { OpenForeignModel(root_); }).what,
            "the directory holds no model that is known");
  Write("model.bin", "not a model");
  EXPECT_NE(FailureOf([&] { OpenForeignModel(root_ + "/model.bin"); }).what.find("not a GGUF file"),
            std::string::npos);
}

TEST(ModelDifferences, NamesWhatChangesTheComputation) {
  ModelConfig given{.shape = Shape::Parse("L1-d8-a2x4-f1x12"), .vocabulary = 5};
  ModelConfig wanted = given;
  wanted.init_std = 0.5;
  wanted.z_loss = 0.1;
  EXPECT_TRUE(ModelDifferences(given, wanted).empty());
  wanted.shape = Shape::Parse("L1-d8-a2x4-f2x12");
  wanted.rope_scaling = RopeScaling{RopeScalingKind::kLinear, 2.0};
  const std::vector<std::string> differences = ModelDifferences(given, wanted);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_NE(differences[0].find("shape"), std::string::npos);
  EXPECT_NE(differences[1].find("rope_scaling"), std::string::npos);
}

}  // namespace
}  // namespace sandglass
