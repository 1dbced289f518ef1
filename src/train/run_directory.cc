#include "train/run_directory.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "train/checkpoint.h"

namespace sandglass {
namespace {

Json ParseJsonFile(const std::string& path) {
  try {
    return Json::parse(ReadFile(path));
  } catch (const Json::exception& failure) {
    throw Error({.what = fmt::format("not valid JSON: {}", failure.what()),
                 .where = path,
                 .remedy = "the file is damaged; restore it or start the run in a new directory"});
  }
}

template <class T>
T ReadJsonFile(const std::string& path) {
  T value;
  ReadFields(value, {.values = ParseJsonFile(path), .source = path});
  return value;
}

}  // namespace

PreparedData PreparedData::Open(const std::string& directory) {
  if (directory.empty()) {
    throw Error({.what = "no data directory is given",
                 .where = "data.path",
                 .expected = "a directory that `sandglass prepare` wrote"});
  }
  if (!std::filesystem::is_directory(directory)) {
    throw Error(
        {.what = "there is no such data directory",
         .where = directory,
         .expected = "a directory that `sandglass prepare` wrote",
         .remedy = "sandglass prepare --tokenizer tokenizer.json --out " + directory + " TEXT..."});
  }
  PreparedData data{Tokenizer::Load(TokenizerPath(directory)), TokenShard(directory + "/train.bin"),
                    TokenShard(directory + "/validation.bin")};
  data.train.RequireTokenizer(data.tokenizer);
  data.validation.RequireTokenizer(data.tokenizer);
  return data;
}

std::string ConfigPath(const std::string& run_directory) { return run_directory + "/run.toml"; }
std::string InfoPath(const std::string& run_directory) { return run_directory + "/run.json"; }
std::string TokenizerPath(const std::string& run_directory) {
  return run_directory + "/tokenizer.json";
}
std::string ResultPath(const std::string& run_directory) { return run_directory + "/result.json"; }

RunInfo ReadRunInfo(const std::string& run_directory) {
  return ReadJsonFile<RunInfo>(InfoPath(run_directory));
}

std::optional<RunResult> FindResult(const std::string& run_directory) {
  if (!std::filesystem::exists(ResultPath(run_directory))) return std::nullopt;
  return ReadJsonFile<RunResult>(ResultPath(run_directory));
}

RunConfig ReadRunConfig(const std::string& run_directory) {
  if (!std::filesystem::exists(ConfigPath(run_directory))) {
    throw Error({.what = "this is not a run directory: it has no run.toml",
                 .where = run_directory,
                 .expected = "a directory that `sandglass train` wrote"});
  }
  return RunConfig::FromTree(LoadToml(ConfigPath(run_directory)));
}

TrainedModel LoadTrainedModel(const std::string& run_directory, const Capacity& capacity,
                              const SystemOptions& system,
                              const std::function<void(std::string_view)>& report) {
  TrainedModel trained{.config = ReadRunConfig(run_directory)};
  const std::optional<std::string> checkpoint = FindCheckpoint(run_directory, report);
  if (!checkpoint) {
    throw Error({.what = "the run has no sound checkpoint",
                 .where = run_directory,
                 .remedy = "train it first: sandglass train " + ConfigPath(run_directory)});
  }
  trained.checkpoint = *checkpoint;
  trained.backend = system.MakeBackend();
  trained.model = std::make_unique<Model>(trained.config.model.config, capacity);
  trained.model->Allocate(*trained.backend);
  LoadWeights(*checkpoint, trained.model->params());
  return trained;
}

}  // namespace sandglass
