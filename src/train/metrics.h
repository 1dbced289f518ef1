// What a run measured, step by step: metrics.jsonl for programs, event files for TensorBoard.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "tensor/param_table.h"
#include "train/event_writer.h"
#include "train/options.h"

namespace sandglass {

// One optimizer step.
struct StepMetrics {
  int64_t step = 0;
  int64_t tokens = 0;  // trained on so far
  // Of the data order that were used or passed over so far. Not known of the oldest runs, nor are
  // the norms by kind.
  std::optional<int64_t> sequences;
  double loss = 0.0;    // cross-entropy, nats per token of the step's batch
  double z_loss = 0.0;  // mean (log sum exp)^2, without its weight; apart from the loss
  double learning_rate = 0.0;
  double gradient_norm = 0.0;             // before clipping
  std::optional<PerRole> gradient_norms;  // the same by kind of parameter
  double step_seconds = 0.0;
  bool skipped = false;  // the loss or the gradient was not finite

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step", self.step, "");
    field("tokens", self.tokens, "");
    field("sequences", self.sequences, "");
    field("loss", self.loss, "");
    field("z_loss", self.z_loss, "");
    field("learning_rate", self.learning_rate, "");
    field("gradient_norm", self.gradient_norm, "");
    field("gradient_norms", self.gradient_norms, "");
    field("step_seconds", self.step_seconds, "");
    field("skipped", self.skipped, "");
  }
};

// One validation.
struct ValidationMetrics {
  int64_t step = 0;
  int64_t tokens = 0;
  double loss = 0.0;  // nats per token
  double perplexity = 0.0;
  double bits_per_byte = 0.0;
  // The same with averaged weights, if the run keeps them.
  std::optional<double> average_loss;
  std::optional<double> average_perplexity;
  std::optional<double> average_bits_per_byte;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step", self.step, "");
    field("tokens", self.tokens, "");
    field("loss", self.loss, "");
    field("perplexity", self.perplexity, "");
    field("bits_per_byte", self.bits_per_byte, "");
    field("average_loss", self.average_loss, "");
    field("average_perplexity", self.average_perplexity, "");
    field("average_bits_per_byte", self.average_bits_per_byte, "");
  }
};

struct RunMetrics {
  std::vector<StepMetrics> steps;
  std::vector<ValidationMetrics> validations;
};

std::string MetricsPath(const std::string& run_directory);

// All lines of a run's metrics.jsonl. A last line that was cut off by a crash is left out.
RunMetrics ReadMetrics(const std::string& run_directory);

// Where a step stands in the data order.
struct StepPosition {
  int64_t first = 0;        // position of its first sequence
  int64_t passed_over = 0;  // sequences before it that no step has used, because of rewinds
};

// Of step `step` (from 1) of a run with these options and metrics: as recorded, or, of a step to
// come, as it will be if nothing more is passed over. A branch that began its data anew has passed
// over a negative number.
StepPosition PositionOf(int64_t step, const TrainOptions& options, const RunMetrics& metrics);

class MetricsLog {
 public:
  // Continues the log of a run that resumes after `step` (0: starts it): lines of later steps,
  // which the resumed run will do again, are dropped, and events of later steps, so that steps
  // strictly increase in both.
  MetricsLog(const std::string& run_directory, int64_t step);

  void Add(const StepMetrics& metrics);
  // Only the first validation of a step counts: a run that was stopped after its last step
  // validates again when it is continued.
  void Add(const ValidationMetrics& metrics);
  // Histograms of all weights and gradients, for TensorBoard alone.
  void AddHistograms(int64_t step, const ParamTable& params);
  // Step of the newest validation, 0 if there is none.
  int64_t last_validation() const { return last_validation_; }
  // Makes everything visible to readers. Throws Error if the disk is full.
  void Flush();
  // And makes the metrics (not the events) survive a power cut.
  void Sync();

 private:
  using Clock = std::chrono::steady_clock;
  void Write(const char* kind, Json values);

  std::string path_;
  std::ofstream file_;
  int64_t last_validation_ = 0;
  Clock::time_point last_flush_ = Clock::now();
  EventWriter events_;
};

}  // namespace sandglass
