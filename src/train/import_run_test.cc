#include "train/import_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/testing.h"
#include "data/testing.h"
#include "interop/names.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"
#include "train/open_model.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// A tiny Llama in a Hugging Face directory, and a place to import it to.
class ImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    CreateDirectories(model_);
    WriteFileAtomically(model_ + "/config.json",
                        R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
                            "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 3000,
                            "max_position_embeddings": 64})");
    config_ = {.shape = Shape::Parse("L1-d8-a2x4-f1x12"), .vocabulary = 3000};
    config_.norm_epsilon = 1e-6;
    Save(0.01f);
  }
  void TearDown() override {
    SetInterruptRequested(false);
    fs::remove_all(root_);
  }

  void Save(float step) {
    std::vector<std::vector<float>> values;
    const auto places = TensorPlaces(config_, Architecture::kHfLlama);
    values.reserve(places.size());
    std::vector<NamedTensor> tensors;
    for (const TensorPlace& place : places) {
      std::vector<float>& tensor = values.emplace_back(place.elements());
      for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = step * static_cast<float>(i % 17);
      tensors.push_back({place.name, place.shape(), ViewOf(tensor.data(), 1, place.elements())});
    }
    WriteSafetensors(model_ + "/model.safetensors", tensors);
  }

  const TestDirectory directory_;
  const std::string root_ = directory_.path();
  const std::string model_ = root_ + "/llama";
  const std::string run_ = root_ + "/run";
  ModelConfig config_;
};

std::vector<float> WeightsOf(const ModelSource& source) {
  Model model(source.config(), {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, false);
  source.LoadWeights(model.params());
  const View values = model.params().values();
  return {values.Row<float>(), values.Row<float>() + values.cols};
}

TEST_F(ImportTest, TheRunIsTheModel) {
  const auto source = OpenForeignModel(model_);
  const ImportedRun imported = ImportRun(*source, run_);
  EXPECT_EQ(imported.tokenizer_hash, "");
  EXPECT_TRUE(IsRunDirectory(run_));
  EXPECT_NE(ReadRunInfo(run_).imported_from->find("LlamaForCausalLM in F32"), std::string::npos);
  const auto run = OpenModel(run_, [](std::string_view note) { ADD_FAILURE() << note; });
  EXPECT_TRUE(Differences(source->config(), run->config()).empty());
  EXPECT_EQ(WeightsOf(*run), WeightsOf(*source));
  EXPECT_EQ(run->context_length(), 64);
  EXPECT_EQ(run->text_start(), TextStart::kAsConfigured);
  EXPECT_FALSE(run->LoadTokenizer());
}

TEST_F(ImportTest, TheTokenizerComesAlong) {
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  tokenizer.Save(model_ + "/tokenizer.json");
  const ImportedRun imported = ImportRun(*OpenForeignModel(model_), run_);
  EXPECT_EQ(imported.tokenizer_hash, tokenizer.hash());
  EXPECT_EQ(OpenModel(run_, [](std::string_view) {})->LoadTokenizer()->hash(), tokenizer.hash());
}

TEST_F(ImportTest, InitialWeightsOfAnotherModelAreRefusedWithTheDifferences) {
  ImportRun(*OpenForeignModel(model_), run_);
  ModelConfig wanted = config_;
  wanted.rope_theta = 5e5;
  Model model(wanted, {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, false);
  for (const std::string& path : {run_, model_}) {
    const ErrorParts parts = FailureOf(
        [&] { LoadInitialWeights(path, wanted, model.params(), [](std::string_view) {}); });
    EXPECT_NE(parts.what.find("rope_theta"), std::string::npos) << parts.what;
    EXPECT_EQ(parts.where, "train.initial_weights = " + path);
  }
}

TEST_F(ImportTest, WhatFailsLeavesNothing) {
  const auto source = OpenForeignModel(model_);
  CreateDirectories(run_);
  WriteFileAtomically(run_ + "/letter.txt", "dear");
  EXPECT_EQ(FailureOf([&] { ImportRun(*source, run_); }).what, "the place is taken");
  EXPECT_EQ(ReadFile(run_ + "/letter.txt"), "dear");
  fs::remove_all(run_);

  Save(std::nanf(""));
  EXPECT_NE(FailureOf([&] { ImportRun(*OpenForeignModel(model_), run_); }).what.find("nan"),
            std::string::npos);
  Save(0.01f);
  SetInterruptRequested(true);
  EXPECT_THROW(ImportRun(*OpenForeignModel(model_), run_), Interrupted);
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_FALSE(fs::exists(run_ + ".partial"));
}

}  // namespace
}  // namespace sandglass
