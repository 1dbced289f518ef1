#include "interop/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace sandglass {
namespace {

constexpr int kLlamaCppMaxBlocks = 512;
constexpr int64_t kQ8Block = 32;       // Q8_0, Q4_0: weights that share a scale
constexpr int64_t kKQuantBlock = 256;  // Q4_K, Q6_K and relatives
// Head widths that vLLM's attention on CPUs has kernels for (0.32).
constexpr std::array kVllmCpuHeadWidths = {32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512};

bool IsConventional(const ModelConfig& config, NormPlacement norm, QkNorm qk_norm) {
  return config.shape.sub_mlps() == 1 && config.norm == norm && config.qk_norm == qk_norm;
}
bool IsPlain(const ModelConfig& config) {
  return config.norm == NormPlacement::kPre && config.qk_norm == QkNorm::kNone;
}
bool IsOlmo2(const ModelConfig& config) {
  return IsConventional(config, NormPlacement::kPost, QkNorm::kFullWidth);
}
bool IsQwen3(const ModelConfig& config) {
  return IsConventional(config, NormPlacement::kPre, QkNorm::kPerHead);
}
bool IsLlama(const ModelConfig& config) {
  return IsConventional(config, NormPlacement::kPre, QkNorm::kNone);
}
bool HeadsDivideWidth(const Shape& shape) { return shape.d_model % shape.heads == 0; }

// The architectural parts of a model that is none of the conventional ones, for messages.
std::string Describe(const ModelConfig& config) {
  return fmt::format("{}-norm with {} and {}", EnumName(config.norm),
                     config.qk_norm == QkNorm::kNone      ? "no QK-norm"
                     : config.qk_norm == QkNorm::kPerHead ? "per-head QK-norm"
                                                          : "full-width QK-norm",
                     config.shape.sub_mlps() == 1
                         ? std::string("one FFN per layer")
                         : fmt::format("{} sub-MLPs per layer", config.shape.sub_mlps()));
}

void RouteToHf(const ModelConfig& config, ExportRoute& route) {
  if (IsLlama(config) && HeadsDivideWidth(config.shape)) {
    route.architecture = Architecture::kHfLlama;
  } else if (IsQwen3(config)) {
    route.architecture = Architecture::kHfQwen3;
  } else if (IsOlmo2(config)) {
    route.architecture = Architecture::kHfOlmo2;
  } else {
    route.architecture = Architecture::kHfSandglass;
    route.notes.push_back(
        "transformers loads it with trust_remote_code=True: the modelling file is in the "
        "directory");
    if (IsLlama(config)) {
      route.cautions.push_back(
          fmt::format("transformers' own Llama class refuses d_model = {} with {} heads, which do "
                      "not divide it: a modelling file is exported with the model",
                      config.shape.d_model, config.shape.heads));
    }
  }
}

void RouteToVllm(const ModelConfig& config, ExportRoute& route) {
  const Shape& shape = config.shape;
  if (IsLlama(config) && HeadsDivideWidth(shape)) {
    route.architecture = Architecture::kHfLlama;
  } else if (IsQwen3(config)) {
    route.architecture = Architecture::kHfQwen3;
  } else if (IsOlmo2(config)) {
    route.architecture = Architecture::kHfOlmo2;
  } else if (IsPlain(config)) {
    route.architecture = Architecture::kHfNemotronNas;
    route.notes.push_back(
        "vLLM loads it with --trust-remote-code: a configuration class is in the directory");
  } else {
    route.limit = {fmt::format("it has no model that is {}; several sub-MLPs run only as "
                               "nemotron_nas, which is pre-norm without QK-norm",
                               Describe(config)),
                   "--to hf; vLLM loads that through its Transformers backend: vllm serve "
                   "DIRECTORY --trust-remote-code --model-impl transformers"};
    return;
  }
  if (std::ranges::find(kVllmCpuHeadWidths, shape.head_width) == kVllmCpuHeadWidths.end()) {
    route.cautions.push_back(
        fmt::format("vLLM's attention on CPUs has no head width of {} (32, 64, 80, 96, 112, 128, "
                    "160, 192, 224, 256 and 512 work); on GPUs most multiples of 8 do",
                    shape.head_width));
  }
}

void RouteToGguf(const ModelConfig& config, ExportRoute& route) {
  const Shape& shape = config.shape;
  const std::string other = "--to hf takes any model; or plan one with ";
  if (IsPlain(config)) {
    route.architecture = shape.sub_mlps() == 1 ? Architecture::kGgufLlama : Architecture::kGgufDeci;
  } else if (IsQwen3(config)) {
    route.architecture = Architecture::kGgufQwen3;
  } else if (IsOlmo2(config) && shape.attention_width() == shape.d_model) {
    route.architecture = Architecture::kGgufOlmo2;
    if (config.embeddings == Embeddings::kTied) {
      route.notes.push_back(
          "llama.cpp's olmo2 has no tied embeddings: the file holds the matrix twice");
    }
  } else if (config.norm == NormPlacement::kPre) {
    route.limit = {fmt::format("llama.cpp has no model that is {}", Describe(config)),
                   other + "qk_norm = \"none\""};
  } else {
    route.limit = {fmt::format("llama.cpp has post-norm only as olmo2: one FFN per layer, "
                               "full-width QK-norm, and heads x head width = d_model; this model "
                               "is {}, with an attention of {} and a d_model of {}",
                               Describe(config), shape.attention_width(), shape.d_model),
                   other + "norm = \"pre\" and qk_norm = \"none\""};
  }
  const bool has_rope_factors = route.architecture == Architecture::kGgufLlama ||
                                route.architecture == Architecture::kGgufDeci;
  if (!route.limit && config.rope_scaling &&
      config.rope_scaling->kind == RopeScalingKind::kLlama3 && !has_rope_factors) {
    route.limit = {fmt::format("llama.cpp has no llama3 scaling of rotary frequencies in {}",
                               EnumName(route.architecture)),
                   other + "linear scaling or none"};
  }
  const int64_t blocks = int64_t{shape.layers} * shape.sub_mlps();
  if (!route.limit && blocks > kLlamaCppMaxBlocks) {
    route.limit = {fmt::format("each sub-MLP is a block in llama.cpp, which takes at most {}, and "
                               "this shape has {}",
                               kLlamaCppMaxBlocks, blocks),
                   other + "fewer layers or sub-MLPs"};
  }
}

// A width that rows of some matrices have, so that quantisation cuts it into blocks.
struct RowWidth {
  const char* name;
  int64_t width;
  const char* matrices;
};

std::vector<RowWidth> RowWidths(const Shape& shape) {
  std::vector<RowWidth> widths = {
      {"d_model", shape.d_model, "the matrices that read the residual stream"},
      {"heads x head width", shape.attention_width(), "the attention output matrices"}};
  for (const int width : std::set<int>(shape.ffn.begin(), shape.ffn.end())) {
    widths.push_back({"d_h", width, "the FFN down matrices"});
  }
  return widths;
}

std::optional<ExportLimit> TypeLimit(ExportTarget target, ExportType type, const Shape& shape) {
  if (type != ExportType::kQ8_0) return std::nullopt;
  if (target != ExportTarget::kGguf) {
    return ExportLimit{"q8_0 is a type of GGUF files", "--type bf16, or --to gguf"};
  }
  for (const RowWidth& row : RowWidths(shape)) {
    if (row.width % kQ8Block != 0) {
      return ExportLimit{fmt::format("q8_0 quantises rows in blocks of 32, and {} = {} is not a "
                                     "multiple: {} do not fit",
                                     row.name, row.width, row.matrices),
                         "--type bf16 or f16"};
    }
  }
  return std::nullopt;
}

const char* ProgramOf(ExportTarget target) {
  switch (target) {
    case ExportTarget::kHf:
      return "Hugging Face transformers";
    case ExportTarget::kVllm:
      return "vLLM";
    case ExportTarget::kGguf:
      return "llama.cpp";
  }
  return "?";
}

}  // namespace

