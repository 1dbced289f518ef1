// Two runs side by side: what was asked for, what they ran with, what came out.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "runs/run_record.h"

namespace sandglass {

// A key whose values differ; null where a run has none.
struct RunDifference {
  std::string key;  // "train.batch"
  Json a;
  Json b;
};

struct RunDiff {
  std::vector<RunDifference> configuration;  // of the run files and of what the runs ran with
  std::vector<RunDifference> outcome;        // what "run" and "result" say
};

// Throws Error if one of the directories is no run. Paths, names and times do not count as
// differences.
RunDiff DiffRuns(const std::string& a, const std::string& b);

}  // namespace sandglass
