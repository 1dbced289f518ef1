#include "bench/train_bench.h"

#include <algorithm>
#include <chrono>

#include "base/cpu.h"
#include "base/random.h"
#include "bench/profiling_backend.h"
#include "model/model.h"
#include "plan/count.h"
#include "train/optimizer.h"

namespace sandglass {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 2;

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Action>
double SecondsOf(const Action& action) {
  const Clock::time_point start = Clock::now();
  action();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Median time of an action after one call that warms up: at least five calls and 50 ms, so that
// short ones are repeated often.
template <class Action>
double TimeAlone(const Action& action) {
  action();
  std::vector<double> seconds;
  double total = 0.0;
  while (seconds.size() < 5 || total < 0.05) {
    seconds.push_back(SecondsOf(action));
    total += seconds.back();
  }
  return Median(std::move(seconds));
}

// Buffers with values around one, so that no product runs into denormals.
struct Matrix {
  AlignedBytes bytes;
  View view;
  Matrix(int64_t rows, int64_t cols)
      : bytes(rows * cols * SizeOf(DType::kF32)),
        view{bytes.data(), DType::kF32, rows, cols, cols} {
    std::fill_n(view.Row<float>(), rows * cols, 0.5f);
  }
};

double TimeMatmul(Backend& ops, const MatmulShape& shape) {
  const bool a_turned = shape.spec.a == Transpose::kYes;
  const bool b_turned = shape.spec.b == Transpose::kYes;
  Matrix a(a_turned ? shape.inner : shape.rows, a_turned ? shape.rows : shape.inner);
  Matrix b(b_turned ? shape.cols : shape.inner, b_turned ? shape.inner : shape.cols);
  Matrix c(shape.rows, shape.cols);
  return TimeAlone([&] { ops.Matmul(c.view, a.view, b.view, shape.spec); });
}

double PeakFlopsPerSecond(Backend& ops) {
  constexpr int64_t kSize = 1536;
  return 2.0 * kSize * kSize * kSize / TimeMatmul(ops, {kSize, kSize, kSize, {}});
}

double CopyBytesPerSecond(Backend& ops) {
  constexpr int64_t kElements = int64_t{16} << 20;
  Matrix from(1, kElements), to(1, kElements);
  return 2.0 * kElements * SizeOf(DType::kF32) / TimeAlone([&] { ops.Copy(to.view, from.view); });
}

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
  const Capacity capacity{
      .batch = options.batch, .length = options.length, .recompute = options.system.recompute};
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
  result.step_s = Median(step_seconds);
  result.step_min_s = std::ranges::min(step_seconds);
  result.step_max_s = std::ranges::max(step_seconds);
  for (int op = 0; op < kOpClasses; ++op) {
    result.ops.push_back({NameOf(static_cast<OpClass>(op)), Median(op_seconds[op])});
  }
  std::ranges::sort(result.ops, std::greater<>(), &OpTime::seconds);

  result.peak_gflop_per_s = PeakFlopsPerSecond(*inner) / 1e9;
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
  result.allocated_bytes = 4 * slab_bytes + model.memory().total_bytes();
  return result;
}

}  // namespace sandglass
