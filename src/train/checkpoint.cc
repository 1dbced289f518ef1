#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/fields.h"
#include "base/file.h"
#include "base/hash.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kAverageFile = "average.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr const char* kConfigFile = "run.toml";
constexpr const char* kManifestFile = "manifest.json";
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartialSuffix = ".partial";
// What a checkpoint is called while a newer one of the same step takes its place.
constexpr std::string_view kReplacedSuffix = ".replaced";
// And what one is called that is being removed, so that half of it is never taken for a whole.
constexpr std::string_view kRemovedSuffix = ".removed";

std::vector<int64_t> ShapeOf(const ParamSpec& spec) {
  if (spec.rows == 1) return {spec.cols};
  return {spec.rows, spec.cols};
}

struct Found {
  int64_t step;
  bool replaced;
  fs::path path;
};

// Directories named step-<number>, newest first; a replaced one after the one that replaces it.
std::vector<Found> ListCheckpoints(const std::string& run_directory) {
  std::vector<Found> found;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(CheckpointsPath(run_directory), missing)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix)) continue;
    const bool replaced = name.ends_with(kReplacedSuffix);
    if (replaced) name.resize(name.size() - kReplacedSuffix.size());
    const std::string digits = name.substr(kStepPrefix.size());
    constexpr size_t kMostDigits = 18;
    if (digits.empty() || digits.size() > kMostDigits ||
        !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) {
      continue;
    }
    found.push_back({std::stoll(digits), replaced, entry.path()});
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    return std::tuple(-a.step, a.replaced) < std::tuple(-b.step, b.replaced);
  });
  return found;
}

void WriteManifest(const std::string& directory, const std::vector<std::string>& names) {
  Json files = Json::object();
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    files[name] = {{"bytes", fs::file_size(path)}, {"xxh3", HashHex(HashFile(path))}};
  }
  WriteFileAtomically(directory + "/" + kManifestFile,
                      Json{{"format", "sandglass-checkpoint-2"}, {"files", files}}.dump(2) + "\n");
}

void Remove(const fs::path& checkpoint) {
  const std::string removed = checkpoint.string() + std::string(kRemovedSuffix);
  fs::remove_all(removed);
  fs::rename(checkpoint, removed);
  fs::remove_all(removed);
}

// Gives `aside` its name. Two renames where the name is taken: in between, the old checkpoint is
// found under its name with kReplacedSuffix.
void Publish(const std::string& aside, const std::string& directory) {
  const std::string replaced = directory + std::string(kReplacedSuffix);
  if (fs::exists(directory)) {
    if (fs::exists(replaced)) Remove(replaced);
    fs::rename(directory, replaced);
  }
  fs::rename(aside, directory);
  const fs::path parent = fs::path(directory).parent_path();
  SyncDirectory(parent.string());
  SyncDirectory(parent.parent_path().string());
  if (fs::exists(replaced)) Remove(replaced);
}

void RemoveOthers(const std::string& run_directory, int64_t newest_step,
                  const Retention& retention) {
  int due = 0;
  for (const Found& found : ListCheckpoints(run_directory)) {
    const bool counts = found.step <= newest_step && retention.IsDue(found.step) && !found.replaced;
    const bool kept =
        found.step == newest_step || (found.step < newest_step && !found.replaced &&
                                      ((counts && due < retention.newest) ||
                                       (retention.every > 0 && found.step % retention.every == 0)));
    if (counts) ++due;
    if (!kept) Remove(found.path);
  }
}

// The tensors of the table from a file that must hold these and no others.
template <class SliceOf>
void LoadTensors(const std::string& path, const ParamTable& params, const SliceOf& slice_of) {
  const SafetensorsFile file(path);
  for (const ParamSpec& spec : params.specs()) {
    const SafetensorsFile::Entry& entry = file.Find(spec.name);
    if (entry.shape != ShapeOf(spec)) {
      throw Error({.what = fmt::format("tensor \"{}\" has the shape [{}]", spec.name,
                                       fmt::join(entry.shape, ", ")),
                   .where = path,
                   .expected = fmt::format("[{}]", fmt::join(ShapeOf(spec), ", ")),
                   .remedy = "use the file with the configuration that it was written with"});
    }
    file.CopyTo(spec.name, slice_of(spec));
  }
  if (file.entries().size() != params.specs().size()) {
    throw Error({.what = fmt::format("the file holds {} tensors", file.entries().size()),
                 .where = path,
                 .expected = fmt::format("the model's {}", params.specs().size()),
                 .remedy = "use the file with the configuration that it was written with"});
  }
}

// An average that no update has gone into yet has a file, but no values.
bool HoldsAverage(const std::string& directory) {
  if (!fs::exists(directory + "/" + kAverageFile)) return false;
  const Json state = Json::parse(ReadFile(directory + "/" + kStateFile));
  return state.value("averaged_updates", int64_t{0}) > 0;
}

}  // namespace

TensorFile WeightsFileOf(const ParamTable& params) {
  TensorFile file{kWeightsFile, {}};
  for (const ParamSpec& spec : params.specs()) {
    file.tensors.push_back({spec.name, ShapeOf(spec), spec.param->value});
  }
  return file;
}

