#include <gtest/gtest.h>

#include "bench/decode_bench.h"
#include "bench/op_bench.h"
#include "bench/profiling_backend.h"
#include "bench/train_bench.h"
#include "model/model.h"
#include "plan/count.h"

namespace sandglass {
namespace {

ModelConfig SmallConfig() {
  return FamilyConfig(Family::kHourglass, Shape::Parse("L2-d32-a4x8-f3x16-kv2"), 100);
}

// Everything that a step multiplies, by the formula and by what the backend was asked to do.
TEST(ProfilingBackend, ItsProductsAndAttentionAreTheModelsFlops) {
  const auto inner = MakeReferenceBackend(DType::kF32);
  ProfilingBackend ops(*inner);
  constexpr int kBatch = 2, kLength = 6;
  Model model(SmallConfig(), {.batch = kBatch, .length = kLength});
  model.Allocate(ops);
  model.params().Initialize(1);
  const std::vector<int32_t> ids(kBatch * kLength, 3);
  model.LossAndGradients({kBatch, kLength, ids, ids}, 1.0);
  double flops = 0;
  for (const auto& [shape, count] : ops.matmuls()) {
    flops += 2.0 * count * static_cast<double>(shape.rows * shape.cols * shape.inner);
  }
  // The backward pass of attention computes the scores again, which `CountFlops` leaves out: 3.5
  // times the forward pass here, 3 times there.
  flops += ops.attention_flops() * 3.0 / 3.5;
  const double expected =
      static_cast<double>(CountFlops(SmallConfig(), kLength).training) * kBatch * kLength;
  EXPECT_NEAR(flops / expected, 1.0, 1e-12);
  ops.Reset();
  EXPECT_TRUE(ops.matmuls().empty());
  EXPECT_EQ(ops.seconds(OpClass::kMatmul), 0);
}

TEST(ProfilingBackend, PassesEveryResultOn) {
  const auto inner = MakeReferenceBackend(DType::kF32);
  ProfilingBackend profiling(*inner);
  std::vector<float> gradients[2];
  double losses[2];
  const std::vector<int32_t> ids = {5, 6, 7, 8}, targets = {6, 7, 8, 9};
  for (int i = 0; i < 2; ++i) {
    Backend& ops = i == 0 ? *inner : profiling;
    Model model(SmallConfig(), {.batch = 1, .length = 4});
    model.Allocate(ops);
    model.params().Initialize(1);
    losses[i] = model.LossAndGradients({1, 4, ids, targets}, 1.0).cross_entropy;
    const float* grads = model.params().grads().Row<float>();
    gradients[i].assign(grads, grads + model.params().slab_elements());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(BenchTrain, FiguresBelongTogether) {
  TrainBenchOptions options{.model = SmallConfig(), .batch = 2, .length = 8, .repeats = 3};
  options.system.threads = 2;
  const TrainBenchResult result = BenchTrain(options);
  EXPECT_LE(result.step_min_s, result.step_s);
  EXPECT_LE(result.step_s, result.step_max_s);
  EXPECT_DOUBLE_EQ(result.roofline_s, result.matmul_s + result.attention_s + result.optimizer_s);
  EXPECT_DOUBLE_EQ(result.step_over_roofline, result.step_s / result.roofline_s);
  EXPECT_DOUBLE_EQ(result.tokens_per_s, 16 / result.step_s);
  double in_ops = 0;
  for (const OpTime& op : result.ops) in_ops += op.seconds;
  EXPECT_GT(in_ops, 0);
  EXPECT_GT(result.allocated_bytes, 16 * CountParameters(options.model).total());
}

TEST(BenchOps, ChecksAndTimesEveryOp) {
  OpBenchOptions options{.model = SmallConfig(), .batch = 2, .length = 8};
  options.system.threads = 2;
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    options.precision = precision;
    const OpBenchResult result = BenchOps(options);
    EXPECT_GT(result.ops.size(), 20u);
    for (const OpResult& op : result.ops) {
      EXPECT_GT(op.seconds, 0) << op.op;
      EXPECT_GT(op.share_of_roof, 0) << op.op;
      EXPECT_LE(op.largest_error, op.tolerance) << op.op;
    }
  }
}

TEST(BenchDecode, CountsTheBytesOfAToken) {
  DecodeBenchOptions options{.model = SmallConfig(), .prompt = 6, .tokens = 4};
  options.system.threads = 1;
  const DecodeBenchResult result = BenchDecode(options);
  EXPECT_LE(1.0 / result.token_max_s, result.tokens_per_s);
  EXPECT_LE(result.tokens_per_s, 1.0 / result.token_min_s);
  // All weights but the input embedding, and keys and values of two layers and two heads of 8 at
  // the mean position 8.
  const int64_t weights = CountParameters(options.model).total() - 100 * 32;
  EXPECT_EQ(result.bytes_per_token, 4 * weights + 8 * (2 * 2 * 2 * 8 * 4));
}

}  // namespace
}  // namespace sandglass
