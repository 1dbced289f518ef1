// sandglass plan FILE.toml: what the runs of a recipe or a run file cost.
#pragma once

#include <string>
#include <vector>

#include "app/output.h"

namespace sandglass {

struct PlanFileArguments {
  std::string path;
  std::vector<std::string> overrides;  // key=value
  double flop_per_s = 0.0;             // 0: days are not asked for
  OutputFormat format = OutputFormat::kText;
};

// Throws Error for mistakes in the file.
void PlanFile(const PlanFileArguments& arguments);

}  // namespace sandglass
