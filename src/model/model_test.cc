#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "base/random.h"
#include "model/attention.h"
#include "model/gated_mlp.h"

namespace sandglass {
namespace {

constexpr int kVocabulary = 11;

// In double the fourth-order difference quotient with this step has a rounding error around 1e-11
// of the loss. A larger step would show the truncation error where a post-norm sees a short vector
// and bends sharply (at 1e-3 the post-norm hourglass case reaches 1e-3).
constexpr double kStep = 1e-4;
constexpr double kTolerance = 1e-6;

double DifferenceQuotient(double& x, const std::function<double()>& f) {
  const double at = x;
  const auto value = [&](double offset) {
    x = at + offset;
    return f();
  };
  const double quotient =
      (value(-2 * kStep) - 8 * value(-kStep) + 8 * value(kStep) - value(2 * kStep)) / (12 * kStep);
  x = at;
  return quotient;
}

// || analytic - numeric || / || numeric || over all elements of one tensor.
double RelativeError(double* values, const double* gradients, int64_t elements,
                     const std::function<double()>& f) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < elements; ++i) {
    const double numeric = DifferenceQuotient(values[i], f);
    difference += (gradients[i] - numeric) * (gradients[i] - numeric);
    norm += numeric * numeric;
  }
  EXPECT_GT(norm, 0.0) << "a gradient that is zero everywhere shows nothing";
  return std::sqrt(difference / norm);
}

void FillNormal(double* values, int64_t elements, double mean, double std, const char* name) {
  RandomStream stream(5, name);
  for (int64_t i = 0; i < elements; ++i) values[i] = mean + std * stream.NextNormal();
}

// Gains are random too: with gains of one, a gain in the wrong place would go unseen.
void Randomize(ParamTable& params) {
  for (const ParamSpec& spec : params.specs()) {
    const bool gain = spec.init.kind == ParamInit::Kind::kOnes;
    FillNormal(spec.param->value.Row<double>(), spec.elements(), gain ? 1.0 : 0.0, 0.4,
               spec.name.c_str());
  }
}

struct Case {
  const char* name;
  const char* shape;
  NormPlacement norm = NormPlacement::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  Embeddings embeddings = Embeddings::kUntied;
  int vocabulary_multiple = 1;
  bool depth_scaled_norm = false;
  double z_loss = 0.0;
  Recompute recompute = Recompute::kCheap;

  ModelConfig Config() const {
    ModelConfig config;
    config.shape = Shape::Parse(shape);
    config.norm = norm;
    config.qk_norm = qk_norm;
    config.embeddings = embeddings;
    config.vocabulary = kVocabulary;
    config.vocabulary_multiple = vocabulary_multiple;
    config.depth_scaled_norm = depth_scaled_norm;
    config.z_loss = z_loss;
    config.rope_theta = 100.0;  // so that positions matter within a few tokens
    return config;
  }
};

const Case kCases[] = {
    {.name = "Llama", .shape = "L2-d8-a2x4-f1x12"},
    {.name = "LlamaTied", .shape = "L2-d8-a2x4-f1x12", .embeddings = Embeddings::kTied},
    {.name = "HourglassDecoupledGqa",
     .shape = "L2-d10-a4x4-f3x6-kv2",
     .vocabulary_multiple = 8,
     .z_loss = 0.01},
    {.name = "HourglassUnequalPerHead",
     .shape = "L2-d8-a3x6-f5,4-kv1",
     .qk_norm = QkNorm::kPerHead,
     .depth_scaled_norm = true},
    {.name = "HourglassFullWidth",
     .shape = "L1-d8-a2x6-f2x4-kv1",
     .qk_norm = QkNorm::kFullWidth,
     .recompute = Recompute::kNothing},
    {.name = "Olmo2",
     .shape = "L2-d8-a2x4-f1x12",
     .norm = NormPlacement::kPost,
     .qk_norm = QkNorm::kFullWidth},
    {.name = "Olmo2HourglassGqaTied",
     .shape = "L2-d8-a4x4-f3x5-kv2",
     .norm = NormPlacement::kPost,
     .qk_norm = QkNorm::kPerHead,
     .embeddings = Embeddings::kTied,
     .z_loss = 0.02,
     .recompute = Recompute::kLayer},
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

class GradientTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kBatch = 2;
  static constexpr int kLength = 5;
  static constexpr int kTokens = kBatch * kLength;
  std::unique_ptr<Backend> ops_ = MakeReferenceBackend(DType::kF64);
  Capacity capacity_{
      .batch = kBatch, .length = kLength, .recompute = GetParam().recompute, .dtype = DType::kF64};
};