ExportRoute RouteTo(ExportTarget target, ExportType type, const ModelConfig& config) {
  ExportRoute route{.target = target};
  switch (target) {
    case ExportTarget::kHf:
      RouteToHf(config, route);
      break;
    case ExportTarget::kVllm:
      RouteToVllm(config, route);
      break;
    case ExportTarget::kGguf:
      RouteToGguf(config, route);
      break;
  }
  if (!route.limit) route.limit = TypeLimit(target, type, config.shape);
  return route;
}

std::vector<std::string> ExportWarnings(const ModelConfig& config) {
  std::vector<std::string> warnings;
  for (const RowWidth& row : RowWidths(config.shape)) {
    if (row.width % kKQuantBlock == 0) continue;
    warnings.push_back(
        row.width % kQ8Block == 0
            ? fmt::format("{} = {} is not a multiple of 256: K-quants cannot hold {}; Q8_0 can",
                          row.name, row.width, row.matrices)
            : fmt::format("{} = {} is not a multiple of 32: neither Q8_0 nor K-quants (multiples "
                          "of 256) can hold {}",
                          row.name, row.width, row.matrices));
  }
  for (const auto& [target, name] : EnumNames<ExportTarget>::kNames) {
    const ExportRoute route = RouteTo(target, ExportType::kF32, config);
    if (route.limit) {
      warnings.push_back(
          fmt::format("{} cannot run this model (export --to {}): {}; what works: {}",
                      ProgramOf(target), name, route.limit->reason, route.limit->remedy));
    }
    warnings.insert(warnings.end(), route.cautions.begin(), route.cautions.end());
  }
  return warnings;
}

}  // namespace sandglass
