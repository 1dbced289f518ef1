// The main job: plans matched shapes, trains and evaluates each, and reports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "compare/recipe.h"
#include "compare/report.h"

namespace sandglass {

struct CompareOptions {
  std::string out;      // directory for data, runs and reports
  std::string command;  // command line, for the report
  ProgressMode progress = ProgressMode::kAutomatic;
  std::function<void(std::string_view)> note = [](std::string_view) {};
};

// Fills `options.out`:
//   recipe.toml     everything that defines the comparison, defaults too
//   data/           tokenizer and token shards
//   NAME-sSEED/     a run directory for each variant and seed (train/run_directory.h)
//   report.html, report.txt, report.json
// What is finished is not done again, and an interrupted comparison continues. A run that fails is
// reported as failed and the others go on. Returns nothing if it was interrupted; the report shows
// what had finished then. Throws Error for mistakes in the recipe before anything is trained, and
// if the directory holds a comparison of other text or with other settings.
std::optional<ReportData> Compare(const Recipe& recipe, const CompareOptions& options);

// Tokenizer and shards of the recipe's text, made if needed: the data directory.
std::string PrepareText(const Recipe& recipe, const CompareOptions& options);

}  // namespace sandglass