TEST_P(GradientTest, WholeModelMatchesFiniteDifferences) {
  Model model(GetParam().Config(), capacity_);
  model.Allocate(*ops_);
  Randomize(model.params());
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 10, 0};
  const std::vector<int32_t> targets = {1, 4, 1, kIgnoredTarget, 9, 2, 6, 10, 0, 7};
  const Batch batch{kBatch, kLength, ids, targets};
  constexpr double kScale = 0.25;
  const auto loss = [&] {
    const LossSums sums = model.Loss(batch);
    return kScale * (sums.cross_entropy + GetParam().z_loss * sums.z_loss);
  };
  const LossSums sums = model.LossAndGradients(batch, kScale);
  EXPECT_EQ(sums.tokens, 9);
  EXPECT_NEAR(kScale * (sums.cross_entropy + GetParam().z_loss * sums.z_loss), loss(), 1e-12);
  for (const ParamSpec& spec : model.params().specs()) {
    EXPECT_LT(RelativeError(spec.param->value.Row<double>(), spec.param->grad.Row<double>(),
                            spec.elements(), loss),
              kTolerance)
        << spec.name;
  }
}

TEST_P(GradientTest, PackedDocumentsMatchFiniteDifferences) {
  Model model(GetParam().Config(), capacity_);
  model.Allocate(*ops_);
  Randomize(model.params());
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 10, 0};
  const std::vector<int32_t> targets = {1, kIgnoredTarget, 1, 5, 9, kIgnoredTarget, 6, 10, 0, 7};
  const std::vector<int32_t> starts = {0, 0, 2, 2, 2, 0, 1, 1, 1, 1};
  const Batch batch{kBatch, kLength, ids, targets, starts};
  const auto loss = [&] {
    const LossSums sums = model.Loss(batch);
    return sums.cross_entropy + GetParam().z_loss * sums.z_loss;
  };
  EXPECT_EQ(model.LossAndGradients(batch, 1.0).tokens, 8);
  for (const ParamSpec& spec : model.params().specs()) {
    EXPECT_LT(RelativeError(spec.param->value.Row<double>(), spec.param->grad.Row<double>(),
                            spec.elements(), loss),
              kTolerance)
        << spec.name;
  }
}

// Positions restart: in a packed sequence each document has the logits that it has alone.
TEST_P(GradientTest, APackedDocumentHasTheLogitsThatItHasAlone) {
  Model model(GetParam().Config(), capacity_);
  model.Allocate(*ops_);
  Randomize(model.params());
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  const std::vector<int32_t> starts = {0, 0, 2, 2, 2};
  std::vector<double> packed(kLength * kVocabulary), alone(packed.size());
  model.Logits({1, kLength, ids, {}, starts}, ViewOf(packed.data(), kLength, kVocabulary));
  model.Logits({1, 2, std::span(ids).first(2), {}}, ViewOf(alone.data(), 2, kVocabulary));
  model.Logits({1, 3, std::span(ids).subspan(2), {}},
               ViewOf(alone.data() + 2 * kVocabulary, 3, kVocabulary));
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_NEAR(packed[i], alone[i], 1e-12) << i;
}

