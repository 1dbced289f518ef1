#include "train/branch.h"

#include <fmt/format.h>

#include <filesystem>

#include "train/checkpoint.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "train.branch_from";

// The newest sound checkpoint of a run directory, or the checkpoint itself.
std::string FindSource(const std::string& path,
                       const std::function<void(std::string_view)>& report) {
  if (IsRunDirectory(path)) {
    if (const auto newest = FindCheckpoint(path, report)) return *newest;
    throw Error({.what = fmt::format("the run {} has no sound checkpoint", path), .where = kWhere});
  }
  if (!fs::is_directory(path)) {
    throw Error({.what = fmt::format("{} is not there", path),
                 .where = kWhere,
                 .expected = "a run directory, or one of the directories in its checkpoints/"});
  }
  if (const std::string damage = DamageOf(path); !damage.empty()) {
    throw Error({.what = fmt::format("{} is no sound checkpoint: {}", path, damage),
                 .where = kWhere,
                 .expected = "a run directory, or one of the directories in its checkpoints/"});
  }
  return path;
}

}  // namespace

BranchPoint FindBranchPoint(const RunConfig& config, const RunInfo& info,
                            const std::function<void(std::string_view)>& report) {
  BranchPoint point{.checkpoint = FindSource(config.train.branch_from, report)};
  const RunConfig source = ReadCheckpointConfig(point.checkpoint);
  const std::vector<std::string> other_model = Differences(source.model, config.model);
  if (!other_model.empty()) {
    throw Error({.what = fmt::format("the checkpoint holds another model: {}",
                                     fmt::join(other_model, ", ")),
                 .where = point.checkpoint,
                 .expected = "the same [model]: a branch changes how training goes on, not what "
                             "is trained"});
  }
  const std::vector<std::string> changes =
      Differences(source, config, {"name", "system", "log", "data", "train.branch_from"});
  if (!changes.empty()) {
    report(
        fmt::format("branching from {}; changed: {}", point.checkpoint, fmt::join(changes, ", ")));
  } else {
    report(fmt::format("branching from {}", point.checkpoint));
  }
  // checkpoints/step-N lies two levels below its run directory.
  const std::string run_directory =
      fs::absolute(point.checkpoint).lexically_normal().parent_path().parent_path().string();
  if (IsRunDirectory(run_directory)) {
    point.same_data = ReadRunInfo(run_directory).train_hash == info.train_hash;
  }
  if (!point.same_data) report("the training data is another: it is read from its beginning");
  return point;
}

}  // namespace sandglass
