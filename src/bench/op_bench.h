// Single ops at the sizes that a training step of some shape gives them, against what the machine
// can do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "model/config.h"
#include "train/options.h"

namespace sandglass {

struct OpBenchOptions {
  ModelConfig model;
  SystemOptions system;
  Precision precision = Precision::kF32;  // resolved
  int batch = 8;                          // B
  int length = 256;                       // T
};

struct OpResult {
  std::string op;
  std::string sizes;
  double seconds = 0.0;        // median
  double gflop_per_s = 0.0;    // 0 where bytes are what counts
  double gbyte_per_s = 0.0;    // every operand read and every result written once
  double share_of_roof = 0.0;  // of the peak of products, or of the bandwidth of a copy
  double largest_error = 0.0;  // against the reference in double, of the largest element
  double tolerance = 0.0;      // that it had to keep

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("op", self.op, "");
    field("sizes", self.sizes, "");
    field("seconds", self.seconds, "");
    field("gflop_per_s", self.gflop_per_s, "");
    field("gbyte_per_s", self.gbyte_per_s, "");
    field("share_of_roof", self.share_of_roof, "");
    field("largest_error", self.largest_error, "");
    field("tolerance", self.tolerance, "");
  }
};

struct OpBenchResult {
  std::string shape;
  std::string backend;
  std::string precision;
  double peak_gflop_per_s = 0.0;
  double bandwidth_bytes_per_s = 0.0;
  std::vector<OpResult> ops;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("shape", self.shape, "");
    field("backend", self.backend, "");
    field("precision", self.precision, "");
    field("peak_gflop_per_s", self.peak_gflop_per_s, "");
    field("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "");
    field("ops", self.ops, "");
  }
};

// Every op is first compared with the reference backend in double, on a few rows; Error if it is
// off, so that nothing wrong is timed.
OpBenchResult BenchOps(const OpBenchOptions& options);

}  // namespace sandglass