std::vector<TensorFile> TensorFilesOf(const ParamTable& params, const Optimizer& optimizer,
                                      const WeightAverage* average) {
  std::vector<TensorFile> files = {WeightsFileOf(params), {kOptimizerFile, {}}};
  for (const OptimizerTensor& tensor : optimizer.State()) {
    files[1].tensors.push_back({tensor.name, ShapeOf(*tensor.spec), tensor.view});
  }
  if (average == nullptr) return files;
  files.push_back({kAverageFile, {}});
  for (const ParamSpec& spec : params.specs()) {
    files[2].tensors.push_back({spec.name, ShapeOf(spec), params.Slice(average->values(), spec)});
  }
  return files;
}

std::string CheckpointsPath(const std::string& run_directory) {
  return run_directory + "/checkpoints";
}

void SaveCheckpoint(const std::string& run_directory, const CheckpointContents& contents,
                    const Retention& retention) {
  const std::string directory =
      fmt::format("{}/{}{:08}", CheckpointsPath(run_directory), kStepPrefix, contents.state.step);
  const std::string aside = directory + std::string(kPartialSuffix);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  CreateDirectories(aside);
  try {
    std::vector<std::string> names;
    for (const TensorFile& file : contents.files) {
      WriteSafetensors(aside + "/" + file.name, file.tensors);
      names.push_back(file.name);
    }
    WriteFileAtomically(aside + "/" + kStateFile, WriteFields(contents.state).dump(2) + "\n");
    WriteFileAtomically(aside + "/" + kConfigFile, contents.configuration);
    names.insert(names.end(), {kStateFile, kConfigFile});
    WriteManifest(aside, names);
    Publish(aside, directory);
  } catch (...) {
    fs::remove_all(aside, ignored);
    throw;
  }
  RemoveOthers(run_directory, contents.state.step, retention);
}

void RemovePartialCheckpoints(const std::string& run_directory) {
  std::vector<fs::path> partial;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(CheckpointsPath(run_directory), missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kStepPrefix) &&
        (name.ends_with(kPartialSuffix) || name.ends_with(kRemovedSuffix))) {
      partial.push_back(entry.path());
    }
  }
  for (const fs::path& path : partial) fs::remove_all(path);
}

std::string DamageOf(const std::string& directory) {
  try {
    const Json manifest = Json::parse(ReadFile(directory + "/" + kManifestFile));
    const Json& files = manifest.at("files");
    if (!files.contains(kWeightsFile)) return "its manifest lists no weights";
    for (const auto& [name, facts] : files.items()) {
      const std::string expected = facts.at("xxh3").get<std::string>();
      if (HashHex(HashFile(directory + "/" + name)) != expected) {
        return fmt::format("the checksum of {} does not hold", name);
      }
    }
  } catch (const Error& failure) {
    return failure.parts().what + " (" + failure.parts().where + ")";
  } catch (const Json::exception& failure) {
    return std::string("its manifest is damaged: ") + failure.what();
  }
  return "";
}

std::optional<std::string> FindCheckpoint(const std::string& run_directory,
                                          const std::function<void(std::string_view)>& report,
                                          const std::function<bool(int64_t)>& wanted) {
  for (const Found& found : ListCheckpoints(run_directory)) {
    if (wanted && !wanted(found.step)) continue;
    const std::string damage = DamageOf(found.path.string());
    if (damage.empty()) return found.path.string();
    report(fmt::format("checkpoint {} is damaged and is skipped: {}", found.path.string(), damage));
  }
  return std::nullopt;
}

RunConfig ReadCheckpointConfig(const std::string& directory) {
  return RunConfig::FromTree(LoadToml(directory + "/" + kConfigFile));
}

TrainState LoadCheckpoint(const std::string& directory, ParamTable& params, Optimizer& optimizer,
                          WeightAverage* average) {
  if (!fs::exists(directory + "/" + kOptimizerFile)) {
    throw Error({.what = "the checkpoint holds weights alone, so no run can go on from it",
                 .where = directory,
                 .remedy = "start a run from its weights: train.initial_weights"});
  }
  LoadWeights(directory, params);
  const SafetensorsFile file(directory + "/" + kOptimizerFile);
  const std::vector<OptimizerTensor> tensors = optimizer.State();
  for (const OptimizerTensor& tensor : tensors) file.CopyTo(tensor.name, tensor.view);
  if (file.entries().size() != tensors.size()) {
    throw Error({.what = "the checkpoint was made with another optimizer",
                 .where = file.path(),
                 .expected = "the same optimizer.kind and optimizer.muon.roles"});
  }
  TrainState state;
  const std::string path = directory + "/" + kStateFile;
  ReadAllFields(state, {.values = Json::parse(ReadFile(path)), .source = path});
  const std::string average_path = directory + "/" + kAverageFile;
  if (average != nullptr && fs::exists(average_path)) {
    LoadTensors(average_path, params,
                [&](const ParamSpec& spec) { return params.Slice(average->values(), spec); });
  } else {
    state.averaged_updates = 0;
  }
  return state;
}

void LoadWeights(const std::string& directory, ParamTable& params, WeightsKind kind) {
  const std::string path =
      directory + "/" + (kind == WeightsKind::kAverage ? kAverageFile : kWeightsFile);
  if (kind == WeightsKind::kAverage && !HoldsAverage(directory)) {
    throw Error({.what = "the checkpoint holds no averaged weights",
                 .where = directory,
                 .remedy = "train with train.average_decay = 0.999, say; or use the raw weights"});
  }
  LoadTensors(path, params, [](const ParamSpec& spec) { return spec.param->value; });
}

}  // namespace sandglass
