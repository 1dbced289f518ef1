#include "train/run_directory.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "data/prepare.h"
#include "train/checkpoint.h"
#include "train/metrics.h"

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
  ReadAllFields(value, {.values = ParseJsonFile(path), .source = path});
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
  PreparedData data{Tokenizer::Load(TokenizerPath(directory)),
                    TokenShard(directory + "/" + kTrainShardName),
                    TokenShard(directory + "/" + kValidationShardName)};
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

void RecordStart(const std::string& run_directory, const RunInfo& info, int64_t step) {
  RunInfo recorded = ReadRunInfo(run_directory);
  std::vector<RunStart> starts = recorded.starts.value_or(std::vector<RunStart>());
  std::erase_if(starts, [&](const RunStart& start) { return start.step >= step; });
  starts.push_back({.step = step,
                    .started = info.started,
                    .version = info.version,
                    .build = info.build.value_or(""),
                    .host = info.host.value_or(""),
                    .cpu = info.cpu,
                    .backend = info.backend});
  recorded.starts = std::move(starts);
  WriteFileAtomically(InfoPath(run_directory), WriteFields(recorded).dump(2) + "\n");
}

std::optional<RunResult> FindResult(const std::string& run_directory) {
  if (!std::filesystem::exists(ResultPath(run_directory))) return std::nullopt;
  const RunResult result = ReadJsonFile<RunResult>(ResultPath(run_directory));
  if (result.steps <= 0 || result.tokens <= 0 || !(result.validation_loss > 0) ||
      !std::isfinite(result.validation_loss) || result.validation_tokens <= 0) {
    throw Error({.what = "the result of the run makes no sense",
                 .where = ResultPath(run_directory),
                 .remedy = "the file is damaged; remove it, and the same command evaluates the "
                           "last checkpoint again"});
  }
  return result;
}

bool IsRunDirectory(const std::string& directory) {
  return std::filesystem::exists(ConfigPath(directory)) &&
         std::filesystem::exists(InfoPath(directory));
}

void DiscardRun(const std::string& run_directory) {
  namespace fs = std::filesystem;
  for (const std::string& path : ListEventFiles(run_directory)) fs::remove(path);
  // What makes the directory a run goes last, so that a process that is killed here leaves no
  // checkpoints behind that a later run could take for its own.
  for (const std::string& path :
       {CheckpointsPath(run_directory), MetricsPath(run_directory), ResultPath(run_directory),
        TokenizerPath(run_directory), InfoPath(run_directory), ConfigPath(run_directory)}) {
    fs::remove_all(path);
  }
}

void RemoveUnfinishedFiles(const std::string& run_directory) {
  for (const std::string& path :
       {ConfigPath(run_directory), InfoPath(run_directory), TokenizerPath(run_directory),
        ResultPath(run_directory), MetricsPath(run_directory)}) {
    RemoveUnfinished(path);
  }
}

RunConfig ReadRunConfig(const std::string& run_directory) {
  if (!std::filesystem::exists(ConfigPath(run_directory))) {
    throw Error({.what = "this is not a run directory: it has no run.toml",
                 .where = run_directory,
                 .expected = "a directory that `sandglass train` wrote"});
  }
  return RunConfig::FromTree(LoadToml(ConfigPath(run_directory)));
}

}  // namespace sandglass
