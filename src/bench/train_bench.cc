#include "bench/train_bench.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/random.h"
#include "bench/measure.h"
#include "bench/profiling_backend.h"
#include "model/model.h"
#include "plan/count.h"
#include "train/optimizer.h"

namespace sandglass {
namespace {

constexpr int kWarmUpSteps = 2;

std::vector<int32_t> RandomIds(int64_t count, int vocabulary) {
  RandomStream random(1, "bench");
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(vocabulary));
  return ids;
}

}  // namespace

TrainBenchResult BenchTrain(const TrainBenchOptions& options) {
  const auto inner = options.system.MakeBackend();
  ProfilingBackend ops(*inner);
  const Capacity capacity{.batch = options.batch,
                          .length = options.length,
                          .recompute = options.system.recompute,
                          .activations = ActivationType(options.precision)};
  const int64_t tokens = capacity.tokens();
  ResetPeakMemory();
  Model model(options.model, capacity);
  model.Allocate(ops);
  model.params().Initialize(1);
  Optimizer optimizer(model.params(), {});
  const std::vector<int32_t> ids = RandomIds(tokens, options.model.vocabulary);
  const std::vector<int32_t> targets = RandomIds(tokens, options.model.vocabulary);

  int step = 0;
  const auto run_step = [&] {
    ops.Zero(model.params().grads());
    model.LossAndGradients({options.batch, options.length, ids, targets},
                           1.0 / static_cast<double>(tokens));
    optimizer.Step(ops, model.params(),
                   {.update = ++step,
                    .learning_rate = 1e-4,
                    .gradient_norm = MeasureGradients(ops, model.params()).global});
  };
  for (int i = 0; i < kWarmUpSteps; ++i) run_step();
  std::vector<double> step_seconds;
  std::vector<std::vector<double>> op_seconds(kOpClasses);
  for (int i = 0; i < options.repeats; ++i) {
    ops.Reset();
    step_seconds.push_back(SecondsOf(run_step));
    for (int op = 0; op < kOpClasses; ++op) {
      op_seconds[op].push_back(ops.seconds(static_cast<OpClass>(op)));
    }
  }

  TrainBenchResult result;
  result.peak_rss_bytes = PeakMemoryBytes();
  result.shape = options.model.shape.ToString();
  result.backend = inner->Description();
  result.precision = EnumName(options.precision);
  result.step_s = Median(step_seconds);
  result.step_min_s = std::ranges::min(step_seconds);
  result.step_max_s = std::ranges::max(step_seconds);
  for (int op = 0; op < kOpClasses; ++op) {
    result.ops.push_back({NameOf(static_cast<OpClass>(op)), Median(op_seconds[op])});
  }
  std::ranges::sort(result.ops, std::greater<>(), &OpTime::seconds);

  result.peak_gflop_per_s = PeakFlopsPerSecond(*inner, capacity.activation_dtype()) / 1e9;
  result.bandwidth_bytes_per_s = CopyBytesPerSecond(*inner);
  for (const auto& [shape, count] : ops.matmuls()) {
    result.matmul_s += count * TimeMatmul(*inner, shape);
  }
  result.attention_s = ops.attention_flops() / (result.peak_gflop_per_s * 1e9);
  // AdamW reads values, gradients and both moments and writes all but the gradients.
  const int64_t slab_bytes = model.params().slab_elements() * SizeOf(capacity.dtype);
  result.optimizer_s = 7.0 * static_cast<double>(slab_bytes) / result.bandwidth_bytes_per_s;
  result.roofline_s = result.matmul_s + result.attention_s + result.optimizer_s;
  result.step_over_roofline = result.step_s / result.roofline_s;
  result.tokens_per_s = static_cast<double>(tokens) / result.step_s;
  result.model_gflop_per_s =
      static_cast<double>(CountFlops(options.model, options.length).training) *
      result.tokens_per_s / 1e9;
  const View operands = model.params().operands();
  result.allocated_bytes =
      4 * slab_bytes + operands.elements() * SizeOf(operands.dtype) + model.memory().total_bytes();
  return result;
}

}  // namespace sandglass
