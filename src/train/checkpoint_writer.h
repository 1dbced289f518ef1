// Saves checkpoints while training goes on.
#pragma once

#include <future>
#include <string>

#include "ops/backend.h"
#include "tensor/memory_plan.h"
#include "train/checkpoint.h"

namespace sandglass {

enum class SaveMode {
  kBackground,  // copies the tensors and writes the copy on a thread of its own, if there is memory
  kForeground,  // writes before Save returns
};

class CheckpointWriter {
 public:
  CheckpointWriter(Backend& ops, std::string run_directory, const Retention& retention,
                   SaveMode mode);
  // Waits for the save that is going on; an error of it is lost, so call Wait before.
  ~CheckpointWriter();

  // Saves the contents as they are now; their views need not stay unchanged afterwards. Waits for
  // the save before. Throws Error if that one failed, or this one if it is written at once.
  void Save(const CheckpointContents& contents);
  // Throws the error of a save that has failed meanwhile. Cheap enough for every step.
  void Poll();
  // Returns when everything is on disk; throws Error if it is not.
  void Wait();

  // Time that training has waited in the calls above.
  double stalled_seconds() const { return stalled_seconds_; }

 private:
  // The contents with views of the copy; nothing if the memory for it is not to be had.
  std::optional<CheckpointContents> Copy(const CheckpointContents& contents);

  Backend& ops_;
  std::string run_directory_;
  Retention retention_;
  SaveMode mode_;
  AlignedBytes copy_;  // kept from one save to the next
  std::future<void> going_on_;
  double stalled_seconds_ = 0.0;
};

}  // namespace sandglass
