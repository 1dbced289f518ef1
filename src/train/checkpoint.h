// Checkpoints: a directory per step with the weights and moments (safetensors), the trainer's state
// (JSON), and a manifest with a checksum of each file, written last. A directory is put together
// aside and renamed, so under its name it is always complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/param_table.h"
#include "train/optimizer.h"

namespace sandglass {

// What a run must remember beside weights and moments. The data order is a function of the step.
struct TrainState {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // target tokens trained on
  int64_t skipped_steps = 0;
  double train_seconds = 0.0;  // in steps, without validation and saving
  int64_t peak_memory_bytes = 0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step", self.step, "optimizer steps done");
    field("tokens", self.tokens, "target tokens trained on");
    field("skipped_steps", self.skipped_steps, "steps without an update");
    field("train_seconds", self.train_seconds, "time in steps");
    field("peak_memory_bytes", self.peak_memory_bytes, "largest resident set so far");
  }
};

std::string CheckpointsPath(const std::string& run_directory);

// Writes run_directory/checkpoints/step-<step>; then removes checkpoints of later steps (of a
// future that a damaged checkpoint cut off) and all but the newest `keep`. On failure (a full disk)
// throws Error and leaves earlier checkpoints as they were.
void SaveCheckpoint(const std::string& run_directory, const ParamTable& params,
                    const AdamW& optimizer, const TrainState& state, int keep);

// The newest checkpoint whose checksums hold. Damaged ones are skipped and told to `report`.
std::optional<std::string> FindCheckpoint(const std::string& run_directory,
                                          const std::function<void(std::string_view)>& report);

// Restores everything from a checkpoint directory. Throws Error if it belongs to another model.
TrainState LoadCheckpoint(const std::string& directory, ParamTable& params, AdamW& optimizer);

// Only the weights, for evaluation and generation.
void LoadWeights(const std::string& directory, ParamTable& params);

}  // namespace sandglass