// The loss of a sub-layer alone: a fixed random projection of the stream it leaves.
TEST_P(GradientTest, SubLayersMatchFiniteDifferences) {
  const ModelConfig config = GetParam().Config();
  const int d_model = config.shape.d_model;
  std::vector<std::unique_ptr<SubLayer>> kinds;
  kinds.push_back(std::make_unique<Attention>(config, 1));
  kinds.push_back(std::make_unique<GatedMlp>(config, 1, 0));
  for (const auto& sub_layer : kinds) {
    ParamTable params;
    sub_layer->Declare(params);
    params.Grant(DType::kF64, true);
    Randomize(params);
    MemoryPlan plan;
    View cosines, sines;
    plan.Book(cosines, kLength, config.shape.head_width / 2, DType::kF64, Lifetime::kState);
    plan.Book(sines, kLength, config.shape.head_width / 2, DType::kF64, Lifetime::kState);
    sub_layer->Book(plan, capacity_);
    Arena arena(plan);
    for (int64_t i = 0; i < cosines.elements(); ++i) {
      cosines.Row<double>()[i] = std::cos(0.3 * static_cast<double>(i));
      sines.Row<double>()[i] = std::sin(0.3 * static_cast<double>(i));
    }
    const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
    const Pass pass{*ops_, kBatch, kLength, 0, positions, cosines, sines};

    std::vector<double> input(kTokens * d_model), weights(input.size()), stream;
    FillNormal(input.data(), std::ssize(input), 0.0, 1.0, "input");
    FillNormal(weights.data(), std::ssize(weights), 0.0, 1.0, "weights");
    const auto loss = [&] {
      stream = input;
      sub_layer->Forward(pass, ViewOf(stream.data(), kTokens, d_model));
      return std::inner_product(stream.begin(), stream.end(), weights.begin(), 0.0);
    };
    loss();
    std::vector<double> dx = weights;
    sub_layer->Backward(pass, ViewOf(dx.data(), kTokens, d_model));
    EXPECT_LT(RelativeError(input.data(), dx.data(), std::ssize(input), loss), kTolerance)
        << "gradient of the stream, " << params.specs().front().name;
    for (const ParamSpec& spec : params.specs()) {
      EXPECT_LT(RelativeError(spec.param->value.Row<double>(), spec.param->grad.Row<double>(),
                              spec.elements(), loss),
                kTolerance)
          << spec.name;
    }
  }
}

