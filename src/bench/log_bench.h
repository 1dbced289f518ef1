// What recording a run costs, in the processor time of the calls themselves: it does not depend on
// what else the machine does.
#pragma once

#include <cstdint>

#include "base/fields.h"
#include "model/config.h"

namespace sandglass {

struct LogBenchResult {
  double step_s = 0.0;        // the metrics of one step, JSON lines and TensorBoard
  double histograms_s = 0.0;  // histograms of all weights and gradients
  int64_t step_bytes = 0;     // on disk
  int64_t histograms_bytes = 0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step_s", self.step_s, "processor time of the metrics of one step");
    field("histograms_s", self.histograms_s, "of histograms of all weights and gradients");
    field("step_bytes", self.step_bytes, "bytes on disk of one step");
    field("histograms_bytes", self.histograms_bytes, "of one set of histograms");
  }
};

// Writes into a directory of its own under the system's temporary one, which it removes.
LogBenchResult BenchLog(const ModelConfig& config);

}  // namespace sandglass
