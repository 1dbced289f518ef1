#include "bench/log_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "train/metrics.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 2000;
constexpr int kHistograms = 5;

double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t BytesIn(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

struct TemporaryDirectory {
  std::string path =
      (fs::temp_directory_path() / fmt::format("sandglass-bench-log-{}", ::getpid())).string();
  TemporaryDirectory() { CreateDirectories(path); }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

LogBenchResult BenchLog(const ModelConfig& config) {
  Model model(config, {});
  ParamTable& params = model.params();
  params.Grant(DType::kF32, /*with_gradients=*/true);
  params.Initialize(1);
  const View values = params.values();
  const View grads = params.grads();
  std::copy_n(values.Row<float>(), values.cols, grads.Row<float>());

  const TemporaryDirectory directory;
  MetricsLog log(directory.path, 0);
  LogBenchResult result;
  int64_t bytes_before = BytesIn(directory.path);
  double start = ThreadSeconds();
  for (int step = 1; step <= kSteps; ++step) {
    log.Add(StepMetrics{.step = step,
                        .tokens = int64_t{step} * 2048,
                        .loss = 3.21987 + 1.0 / step,
                        .learning_rate = 3e-4 / step,
                        .gradient_norm = 0.987654321,
                        .step_seconds = 0.7412345});
  }
  log.Flush();
  result.step_s = (ThreadSeconds() - start) / kSteps;
  result.step_bytes = (BytesIn(directory.path) - bytes_before) / kSteps;

  std::vector<double> seconds;
  bytes_before = BytesIn(directory.path);
  for (int i = 1; i <= kHistograms; ++i) {
    start = ThreadSeconds();
    log.AddHistograms(kSteps + i, params);
    log.Flush();
    seconds.push_back(ThreadSeconds() - start);
  }
  std::ranges::sort(seconds);
  result.histograms_s = seconds[kHistograms / 2];
  result.histograms_bytes = (BytesIn(directory.path) - bytes_before) / kHistograms;
  return result;
}

}  // namespace sandglass
