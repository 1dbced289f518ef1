#include "plan/count.h"

#include <fmt/format.h>

#include <set>

#include "model/model.h"

namespace sandglass {
namespace {

// Why llama.cpp has no architecture for the model, or "" if it has one.
std::string LlamaCppObstacle(const ModelConfig& config) {
  const Shape& shape = config.shape;
  const bool one_mlp = shape.sub_mlps() == 1;
  if (config.norm == NormPlacement::kPost) {
    const bool olmo2 =
        one_mlp && config.qk_norm == QkNorm::kFullWidth && shape.attention_width() == shape.d_model;
    return olmo2 ? ""
                 : "post-norm runs only as olmo2: one sub-MLP, full-width QK-norm and heads x head "
                   "width = d_model";
  }
  switch (config.qk_norm) {
    case QkNorm::kNone: {
      constexpr int kMaxBlocks = 512;
      const int blocks = shape.layers * shape.sub_mlps();
      return one_mlp || blocks <= kMaxBlocks
                 ? ""
                 : fmt::format("deci takes a block per sub-MLP, at most {}, and this shape has {}",
                               kMaxBlocks, blocks);
    }
    case QkNorm::kPerHead:
      return one_mlp || config.embeddings == Embeddings::kTied
                 ? ""
                 : "per-head QK-norm with several sub-MLPs runs only as openelm, which needs tied "
                   "embeddings";
    case QkNorm::kFullWidth:
      return "no pre-norm architecture has full-width QK-norm";
  }
  return "";
}

}  // namespace

ParameterCounts CountParameters(const ModelConfig& config) {
  const Shape& shape = config.shape;
  const int64_t layers = shape.layers;
  const int64_t d_model = shape.d_model;
  const int64_t qk_gains = config.qk_norm == QkNorm::kNone ? 0
                           : config.qk_norm == QkNorm::kPerHead
                               ? int64_t{2} * shape.head_width
                               : shape.attention_width() + shape.kv_width();
  const int64_t vocabulary_matrix = config.padded_vocabulary() * d_model;
  return {
      .attention = layers * d_model * 2 * (shape.attention_width() + shape.kv_width()),
      .ffn = layers * 3 * d_model * shape.ffn_width(),
      .norms = layers * (d_model * (1 + shape.sub_mlps()) + qk_gains) + d_model,
      .embeddings = vocabulary_matrix,
      .head = config.embeddings == Embeddings::kTied ? 0 : vocabulary_matrix,
  };
}

FlopCounts CountFlops(const ModelConfig& config, int64_t length) {
  const Shape& shape = config.shape;
  const int64_t products =
      2 * (CountParameters(config).matrices() + config.padded_vocabulary() * shape.d_model);
  // Scores and the weighted sum of values: two products of attention_width per key and layer.
  const int64_t per_key = shape.layers * 4 * shape.attention_width();
  FlopCounts flops;
  flops.forward = products + per_key * (length + 1) / 2;
  flops.training = 3 * flops.forward;
  flops.decoding = products + per_key * length;
  return flops;
}

int64_t KvCacheBytesPerToken(const Shape& shape, DType dtype) {
  return shape.layers * 2 * shape.kv_width() * SizeOf(dtype);
}

TrainingMemory CountTrainingMemory(const ModelConfig& config, const Capacity& capacity) {
  const Model model(config, capacity);
  const int64_t slab_bytes = model.params().slab_elements() * SizeOf(capacity.dtype);
  return {.weights = slab_bytes,
          .gradients = slab_bytes,
          .optimizer = 2 * slab_bytes,
          .activations = model.memory().total_bytes()};
}

ShapeRatios RatiosOf(const Shape& shape) {
  const double d_model = shape.d_model;
  const ParameterCounts counts = CountParameters({.shape = shape});
  return {.width_to_depth = d_model / shape.layers,
          .ffn_to_model = static_cast<double>(shape.ffn_width()) / shape.sub_mlps() / d_model,
          .attention_share =
              static_cast<double>(counts.attention) / static_cast<double>(counts.matrices())};
}

std::vector<std::string> QuantisationWarnings(const Shape& shape) {
  constexpr int64_t kQ8Block = 32;       // Q8_0, Q4_0: weights that share a scale
  constexpr int64_t kKQuantBlock = 256;  // Q4_K, Q6_K and relatives
  std::vector<std::string> warnings;
  const auto check = [&](const std::string& name, int64_t width, const char* matrices) {
    if (width % kKQuantBlock == 0) return;
    warnings.push_back(
        width % kQ8Block == 0
            ? fmt::format("{} = {} is not a multiple of 256: K-quants cannot hold {}; Q8_0 can",
                          name, width, matrices)
            : fmt::format("{} = {} is not a multiple of 32: neither Q8_0 nor K-quants (multiples "
                          "of 256) can hold {}",
                          name, width, matrices));
  };
  check("d_model", shape.d_model, "the matrices that read the residual stream");
  check("heads x head width", shape.attention_width(), "the attention output matrices");
  for (const int width : std::set<int>(shape.ffn.begin(), shape.ffn.end())) {
    check("d_h", width, "the FFN down matrices (padding d_h with zeros is exact)");
  }
  return warnings;
}

std::vector<std::string> ExportWarnings(const ModelConfig& config) {
  const Shape& shape = config.shape;
  const bool plain = config.norm == NormPlacement::kPre && config.qk_norm == QkNorm::kNone;
  std::vector<std::string> warnings;
  if (const std::string obstacle = LlamaCppObstacle(config); !obstacle.empty()) {
    warnings.push_back("llama.cpp cannot run this model: " + obstacle);
  }
  if (shape.sub_mlps() > 1 && !plain) {
    warnings.push_back(
        "vLLM cannot run this model: several sub-MLPs run only as nemotron_nas, which needs "
        "pre-norm without QK-norm");
  }
  if (shape.head_width == 16) {
    warnings.push_back("vLLM's CPU attention refuses a head width of 16 (32 works)");
  }
  if (plain && shape.d_model % shape.heads != 0) {
    warnings.push_back(
        fmt::format("Hugging Face's own Llama class refuses this model: d_model = {} is not a "
                    "multiple of {} heads; a modelling file shipped with the model can run it",
                    shape.d_model, shape.heads));
  }
  return warnings;
}

}  // namespace sandglass
