// Checkpoints: a directory per step with weights and optimizer state (safetensors), the trainer's
// state (JSON), the configuration it was made with (run.toml), and a manifest with a checksum of
// each file, written last. A directory is put together aside and renamed, so under its name it is
// always complete:
//
//   checkpoints/step-00000400/model.safetensors      weights
//                            /optimizer.safetensors  moments
//                            /average.safetensors    averaged weights, if the run keeps them
//                            /state.json             TrainState
//                            /run.toml               RunConfig
//                            /manifest.json          sizes and checksums of the others
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "tensor/param_table.h"
#include "train/averaging.h"
#include "train/optimizer.h"
#include "train/options.h"

namespace sandglass {

// What a run must remember beside weights and optimizer state.
struct TrainState {
  int64_t step = 0;       // optimizer steps done
  int64_t tokens = 0;     // target tokens trained on
  int64_t sequences = 0;  // position in the data order of the next step's first sequence
  int64_t skipped_steps = 0;
  int64_t consecutive_skips = 0;
  int64_t averaged_updates = 0;  // that the averaged weights have taken in
  int64_t spikes = 0;
  int64_t rewinds = 0;
  std::vector<double> recent_losses;  // of the spike detector
  double train_seconds = 0.0;         // in steps, without validation and saving
  double save_seconds = 0.0;          // that training has waited for checkpoints
  int64_t peak_memory_bytes = 0;

  // Updates that the optimizer has made.
  int64_t updates() const { return step - skipped_steps; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step", self.step, "optimizer steps done");
    field("tokens", self.tokens, "target tokens trained on");
    field("sequences", self.sequences, "position in the data order");
    field("skipped_steps", self.skipped_steps, "steps without an update");
    field("consecutive_skips", self.consecutive_skips, "of these the last ones in a row");
    field("averaged_updates", self.averaged_updates, "updates in the averaged weights");
    field("spikes", self.spikes, "loss spikes seen");
    field("rewinds", self.rewinds, "rewinds after a spike");
    field("recent_losses", self.recent_losses, "losses that the spike detector compares with");
    field("train_seconds", self.train_seconds, "time in steps");
    field("save_seconds", self.save_seconds, "time that training waited for checkpoints");
    field("peak_memory_bytes", self.peak_memory_bytes, "largest resident set so far");
  }
};

// One tensor file of a checkpoint.
struct TensorFile {
  std::string name;
  std::vector<NamedTensor> tensors;
};

struct CheckpointContents {
  std::vector<TensorFile> files;
  TrainState state;
  std::string configuration;  // TOML of the RunConfig
};

// The weights alone: a checkpoint of nothing else can be used and trained on from, but a run cannot
// be continued from it.
TensorFile WeightsFileOf(const ParamTable& params);

// What is trained, as checkpoints hold it. `average` may be null.
std::vector<TensorFile> TensorFilesOf(const ParamTable& params, const Optimizer& optimizer,
                                      const WeightAverage* average);

// Which checkpoints stay. The newest always does.
struct Retention {
  int newest = 2;         // of those that were due, the newest so many
  int64_t every = 0;      // and those whose step is a multiple of this, unless 0
  int64_t due_every = 0;  // steps between checkpoints that are due; 0: all count as due

  bool IsDue(int64_t step) const { return due_every == 0 || step % due_every == 0; }
};

std::string CheckpointsPath(const std::string& run_directory);

// Writes run_directory/checkpoints/step-<step>; then removes checkpoints of later steps (of a
// future that was given up) and those that need not be kept. On failure (a full disk) throws Error
// and leaves earlier checkpoints as they were. At any moment, also while a checkpoint of this step
// is replaced, a process that is killed leaves a complete checkpoint.
void SaveCheckpoint(const std::string& run_directory, const CheckpointContents& contents,
                    const Retention& retention);

// Removes what processes that were killed while saving or removing have left. Nobody else may be
// saving.
void RemovePartialCheckpoints(const std::string& run_directory);

// The newest checkpoint whose checksums hold, among those whose step `wanted` (if given) accepts.
// Damaged ones are skipped and told to `report`.
std::optional<std::string> FindCheckpoint(const std::string& run_directory,
                                          const std::function<void(std::string_view)>& report,
                                          const std::function<bool(int64_t)>& wanted = {});

// Why a checkpoint directory cannot be trusted, or "" if it can.
std::string DamageOf(const std::string& directory);

// The configuration that a checkpoint was made with.
RunConfig ReadCheckpointConfig(const std::string& directory);

// Restores everything from a checkpoint directory. `average` may be null; a checkpoint without
// averaged weights leaves it as it is, and averaged_updates is 0 then. Throws Error if the
// checkpoint belongs to another model or optimizer.
TrainState LoadCheckpoint(const std::string& directory, ParamTable& params, Optimizer& optimizer,
                          WeightAverage* average);

// The weights of a checkpoint that can be used.
enum class WeightsKind { kRaw, kAverage };
template <>
struct EnumNames<WeightsKind> {
  static constexpr std::array<std::pair<WeightsKind, const char*>, 2> kNames{
      {{WeightsKind::kRaw, "raw"}, {WeightsKind::kAverage, "average"}}};
};

// Only weights, for evaluation and generation. Throws Error if there are none of this kind.
void LoadWeights(const std::string& directory, ParamTable& params,
                 WeightsKind kind = WeightsKind::kRaw);

}  // namespace sandglass
