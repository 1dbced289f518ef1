#include "interop/export.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "interop/export_gguf.h"
#include "interop/export_hf.h"
#include "io/gguf_types.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// Whether `path` is something that an export may replace.
bool IsExport(ExportTarget target, const fs::path& path) {
  if (target != ExportTarget::kGguf) {
    return fs::is_directory(path) && (fs::exists(path / "config.json") || fs::is_empty(path));
  }
  if (!fs::is_regular_file(path)) return false;
  std::string magic(kGgufMagic.size(), '\0');
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const size_t read = std::fread(magic.data(), 1, magic.size(), file);
  std::fclose(file);
  return read == magic.size() && magic == kGgufMagic;
}

// Moves `from` to `to`. What stands at `to` is exchanged in the same step and then removed, so that
// there is a whole export at every moment.
void Publish(const fs::path& from, const fs::path& to) {
  if (fs::exists(to)) {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
      throw Error({.what = fmt::format("cannot replace it: {}", std::strerror(errno)),
                   .where = to.string(),
                   .remedy = "remove it yourself, or choose another path"});
    }
    fs::remove_all(from);
  } else {
    fs::rename(from, to);
  }
  SyncDirectory(to.has_parent_path() ? to.parent_path().string() : ".");
}

// Weights that are no numbers, or that the type of the file would turn into infinities.
void RequireSoundWeights(const ParamTable& params, ExportType type) {
  const float largest = type == ExportType::kF16 ? 65504.0f : std::numeric_limits<float>::max();
  for (const ParamSpec& spec : params.specs()) {
    const float* values = spec.param->value.Row<float>();
    for (int64_t i = 0; i < spec.elements(); ++i) {
      if (std::abs(values[i]) <= largest) continue;
      throw Error({.what = fmt::format("{} holds {} at row {}, column {}", spec.name, values[i],
                                       i / spec.cols, i % spec.cols),
                   .expected = fmt::format("finite values up to {:g}", largest),
                   .remedy = type == ExportType::kF16 ? "--type bf16 or f32"
                                                      : "export an earlier checkpoint"});
    }
  }
}

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

std::vector<PlacedParam> PlacedParams(const ExportJob& job) {
  std::map<std::string, ConstView> values;
  for (const ParamSpec& spec : job.params.specs()) values[spec.name] = spec.param->value;
  std::vector<PlacedParam> placed;
  for (TensorPlace& place : TensorPlaces(job.config, job.route.architecture)) {
    const ConstView value = values.at(place.param);
    placed.push_back({std::move(place), value});
  }
  if (job.route.architecture == Architecture::kGgufOlmo2 &&
      job.config.embeddings == Embeddings::kTied) {
    // llama.cpp requires an output matrix in files of this architecture.
    const ConstView embedding = values.at("embedding");
    placed.push_back({{.name = "output.weight",
                       .param = "embedding",
                       .rows = job.config.vocabulary,
                       .cols = embedding.cols},
                      embedding});
  }
  return placed;
}

uint64_t WeightBytes(const ExportJob& job) {
  uint64_t bytes = 0;
  for (const PlacedParam& placed : PlacedParams(job)) {
    const GgufTypeInfo& info = InfoOf(StoredType(placed.place, job.route, job.type));
    bytes +=
        static_cast<uint64_t>(placed.place.elements() / info.block_elements * info.block_bytes);
  }
  return bytes;
}

GgufTensorType StoredType(const TensorPlace& place, const ExportRoute& route, ExportType type) {
  if (place.vector && IsGguf(route.architecture)) return GgufTensorType::kF32;
  switch (type) {
    case ExportType::kF32:
      return GgufTensorType::kF32;
    case ExportType::kF16:
      return GgufTensorType::kF16;
    case ExportType::kBF16:
      return GgufTensorType::kBF16;
    case ExportType::kQ8_0:
      return GgufTensorType::kQ8_0;
  }
  SANDGLASS_CHECK(false, "unknown export type");
}

void RequireRoute(const ExportRoute& route, const std::string& where) {
  if (!route.limit) return;
  throw Error({.what = fmt::format("this model cannot be exported with --to {}: {}",
                                   EnumName(route.target), route.limit->reason),
               .where = where,
               .remedy = route.limit->remedy});
}

void RequireFreePath(ExportTarget target, const std::string& path, Existing existing) {
  if (!fs::exists(path)) return;
  if (existing == Existing::kRefuse) {
    throw Error({.what = "there is something at the output path already",
                 .where = path,
                 .remedy = "choose another --out, or replace an earlier export with --force"});
  }
  if (IsExport(target, path)) return;
  throw Error({.what = "what stands at the output path is not an export",
               .where = path,
               .expected = target == ExportTarget::kGguf ? "a GGUF file, or nothing"
                                                         : "a directory with a config.json, an "
                                                           "empty one, or nothing",
               .remedy = "choose another --out"});
}

void WriteExport(const ExportJob& job, const std::string& path, Existing existing,
                 const std::function<void(const std::string&)>& check) {
  RequireRoute(job.route, path);
  RequireFreePath(job.route.target, path, existing);
  RequireSoundWeights(job.params, job.type);
  const fs::path target = WithoutTrailingSlash(path);
  if (target.has_parent_path()) CreateDirectories(target.parent_path().string());
  const std::string aside = target.string() + ".partial";
  fs::remove_all(aside);
  try {
    if (IsGguf(job.route.architecture)) {
      WriteGgufModel(job, aside);
    } else {
      CreateDirectories(aside);
      WriteHfDirectory(job, aside);
    }
    if (check) check(aside);
    Publish(aside, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
}

}  // namespace sandglass
