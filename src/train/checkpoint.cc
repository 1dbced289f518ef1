#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/fields.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/safetensors.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kMomentsFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr const char* kManifestFile = "manifest.json";
constexpr std::string_view kStepPrefix = "step-";

NamedTensor TensorOf(const std::string& name, const ParamSpec& spec, View view) {
  std::vector<int64_t> shape = {spec.rows, spec.cols};
  if (spec.rows == 1) shape = {spec.cols};
  return {name, std::move(shape), view};
}

// Directories named step-<number>, newest first.
std::vector<std::pair<int64_t, fs::path>> ListCheckpoints(const std::string& run_directory) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(CheckpointsPath(run_directory), missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix)) continue;
    const std::string digits = name.substr(kStepPrefix.size());
    if (digits.empty() ||
        !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) {
      continue;
    }
    found.emplace_back(std::stoll(digits), entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

void WriteManifest(const std::string& directory) {
  Json files = Json::object();
  for (const char* name : {kWeightsFile, kMomentsFile, kStateFile}) {
    const std::string path = directory + "/" + name;
    files[name] = {{"bytes", fs::file_size(path)}, {"xxh3", HashHex(HashFile(path))}};
  }
  WriteFileAtomically(directory + "/" + kManifestFile,
                      Json{{"format", "sandglass-checkpoint-1"}, {"files", files}}.dump(2) + "\n");
}

// Why a checkpoint cannot be trusted, or "" if it can.
std::string DamageOf(const std::string& directory) {
  try {
    const Json manifest = Json::parse(ReadFile(directory + "/" + kManifestFile));
    for (const char* name : {kWeightsFile, kMomentsFile, kStateFile}) {
      const std::string expected = manifest.at("files").at(name).at("xxh3").get<std::string>();
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

}  // namespace

std::string CheckpointsPath(const std::string& run_directory) {
  return run_directory + "/checkpoints";
}

void SaveCheckpoint(const std::string& run_directory, const ParamTable& params,
                    const AdamW& optimizer, const TrainState& state, int keep) {
  const std::string parent = CheckpointsPath(run_directory);
  const std::string directory = fmt::format("{}/{}{:08}", parent, kStepPrefix, state.step);
  const std::string aside = directory + ".partial";
  fs::remove_all(aside);
  CreateDirectories(aside);
  try {
    std::vector<NamedTensor> weights, moments;
    for (const ParamSpec& spec : params.specs()) {
      weights.push_back(TensorOf(spec.name, spec, spec.param->value));
      moments.push_back(
          TensorOf("m/" + spec.name, spec, params.Slice(optimizer.first_moment(), spec)));
      moments.push_back(
          TensorOf("v/" + spec.name, spec, params.Slice(optimizer.second_moment(), spec)));
    }
    WriteSafetensors(aside + "/" + kWeightsFile, weights);
    WriteSafetensors(aside + "/" + kMomentsFile, moments);
    WriteFileAtomically(aside + "/" + kStateFile, WriteFields(state).dump(2) + "\n");
    WriteManifest(aside);
    fs::remove_all(directory);
    fs::rename(aside, directory);
    SyncDirectory(parent);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
  int kept = 0;
  for (const auto& [step, path] : ListCheckpoints(run_directory)) {
    if (step > state.step || kept == keep) {
      fs::remove_all(path);
    } else {
      ++kept;
    }
  }
}

std::optional<std::string> FindCheckpoint(const std::string& run_directory,
                                          const std::function<void(std::string_view)>& report) {
  for (const auto& [step, path] : ListCheckpoints(run_directory)) {
    const std::string damage = DamageOf(path.string());
    if (damage.empty()) return path.string();
    report(fmt::format("checkpoint {} is damaged and is skipped: {}", path.string(), damage));
  }
  return std::nullopt;
}

TrainState LoadCheckpoint(const std::string& directory, ParamTable& params, AdamW& optimizer) {
  LoadWeights(directory, params);
  const SafetensorsFile moments(directory + "/" + kMomentsFile);
  for (const ParamSpec& spec : params.specs()) {
    moments.CopyTo("m/" + spec.name, params.Slice(optimizer.first_moment(), spec));
    moments.CopyTo("v/" + spec.name, params.Slice(optimizer.second_moment(), spec));
  }
  TrainState state;
  const std::string path = directory + "/" + kStateFile;
  ReadAllFields(state, {.values = Json::parse(ReadFile(path)), .source = path});
  return state;
}

void LoadWeights(const std::string& directory, ParamTable& params) {
  const SafetensorsFile weights(directory + "/" + kWeightsFile);
  for (const ParamSpec& spec : params.specs()) weights.CopyTo(spec.name, spec.param->value);
}

}  // namespace sandglass
