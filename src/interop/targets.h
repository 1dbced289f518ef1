// Which other programs can run a model, as what, and why not: asked by `plan` before there are
// weights and by `export` before anything is written.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "interop/names.h"
#include "model/config.h"

namespace sandglass {

// Where an exported model goes.
//   kHf     a directory for Hugging Face transformers; a modelling file of our own comes with it
//           where transformers has no such model itself
//   kVllm   a directory that vLLM runs with its own kernels
//   kGguf   one file for llama.cpp and all that is built on it
enum class ExportTarget { kHf, kVllm, kGguf };
// What weights are stored as. Norm gains stay f32 in GGUF files.
enum class ExportType { kF32, kF16, kBF16, kQ8_0 };

template <>
struct EnumNames<ExportTarget> {
  static constexpr std::array<std::pair<ExportTarget, const char*>, 3> kNames{
      {{ExportTarget::kHf, "hf"}, {ExportTarget::kVllm, "vllm"}, {ExportTarget::kGguf, "gguf"}}};
};
template <>
struct EnumNames<ExportType> {
  static constexpr std::array<std::pair<ExportType, const char*>, 4> kNames{
      {{ExportType::kF32, "f32"},
       {ExportType::kF16, "f16"},
       {ExportType::kBF16, "bf16"},
       {ExportType::kQ8_0, "q8_0"}}};
};

// Why something cannot be exported, and what would work.
struct ExportLimit {
  std::string reason;
  std::string remedy;
};

// How a model reaches a target.
struct ExportRoute {
  ExportTarget target = ExportTarget::kHf;
  Architecture architecture = Architecture::kHfSandglass;  // meaningless where there is a limit
  std::optional<ExportLimit> limit;                        // the target cannot hold the model
  std::vector<std::string> cautions;  // it can, but: what a designer should know
  std::vector<std::string> notes;     // how the exported model is loaded
};

// Never throws for a valid configuration.
ExportRoute RouteTo(ExportTarget target, ExportType type, const ModelConfig& config);

// Everything that a designer should know about a model before training it: the targets that are
// ruled out and why, and the widths that GGUF quantisations cannot split into whole blocks. One
// sentence each.
std::vector<std::string> ExportWarnings(const ModelConfig& config);

}  // namespace sandglass
