// Models as other programs store them, and what those programs computed from them: transformers,
// llama.cpp, and a PyTorch decoder written from the equations. `peers/run.sh golden` wrote the
// files below testdata/golden; peers/make_golden.py says what each holds.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "interop/model_source.h"
#include "io/safetensors.h"
#include "model/model.h"

namespace sandglass {
namespace {

constexpr const char* kModels[] = {"llama",
                                   "qwen3",
                                   "olmo2",
                                   "hourglass",
                                   "hourglass-head-norm",
                                   "hourglass-full-norm",
                                   "hourglass-post-norm",
                                   "llama.gguf",
                                   "qwen3.gguf",
                                   "olmo2.gguf",
                                   "deci.gguf"};

struct Golden {
  explicit Golden(const std::string& name)
      : directory(std::string(SANDGLASS_SOURCE_DIR) + "/src/interop/testdata/golden/" + name),
        facts(Json::parse(ReadFile(directory + "/golden.json"))),
        expected(directory + "/expected.safetensors"),
        source(OpenForeignModel(name.ends_with(".gguf") ? directory + "/model.gguf" : directory)),
        ids(facts.at("ids").get<std::vector<int32_t>>()) {}

  int length() const { return static_cast<int>(ids.size()); }
  // The values of an expected tensor, row by row.
  std::vector<float> Expected(const std::string& name) const {
    std::vector<float> values(expected.Find(name).elements());
    expected.CopyTo(name, ViewOf(values.data(), 1, std::ssize(values)));
    return values;
  }

  std::string directory;
  Json facts;
  SafetensorsFile expected;
  std::unique_ptr<ModelSource> source;
  std::vector<int32_t> ids;
};

enum class Backends { kCpu, kReference };

std::unique_ptr<Backend> Make(Backends kind) {
  return kind == Backends::kCpu ? MakeCpuBackend(1) : MakeReferenceBackend(DType::kF32);
}

class GoldenTest : public ::testing::TestWithParam<std::tuple<const char*, Backends>> {
 protected:
  GoldenTest() : golden_(std::get<0>(GetParam())), backend_(Make(std::get<1>(GetParam()))) {}

  std::unique_ptr<Model> Load(const Capacity& capacity) {
    auto model = std::make_unique<Model>(golden_.source->config(), capacity);
    model->Allocate(*backend_);
    golden_.source->LoadWeights(model->params());
    return model;
  }

  Golden golden_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(GoldenTest, Logits) {
  const auto model = Load({.purpose = Purpose::kEvaluate, .length = golden_.length()});
  const std::vector<float> expected = golden_.Expected("logits");
  const int64_t vocabulary = model->config().vocabulary;
  ASSERT_EQ(expected.size(), static_cast<size_t>(golden_.length() * vocabulary));
  std::vector<float> logits(expected.size());
  model->Logits({.batch = 1, .length = golden_.length(), .ids = golden_.ids},
                ViewOf(logits.data(), golden_.length(), vocabulary));
  const double tolerance = golden_.facts.at("logits_tolerance").get<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[i], tolerance) << "position " << i / vocabulary;
  }
}

// Of the mean cross-entropy of each id after those before it; |difference| / |expected| of every
// parameter. GGUF files come from a program that has no gradients.
TEST_P(GoldenTest, Gradients) {
  if (!golden_.facts.contains("gradients_tolerance")) return;
  const int length = golden_.length() - 1;
  const auto model = Load({.purpose = Purpose::kTrain, .length = length});
  backend_->Zero(model->params().grads());
  const std::span<const int32_t> ids = golden_.ids;
  model->LossAndGradients(
      {.batch = 1, .length = length, .ids = ids.first(length), .targets = ids.subspan(1)},
      1.0 / length);
  const double tolerance = golden_.facts.at("gradients_tolerance").get<double>();
  for (const ParamSpec& spec : model->params().specs()) {
    const std::vector<float> expected = golden_.Expected("gradient." + spec.name);
    ASSERT_EQ(std::ssize(expected), spec.elements()) << spec.name;
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < spec.elements(); ++i) {
      const double got = spec.param->grad.Row<float>(i / spec.cols)[i % spec.cols];
      difference += (got - expected[i]) * (got - expected[i]);
      norm += static_cast<double>(expected[i]) * expected[i];
    }
    EXPECT_GT(norm, 0.0) << spec.name;
    EXPECT_LT(std::sqrt(difference / norm), tolerance) << spec.name;
  }
}

// llama.cpp's most likely continuation, through our cache of keys and values.
TEST_P(GoldenTest, GreedyContinuation) {
  if (!golden_.facts.contains("greedy")) return;
  const auto greedy = golden_.facts.at("greedy").get<std::vector<int32_t>>();
  const int prompt = golden_.length() - static_cast<int>(greedy.size());
  const auto model =
      Load({.purpose = Purpose::kEvaluate, .length = prompt, .cache_length = golden_.length()});
  std::vector<float> logits(model->config().vocabulary);
  std::vector<int32_t> fresh(golden_.ids.begin(), golden_.ids.begin() + prompt);
  std::vector<int32_t> continued;
  while (continued.size() < greedy.size()) {
    model->Decode(fresh, ViewOf(logits.data(), 1, std::ssize(logits)));
    continued.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    fresh = {continued.back()};
  }
  EXPECT_EQ(continued, greedy);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::Values(Backends::kCpu,
                                                              Backends::kReference)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name + (std::get<1>(info.param) == Backends::kCpu ? "_cpu"
                                                                                    : "_reference");
                         });

// Nothing below testdata/golden goes unchecked.
TEST(GoldenFiles, AreAllListed) {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(SANDGLASS_SOURCE_DIR) +
                                                               "/src/interop/testdata/golden")) {
    EXPECT_NE(std::ranges::find(kModels, entry.path().filename().string()), std::end(kModels))
        << entry.path();
    ++found;
  }
  EXPECT_EQ(found, std::size(kModels));
}

}  // namespace
}  // namespace sandglass
