#include "train/import_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <limits>

#include "base/cpu.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// Positions of a model that does not say how many it was made for.
constexpr int64_t kUsualContext = 2048;

RunConfig ConfigOf(const ModelSource& source, const std::string& name) {
  RunConfig config{.name = name};
  config.model.config = source.config();
  config.model.family = source.config().norm == NormPlacement::kPost ? Family::kOlmo2
                        : source.config().shape.sub_mlps() > 1       ? Family::kHourglass
                                                                     : Family::kLlama;
  const int64_t context = source.context_length() > 0 ? source.context_length() : kUsualContext;
  config.train.length =
      static_cast<int>(std::min<int64_t>(context, std::numeric_limits<int>::max()));
  return config;
}

void RequireFreeDirectory(const std::string& directory) {
  if (!fs::exists(directory) || (fs::is_directory(directory) && fs::is_empty(directory))) return;
  throw Error({.what = "the place is taken",
               .where = directory,
               .expected = "a directory that does not exist yet, or an empty one",
               .remedy = "choose another --out, or remove what is there"});
}

}  // namespace

ImportedRun ImportRun(const ModelSource& source, const std::string& directory,
                      const std::function<void(int64_t)>& progress) {
  const fs::path place = fs::path(directory + "/").lexically_normal().parent_path();
  RequireFreeDirectory(place.string());
  const std::optional<Tokenizer> tokenizer = source.LoadTokenizer();
  if (tokenizer && tokenizer->vocabulary() > source.config().vocabulary) {
    throw Error({.what = fmt::format("the tokenizer has {} ids, the model {}",
                                     tokenizer->vocabulary(), source.config().vocabulary),
                 .where = source.path(),
                 .expected = "a tokenizer of the model's own"});
  }
  Model model(source.config(), {.purpose = Purpose::kEvaluate});
  model.params().Grant(DType::kF32, /*with_gradients=*/false);
  source.LoadWeights(model.params(), progress);

  const std::string aside = place.string() + ".partial";
  fs::remove_all(aside);
  CreateDirectories(aside);
  try {
    const RunConfig config = ConfigOf(source, place.filename().string());
    const std::string toml = ToToml(WriteFields(config));
    const RunInfo info{
        .version = SANDGLASS_VERSION,
        .started = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::time(nullptr))),
        .cpu = CpuModelName(),
        .tokenizer_hash = tokenizer ? tokenizer->hash() : "",
        .imported_from = fmt::format("{} ({})", source.path(), source.description())};
    if (tokenizer) WriteFileAtomically(TokenizerPath(aside), tokenizer->ToJson());
    WriteFileAtomically(InfoPath(aside), WriteFields(info).dump(2) + "\n");
    WriteFileAtomically(ConfigPath(aside), toml);
    SaveCheckpoint(aside, {.files = {WeightsFileOf(model.params())}, .configuration = toml}, {});
    fs::rename(aside, place);
    const fs::path parent = place.parent_path();
    SyncDirectory(parent.empty() ? "." : parent.string());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
  return {.parameters = model.params().elements(),
          .tokenizer_hash = tokenizer ? tokenizer->hash() : ""};
}

}  // namespace sandglass
