#include "plan/count.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/model.h"

namespace sandglass {
namespace {

ModelConfig Llama(const char* shape, int vocabulary = 50304) {
  return FamilyConfig(Family::kLlama, Shape::Parse(shape), vocabulary);
}

ModelConfig RandomConfig(RandomStream& random) {
  const auto up_to = [&](int bound) { return 1 + static_cast<int>(random.NextBelow(bound)); };
  ModelConfig config;
  config.shape.layers = up_to(5);
  config.shape.d_model = up_to(200);
  config.shape.kv_heads = up_to(4);
  config.shape.heads = config.shape.kv_heads * up_to(4);
  config.shape.head_width = 2 * up_to(20);
  for (int k = up_to(5); k > 0; --k) config.shape.ffn.push_back(up_to(300));
  config.norm = random.NextBelow(2) == 0 ? NormPlacement::kPre : NormPlacement::kPost;
  config.qk_norm = static_cast<QkNorm>(random.NextBelow(3));
  config.embeddings = random.NextBelow(2) == 0 ? Embeddings::kTied : Embeddings::kUntied;
  config.vocabulary = up_to(1000);
  config.vocabulary_multiple = up_to(130);
  return config;
}

TEST(CountParameters, FormulasEqualWhatModelsDeclare) {
  RandomStream random(7, "configs");
  for (int i = 0; i < 200; ++i) {
    const ModelConfig config = RandomConfig(random);
    SCOPED_TRACE(WriteFields(config).dump());
    const Model model(config, {});
    const ParamTable& table = model.params();
    const ParameterCounts counts = CountParameters(config);
    EXPECT_EQ(counts.attention, table.elements(ParamRole::kAttention));
    EXPECT_EQ(counts.ffn, table.elements(ParamRole::kFfn));
    EXPECT_EQ(counts.norms, table.elements(ParamRole::kNorm) + table.elements(ParamRole::kQkNorm));
    EXPECT_EQ(counts.embeddings, table.elements(ParamRole::kEmbedding));
    EXPECT_EQ(counts.head, table.elements(ParamRole::kHead));
    EXPECT_EQ(counts.total(), table.elements());
  }
}

TEST(CountParameters, PublishedFiguresOfThePaper) {
  const auto matrices = [](const char* shape) { return CountParameters(Llama(shape)).matrices(); };
  EXPECT_EQ(matrices("L12-d768-a12x64-f1x3072"), 113'246'208);
  EXPECT_EQ(matrices("L12-d768-a12x64-f8x384"), 113'246'208);
  EXPECT_EQ(matrices("L24-d1536-a16x96-f1x6144"), 905'969'664);
  EXPECT_EQ(matrices("L12-d2496-a16x96-f4x2016"), 908'623'872);
  EXPECT_EQ(matrices("L28-d3072-a24x128-f1x8192"), 3'170'893'824);
  EXPECT_EQ(matrices("L18-d3696-a24x128-f4x2944"), 3'167'797'248);
  EXPECT_EQ(matrices("L32-d4096-a32x128-f1x14336"), 7'784'628'224);
  EXPECT_EQ(matrices("L22-d4992-a32x128-f4x4544"), 7'787'839'488);
}

TEST(CountParameters, PartsOfThe113MPair) {
  const ParameterCounts conventional = CountParameters(Llama("L12-d768-a12x64-f1x3072"));
  const ParameterCounts hourglass = CountParameters(Llama("L12-d768-a12x64-f8x384"));
  EXPECT_EQ(conventional.attention, 28'311'552);
  EXPECT_EQ(conventional.ffn, 84'934'656);
  // Seven more norms of 768 gains in each of 12 layers.
  EXPECT_EQ(hourglass.non_embedding() - conventional.non_embedding(), 64'512);
}

TEST(CountParameters, The906MPairDiffersInTotalThroughItsEmbeddings) {
  const double conventional = CountParameters(Llama("L24-d1536-a16x96-f1x6144", 100'278)).total();
  const double hourglass = CountParameters(Llama("L12-d2496-a16x96-f4x2016", 100'278)).total();
  EXPECT_NEAR(hourglass / conventional, 1.16, 0.005);  // published as 16 %
}

TEST(CountParameters, TiedEmbeddingsCountOnce) {
  ModelConfig config = Llama("L2-d64-a4x16-f2x48", 1000);
  const int64_t untied = CountParameters(config).total();
  config.embeddings = Embeddings::kTied;
  EXPECT_EQ(untied - CountParameters(config).total(), 64'000);
}

TEST(CountFlops, AgreesWithAModelAddedUpByHand) {
  // L=1, D=8, H=2, E=4, KV=1, one sub-MLP of 16, V=10, T=3; 2 FLOPs per multiply-add.
  const FlopCounts flops = CountFlops(Llama("L1-d8-a2x4-kv1-f1x16", 10), 3);
  const int64_t qkv_and_output = 2 * (8 * 16 + 8 * 8);
  const int64_t mlp = 2 * (8 * 32 + 16 * 8);
  const int64_t head = 2 * (8 * 10);
  // Tokens see 1, 2 and 3 keys: 2 on average; each key costs a score and a weighted value.
  const int64_t forward = qkv_and_output + mlp + head + 2 * (2 * 8 * 2);
  EXPECT_EQ(flops.forward, forward);
  EXPECT_EQ(flops.training, 3 * forward);
  EXPECT_EQ(flops.decoding, qkv_and_output + mlp + head + 2 * (2 * 8 * 3));
}

TEST(CountFlops, TheHeadCostsTheSameTiedOrNot) {
  ModelConfig config = Llama("L2-d64-a4x16-f2x48", 1000);
  const int64_t untied = CountFlops(config, 128).training;
  config.embeddings = Embeddings::kTied;
  EXPECT_EQ(CountFlops(config, 128).training, untied);
}

TEST(KvCache, CountsKeysAndValuesOfAllLayers) {
  const Shape shape = Shape::Parse("L3-d64-a4x16-kv2-f2x48");
  EXPECT_EQ(KvCacheBytesPerToken(shape, DType::kBF16), 3 * 2 * 2 * 16 * 2);
  EXPECT_EQ(KvCacheBytesPerToken(shape, DType::kF32), 3 * 2 * 2 * 16 * 4);
}

TEST(CountTrainingMemory, IsWhatTheModelBooks) {
  const ModelConfig config = Llama("L2-d64-a4x16-f2x48", 1000);
  const Capacity capacity{.batch = 2, .length = 32};
  const TrainingMemory memory = CountTrainingMemory(config, capacity);
  // Gains and matrices here are whole cache lines: no padding between them.
  EXPECT_EQ(memory.weights, 4 * CountParameters(config).total());
  EXPECT_EQ(memory.operands, 0);
  EXPECT_EQ(memory.gradients, memory.weights);
  EXPECT_EQ(memory.optimizer, 2 * memory.weights);
  EXPECT_EQ(memory.activations, Model(config, capacity).memory().total_bytes());
  EXPECT_GT(CountTrainingMemory(config, {.batch = 4, .length = 32}).activations,
            memory.activations);
  EXPECT_EQ(memory.total(),
            16 * CountParameters(config).total() + memory.activations + kProgramBytes);
}

TEST(CountTrainingMemory, InBF16WeightsLieThereTwice) {
  const ModelConfig config = Llama("L2-d64-a4x16-f2x48", 1000);
  const Capacity capacity{.batch = 2, .length = 32, .activations = DType::kBF16};
  const TrainingMemory memory = CountTrainingMemory(config, capacity);
  EXPECT_EQ(memory.weights, 4 * CountParameters(config).total());
  EXPECT_EQ(memory.operands, 2 * CountParameters(config).total());
  EXPECT_LT(memory.activations,
            CountTrainingMemory(config, {.batch = 2, .length = 32}).activations);
}

TEST(Ratios, OfTheHourglass) {
  const ShapeRatios ratios = RatiosOf(Shape::Parse("L12-d768-a12x64-f8x384"));
  EXPECT_EQ(ratios.width_to_depth, 64.0);
  EXPECT_EQ(ratios.ffn_to_model, 0.5);
  EXPECT_EQ(ratios.attention_share, 0.25);
}

}  // namespace
}  // namespace sandglass
