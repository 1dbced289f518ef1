// Twenty steps of AdamW beside PyTorch's, from equal weights on equal data: the models and losses
// that `peers/run.sh golden` wrote (see src/interop/golden_test.cc).
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "interop/model_source.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace sandglass {
namespace {

class LossCurveTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LossCurveTest, IsPyTorchs) {
  const std::string directory =
      std::string(SANDGLASS_SOURCE_DIR) + "/src/interop/testdata/golden/" + GetParam();
  const Json curve = Json::parse(ReadFile(directory + "/golden.json")).at("curve");
  const auto rows = curve.at("rows").get<std::vector<std::vector<std::vector<int32_t>>>>();
  const auto losses = curve.at("losses").get<std::vector<double>>();
  ASSERT_EQ(rows.size(), losses.size());
  const int batch = static_cast<int>(rows[0].size());
  const int length = static_cast<int>(rows[0][0].size()) - 1;

  const auto source = OpenForeignModel(directory);
  ModelConfig config = source->config();
  config.z_loss = curve.at("z_loss").get<double>();
  // In double on both sides: rounding in f32 grows from step to step until it hides what is
  // compared.
  const auto backend = MakeReferenceBackend(DType::kF64);
  Model model(config,
              {.purpose = Purpose::kTrain, .batch = batch, .length = length, .dtype = DType::kF64});
  model.Allocate(*backend);
  ParamTable stored;
  std::vector<Param> stored_params(model.params().specs().size());
  for (size_t i = 0; i < stored_params.size(); ++i) {
    const ParamSpec& spec = model.params().specs()[i];
    stored.Declare(stored_params[i], spec.name, spec.role, spec.rows, spec.cols, spec.init);
  }
  stored.Grant(DType::kF32, /*with_gradients=*/false);
  source->LoadWeights(stored);
  for (size_t i = 0; i < stored_params.size(); ++i) {
    const ParamSpec& spec = model.params().specs()[i];
    std::copy_n(stored_params[i].value.Row<float>(), spec.elements(),
                spec.param->value.Row<double>());
  }
  const double learning_rate = curve.at("learning_rate").get<double>();
  Optimizer optimizer(model.params(), {.learning_rate = learning_rate,
                                       .beta1 = curve.at("beta1").get<double>(),
                                       .beta2 = curve.at("beta2").get<double>(),
                                       .epsilon = curve.at("epsilon").get<double>(),
                                       .weight_decay = curve.at("weight_decay").get<double>(),
                                       .clip_norm = curve.at("clip_norm").get<double>()});

  // PyTorch adds 1e-6 to the norm that it clips by.
  constexpr double kTolerance = 1e-5;
  for (size_t step = 0; step < rows.size(); ++step) {
    std::vector<int32_t> ids, targets;
    for (const std::vector<int32_t>& row : rows[step]) {
      ids.insert(ids.end(), row.begin(), row.end() - 1);
      targets.insert(targets.end(), row.begin() + 1, row.end());
    }
    backend->Zero(model.params().grads());
    const LossSums sums = model.LossAndGradients(
        {.batch = batch, .length = length, .ids = ids, .targets = targets}, 1.0 / (batch * length));
    EXPECT_NEAR(sums.cross_entropy / static_cast<double>(sums.tokens), losses[step], kTolerance)
        << "step " << step + 1;
    optimizer.Step(*backend, model.params(),
                   {.update = static_cast<int64_t>(step) + 1,
                    .learning_rate = learning_rate,
                    .gradient_norm = MeasureGradients(*backend, model.params()).global});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LossCurveTest,
                         ::testing::Values("hourglass", "hourglass-head-norm",
                                           "hourglass-full-norm", "hourglass-post-norm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace sandglass