TEST_P(GradientTest, RecomputationChangesNothing) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 10, 0};
  const std::vector<int32_t> targets = {1, 4, 1, 5, 9, 2, 6, 10, 0, 7};
  std::vector<double> gradients[3];
  for (const Recompute recompute : {Recompute::kNothing, Recompute::kCheap, Recompute::kLayer}) {
    Capacity capacity = capacity_;
    capacity.recompute = recompute;
    Model model(GetParam().Config(), capacity);
    model.Allocate(*ops_);
    Randomize(model.params());
    model.LossAndGradients({kBatch, kLength, ids, targets}, 1.0);
    const double* grads = model.params().grads().Row<double>();
    gradients[static_cast<int>(recompute)].assign(grads, grads + model.params().slab_elements());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

double RelativeDifference(const float* got, const float* want, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(difference / norm);
}

// How far gradients may move depends on how sharply the model bends; rounding only the weights of
// the f32 model tells. Activations are rounded a few more times than that.
TEST_P(GradientTest, BF16ActivationsKeepLossAndGradients) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 10, 0};
  const std::vector<int32_t> targets = {1, 4, 1, kIgnoredTarget, 9, 2, 6, 10, 0, 7};
  const Batch batch{kBatch, kLength, ids, targets};
  const auto cpu = MakeCpuBackend(2);
  Capacity capacity = capacity_;
  capacity.dtype = DType::kF32;
  Model exact(GetParam().Config(), capacity);
  Model rounded_weights(GetParam().Config(), capacity);
  capacity.activations = DType::kBF16;
  Model rounded(GetParam().Config(), capacity);
  for (Model* model : {&exact, &rounded_weights, &rounded}) {
    model->Allocate(*cpu);
    model->params().Initialize(3);
    for (const ParamSpec& spec : model->params().specs()) {
      float* const values = spec.param->value.Row<float>();
      if (spec.init.kind != ParamInit::Kind::kNormal) continue;
      for (int64_t i = 0; i < spec.elements(); ++i) values[i] *= 10;  // standard deviation 0.2
      if (model != &rounded_weights) continue;
      for (int64_t i = 0; i < spec.elements(); ++i) values[i] = ToFloat(ToBF16(values[i]));
    }
  }
  const double loss = exact.LossAndGradients(batch, 0.1).cross_entropy;
  rounded_weights.LossAndGradients(batch, 0.1);
  EXPECT_NEAR(rounded.LossAndGradients(batch, 0.1).cross_entropy / loss, 1.0, 0.01);
  const float* const want = exact.params().grads().Row<float>();
  const auto moved = [&](const Model& model) {
    return RelativeDifference(model.params().grads().Row<float>(), want,
                              exact.params().slab_elements());
  };
  EXPECT_GT(moved(rounded), 1e-4) << "nothing was rounded";
  EXPECT_LT(moved(rounded), 5 * moved(rounded_weights));

  // Decoding reads the same rounded weights.
  Model decoder(
      GetParam().Config(),
      {.purpose = Purpose::kEvaluate, .length = 2, .cache_length = 9, .activations = DType::kBF16});
  decoder.Allocate(*cpu);
  for (size_t i = 0; i < decoder.params().specs().size(); ++i) {
    cpu->Copy(decoder.params().specs()[i].param->value, exact.params().specs()[i].param->value);
  }
  std::vector<float> logits(kTokens * kVocabulary), decoded(kVocabulary);
  rounded.Logits(batch, ViewOf(logits.data(), kTokens, kVocabulary));
  for (const auto& [begin, count] : {std::pair{0, 3}, {3, 1}, {4, 1}}) {
    decoder.Decode(std::span(ids).subspan(begin, count), ViewOf(decoded.data(), 1, kVocabulary));
    for (int id = 0; id < kVocabulary; ++id) {
      EXPECT_NEAR(decoded[id], logits[(begin + count - 1) * kVocabulary + id], 0.05);
    }
  }
}

TEST_P(GradientTest, DecodingWithTheCacheGivesTheSameLogits) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  Model whole(GetParam().Config(),
              {.purpose = Purpose::kEvaluate, .batch = 1, .length = 5, .dtype = DType::kF64});
  Model stepwise(GetParam().Config(), {.purpose = Purpose::kEvaluate,
                                       .batch = 1,
                                       .length = 2,
                                       .cache_length = 5,
                                       .dtype = DType::kF64});
  std::vector<double> expected(5 * kVocabulary), logits(kVocabulary);
  for (Model* model : {&whole, &stepwise}) {
    model->Allocate(*ops_);
    Randomize(model->params());
  }
  whole.Logits({1, 5, ids, {}}, ViewOf(expected.data(), 5, kVocabulary));
  // A prompt of three tokens (in pieces of two, the capacity), then one at a time; twice, to see
  // that clearing the cache is enough.
  for (int round = 0; round < 2; ++round) {
    stepwise.ClearCache();
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 1}, {4, 1}}) {
      stepwise.Decode(std::span(ids).subspan(begin, count), ViewOf(logits.data(), 1, kVocabulary));
      for (int id = 0; id < kVocabulary; ++id) {
        EXPECT_NEAR(logits[id], expected[(begin + count - 1) * kVocabulary + id], 1e-12);
      }
    }
    EXPECT_EQ(stepwise.cached(), 5);
  }
}

