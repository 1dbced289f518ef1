// Starting a run from a checkpoint of another one: a cool-down from the constant part of a wsd
// schedule, a longer budget, another learning rate.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "train/options.h"
#include "train/run_directory.h"

namespace sandglass {

struct BranchPoint {
  std::string checkpoint;  // its directory
  bool same_data = true;   // the data position goes on; otherwise it starts again at the beginning
};

// Where train.branch_from leads: a checkpoint directory, or a run directory, of which it is the
// newest sound checkpoint. Tells `report` what is configured differently there. Throws Error if
// there is none, or if it belongs to another model.
BranchPoint FindBranchPoint(const RunConfig& config, const RunInfo& info,
                            const std::function<void(std::string_view)>& report);

}  // namespace sandglass
