#include "plan/count.h"

#include "model/model.h"

namespace sandglass {

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
  const int64_t elements = model.params().slab_elements();
  const int64_t slab_bytes = elements * SizeOf(capacity.dtype);
  return {.weights = slab_bytes,
          .operands =
              capacity.rounds_activations() ? elements * SizeOf(capacity.activation_dtype()) : 0,
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

}  // namespace sandglass
