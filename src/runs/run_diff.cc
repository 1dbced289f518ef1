#include "runs/run_diff.h"

#include "base/error.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

RunRecord ReadRun(const std::string& directory) {
  if (!IsRunDirectory(directory)) {
    throw Error({.what = "this is not a run directory: it has no run.toml and run.json",
                 .where = directory,
                 .expected = "a directory that `sandglass train` wrote"});
  }
  return ReadRunRecord(directory);
}

// What two runs never share: their names, and when they began.
bool TellsRunsApart(const std::string& section, const std::string& key) {
  return (section == "run" && key == "name") ||
         (section == "info" && (key == "started" || key == "starts"));
}

}  // namespace

RunDiff DiffRuns(const std::string& a, const std::string& b) {
  const RunRecord first = ReadRun(a);
  const RunRecord second = ReadRun(b);
  RunDiff diff;
  for (size_t s = 0; s < first.sections.size(); ++s) {
    const RecordSection& section = first.sections[s];
    const bool outcome = section.name == "run" || section.name == "result";
    for (size_t i = 0; i < section.fields.size(); ++i) {
      const auto& [key, value] = section.fields[i];
      const Json& other = second.sections[s].fields[i].second;
      if (value == other || TellsRunsApart(section.name, key)) continue;
      (outcome ? diff.outcome : diff.configuration)
          .push_back({section.name + "." + key, value, other});
    }
  }
  return diff;
}

}  // namespace sandglass