// The fast backend inside whole models: loss, gradients and decoding against the reference in
// double.
TEST_P(GradientTest, TheCpuBackendAgreesWithTheReference) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 10, 0};
  const std::vector<int32_t> targets = {1, 4, 1, kIgnoredTarget, 9, 2, 6, 10, 0, 7};
  const Batch batch{kBatch, kLength, ids, targets};
  Model expected(GetParam().Config(), capacity_);
  expected.Allocate(*ops_);
  Randomize(expected.params());
  const auto cpu = MakeCpuBackend(2);
  Capacity capacity = capacity_;
  capacity.dtype = DType::kF32;
  Model model(GetParam().Config(), capacity);
  model.Allocate(*cpu);
  Model decoder(GetParam().Config(),
                {.purpose = Purpose::kEvaluate, .length = 2, .cache_length = 9});
  decoder.Allocate(*cpu);
  for (size_t i = 0; i < model.params().specs().size(); ++i) {
    const ParamSpec& spec = expected.params().specs()[i];
    const double* values = spec.param->value.Row<double>();
    for (Model* copy : {&model, &decoder}) {
      std::copy_n(values, spec.elements(), copy->params().specs()[i].param->value.Row<float>());
    }
  }

  // Rounding of a few hundred f32 operations in a row, with weights that amplify it.
  constexpr double kF32Tolerance = 2e-5;
  const double loss = expected.LossAndGradients(batch, 0.1).cross_entropy;
  EXPECT_NEAR(model.LossAndGradients(batch, 0.1).cross_entropy / loss, 1.0, kF32Tolerance);
  for (size_t i = 0; i < model.params().specs().size(); ++i) {
    const ParamSpec& spec = expected.params().specs()[i];
    double difference = 0, norm = 0;
    for (int64_t j = 0; j < spec.elements(); ++j) {
      const double want = spec.param->grad.Row<double>()[j];
      const double got = model.params().specs()[i].param->grad.Row<float>()[j];
      difference += (got - want) * (got - want);
      norm += want * want;
    }
    EXPECT_LT(std::sqrt(difference / norm), 20 * kF32Tolerance) << spec.name;
  }

  // A cache with more room than is filled, fed in pieces.
  std::vector<double> logits(kTokens * kVocabulary);
  expected.Logits(batch, ViewOf(logits.data(), kTokens, kVocabulary));
  std::vector<float> decoded(kVocabulary);
  for (const auto& [begin, count] : {std::pair{0, 3}, {3, 1}, {4, 1}}) {
    decoder.Decode(std::span(ids).subspan(begin, count), ViewOf(decoded.data(), 1, kVocabulary));
    for (int id = 0; id < kVocabulary; ++id) {
      EXPECT_NEAR(decoded[id], logits[(begin + count - 1) * kVocabulary + id], 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GradientTest, ::testing::ValuesIn(kCases), NameOf);

TEST(Model, LossAtInitialisationIsTheoretical) {
  // With a final norm, logits are sums of d_model products of unit-variance entries and weights of
  // standard deviation sigma: E log sum exp = ln V + d_model sigma^2 / 2. Sigma makes the second
  // term 0.8 % of the loss, so leaving it out would fail; the target's own logit adds noise of
  // sqrt(d_model) sigma / sqrt(tokens) = 0.2 %.
  for (const Family family : {Family::kLlama, Family::kHourglass, Family::kOlmo2}) {
    const char* shape =
        family == Family::kHourglass ? "L2-d128-a4x32-f4x64" : "L2-d128-a4x32-f1x256";
    ModelConfig config = FamilyConfig(family, Shape::Parse(shape), 1000);
    config.init_std = 0.03;
    const auto ops = MakeReferenceBackend(DType::kF32);
    Model model(config, {.purpose = Purpose::kEvaluate, .batch = 4, .length = 128});
    model.Allocate(*ops);
    model.params().Initialize(1);
    RandomStream stream(9, "tokens");
    std::vector<int32_t> ids(512), targets(512);
    for (int32_t& id : ids) id = static_cast<int32_t>(stream.NextBelow(1000));
    for (int32_t& id : targets) id = static_cast<int32_t>(stream.NextBelow(1000));
    const double loss = model.Loss({4, 128, ids, targets}).cross_entropy / 512;
    const double expected = std::log(1000.0) + 128 * 0.03 * 0.03 / 2;
    EXPECT_NEAR(loss / expected, 1.0, 0.005) << EnumName(family);
  }
}

TEST(Model, PaddedVocabularyDoesNotChangeTheLoss) {
  const std::vector<int32_t> ids = {3, 1, 4, 1}, targets = {1, 4, 1, 5};
  double losses[2];
  for (int i = 0; i < 2; ++i) {
    ModelConfig config = FamilyConfig(Family::kLlama, Shape::Parse("L1-d8-a2x4-f1x8"), kVocabulary);
    config.init_std = 0.5;
    config.vocabulary_multiple = i == 0 ? 1 : 16;
    const auto ops = MakeReferenceBackend(DType::kF64);
    Model model(config, {.batch = 1, .length = 4, .dtype = DType::kF64});
    model.Allocate(*ops);
    model.params().Initialize(1);
    losses[i] = model.LossAndGradients({1, 4, ids, targets}, 1.0).cross_entropy;
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Model, DepthScaledInitCountsEveryAddition) {
  ModelConfig config = FamilyConfig(Family::kHourglass, Shape::Parse("L3-d8-a2x4-f4x6"), 16);
  config.depth_scaled_init = true;
  Model model(config, {});
  int residual_outputs = 0;
  for (const ParamSpec& spec : model.params().specs()) {
    const bool writes_residual = spec.name.ends_with("w_o") || spec.name.ends_with("w_down");
    residual_outputs += writes_residual;
    if (spec.init.kind == ParamInit::Kind::kNormal) {
      EXPECT_DOUBLE_EQ(spec.init.std, writes_residual ? 0.02 / std::sqrt(15.0) : 0.02) << spec.name;
    }
  }
  EXPECT_EQ(residual_outputs, 15);
}

// Two documents in one sequence, long enough for several tiles of the kernels.
TEST(Model, EditingADocumentLeavesTheLogitsOfTheNextBitIdentical) {
  constexpr int kLength = 150, kBoundary = 70;
  const auto ops = MakeCpuBackend(2);
  Model model(FamilyConfig(Family::kOlmo2, Shape::Parse("L2-d32-a4x16-f2x24-kv2"), kVocabulary),
              {.purpose = Purpose::kEvaluate, .length = kLength});
  model.Allocate(*ops);
  model.params().Initialize(7);
  std::vector<int32_t> starts(kLength, 0);
  std::fill(starts.begin() + kBoundary, starts.end(), kBoundary);
  RandomStream random(3, "ids");
  std::vector<int32_t> ids(kLength);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(kVocabulary));
  std::vector<float> before(kLength * kVocabulary), after(before.size());
  model.Logits({1, kLength, ids, {}, starts}, ViewOf(before.data(), kLength, kVocabulary));
  for (int t = 0; t < kBoundary; ++t) ids[t] = (ids[t] + 1) % kVocabulary;
  model.Logits({1, kLength, ids, {}, starts}, ViewOf(after.data(), kLength, kVocabulary));
  const auto second = kBoundary * kVocabulary;
  EXPECT_TRUE(std::equal(before.begin() + second, before.end(), after.begin() + second));
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + second, after.begin()));
  // Plain packing does let the first document through.
  model.Logits({1, kLength, ids, {}}, ViewOf(after.data(), kLength, kVocabulary));
  EXPECT_FALSE(std::equal(before.begin() + second, before.end(), after.begin() + second));
}

TEST(Model, EditingTheFutureLeavesThePastAlone) {
  const auto ops = MakeReferenceBackend(DType::kF64);
  Model model(kCases[2].Config(),
              {.purpose = Purpose::kEvaluate, .batch = 1, .length = 5, .dtype = DType::kF64});
  model.Allocate(*ops);
  Randomize(model.params());
  std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  std::vector<double> before(5 * kVocabulary), after(5 * kVocabulary);
  model.Logits({1, 5, ids, {}}, ViewOf(before.data(), 5, kVocabulary));
  ids[3] = 7;
  model.Logits({1, 5, ids, {}}, ViewOf(after.data(), 5, kVocabulary));
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3 * kVocabulary, after.begin()));
  EXPECT_NE(std::vector(before.begin() + 3 * kVocabulary, before.end()),
            std::vector(after.begin() + 3 * kVocabulary, after.end()));
}

}  // namespace
}  // namespace sandglass
