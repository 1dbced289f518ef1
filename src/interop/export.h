// Writing a model for other programs: a directory or a file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "interop/targets.h"
#include "io/gguf_types.h"
#include "tensor/param_table.h"

namespace sandglass {

// What is written, and how.
struct ExportJob {
  const ModelConfig& config;
  const ParamTable& params;    // values in f32
  const Tokenizer* tokenizer;  // nullptr: token ids only
  int64_t context_length;      // positions that the model was made for
  std::string name;            // of the model, for people
  ExportRoute route;
  ExportType type = ExportType::kF32;
  // Gets the bytes of weights written so far; may throw to give up. May be empty.
  std::function<void(uint64_t)> progress;
};

// A tensor of the file, and the parameter that it comes from.
struct PlacedParam {
  TensorPlace place;
  ConstView value;  // the whole parameter
};
std::vector<PlacedParam> PlacedParams(const ExportJob& job);

// Bytes of the weights in the file: the last value that `progress` gets.
uint64_t WeightBytes(const ExportJob& job);

// The type that a tensor has in the file: vectors stay f32 in GGUF.
GgufTensorType StoredType(const TensorPlace& place, const ExportRoute& route, ExportType type);

// Throws Error, naming `where`, if the route has a limit. Asked before weights are loaded.
void RequireRoute(const ExportRoute& route, const std::string& where);

// What happens to something that stands at the path already. Only an export is ever replaced: a
// GGUF file, or a directory with a config.json.
enum class Existing { kRefuse, kReplace };

// Writes beside `path` and renames: on any failure, and until `check` (which gets the path of what
// was written, and may throw) has returned, `path` is as it was.
void WriteExport(const ExportJob& job, const std::string& path, Existing existing,
                 const std::function<void(const std::string&)>& check = {});

// Throws Error if WriteExport would refuse the path. Asked before weights are loaded.
void RequireFreePath(ExportTarget target, const std::string& path, Existing existing);

}  // namespace sandglass
