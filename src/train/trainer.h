// Trains one model as its run file says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace sandglass {

enum class ExistingRun { kContinue, kDiscard };

struct TrainCallbacks {
  ProgressMode progress = ProgressMode::kAutomatic;
  // Notes for the user: a damaged checkpoint that is skipped, the step that training resumes from.
  std::function<void(std::string_view)> note = [](std::string_view) {};
  // Called after each optimizer step.
  std::function<void(const StepMetrics&)> step = [](const StepMetrics&) {};
};

// Trains in `directory`, from the newest sound checkpoint there if there is one; a finished run is
// not repeated. A resumed run ends with the weights of an uninterrupted one, bit for bit (with the
// same number of threads). Returns nothing if it was interrupted: a checkpoint was saved then, and
// the same call continues. Throws Error if the directory holds a run of another configuration or
// data, and for every mistake in the configuration.
std::optional<RunResult> Train(const RunConfig& config, const std::string& directory,
                               ExistingRun existing, const TrainCallbacks& callbacks);

}  // namespace sandglass
