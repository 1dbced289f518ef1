// One training step against its roofline: the time its own matrix products, its attention FLOPs and
// the optimizer's memory traffic need at the speeds this machine reaches in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "train/options.h"

namespace sandglass {

struct TrainBenchOptions {
  ModelConfig model;
  SystemOptions system;
  Precision precision = Precision::kF32;  // resolved
  int batch = 8;                          // B
  int length = 256;                       // T
  int repeats = 9;                        // timed steps, after two that warm up
};

// Time per step of one class of ops.
struct OpTime {
  std::string op;
  double seconds = 0.0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("op", self.op, "class of ops");
    field("seconds", self.seconds, "median per step");
  }
};

struct TrainBenchResult {
  std::string shape;
  std::string backend;
  std::string precision;
  double step_s = 0.0;  // median: forward, backward, clip, AdamW
  double step_min_s = 0.0;
  double step_max_s = 0.0;
  double roofline_s = 0.0;   // the sum of the three below
  double matmul_s = 0.0;     // every product at its true size and transposes, timed alone
  double attention_s = 0.0;  // causal FLOPs at the peak
  double optimizer_s = 0.0;  // bytes that AdamW must move at the bandwidth
  double step_over_roofline = 0.0;
  double tokens_per_s = 0.0;
  double model_gflop_per_s = 0.0;
  double peak_gflop_per_s = 0.0;          // a product of 1536 x 1536 x 1536
  double bandwidth_bytes_per_s = 0.0;     // copying 64 MiB, bytes read and written
  std::optional<int64_t> peak_rss_bytes;  // largest resident set while the steps ran
  int64_t allocated_bytes = 0;            // weights, gradients, moments, activations
  std::vector<OpTime> ops;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("shape", self.shape, "");
    field("backend", self.backend, "");
    field("precision", self.precision, "");
    field("step_s", self.step_s, "");
    field("step_min_s", self.step_min_s, "");
    field("step_max_s", self.step_max_s, "");
    field("roofline_s", self.roofline_s, "");
    field("matmul_s", self.matmul_s, "");
    field("attention_s", self.attention_s, "");
    field("optimizer_s", self.optimizer_s, "");
    field("step_over_roofline", self.step_over_roofline, "");
    field("tokens_per_s", self.tokens_per_s, "");
    field("model_gflop_per_s", self.model_gflop_per_s, "");
    field("peak_gflop_per_s", self.peak_gflop_per_s, "");
    field("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "");
    field("peak_rss_bytes", self.peak_rss_bytes, "");
    field("allocated_bytes", self.allocated_bytes, "");
    field("ops", self.ops, "");
  }
};

// Throws Error if the configuration is impossible or does not fit in memory.
TrainBenchResult BenchTrain(const TrainBenchOptions& options);

}  // namespace sandglass
