// What a model costs before it exists: parameters, floating-point operations, memory. The counts
// are formulas, so that the solver can afford millions of them; tests hold them to what a model
// really allocates.
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/sub_layer.h"

namespace sandglass {

// Parameters of a whole model, each counted once.
struct ParameterCounts {
  int64_t attention = 0;   // matrices of all layers: L * D*E * (2H + 2KV)
  int64_t ffn = 0;         // matrices of all layers: L * 3*D * sum(d_h)
  int64_t norms = 0;       // every RMSNorm gain: D*(1+K) a layer, D at the end, QK-norm gains
  int64_t embeddings = 0;  // V'*D, with V' the padded vocabulary
  int64_t head = 0;        // V'*D, or 0 if tied to the embeddings

  // What the paper (arXiv 2602.06471) calls the model size.
  int64_t matrices() const { return attention + ffn; }
  int64_t non_embedding() const { return matrices() + norms; }
  int64_t total() const { return non_embedding() + embeddings + head; }
};

// Needs no valid configuration: a vocabulary of 0 counts no embeddings, an empty FFN none.
ParameterCounts CountParameters(const ModelConfig& config);

// Floating-point operations per token. A product of [m, k] and [k, n] is 2*m*n*k; only matrix
// products and attention scores count (no norms, activations, rotations, softmax or optimizer).
struct FlopCounts {
  // One token of a sequence of T in one pass: a token at position t sees t keys, (T+1)/2 on
  // average (the causal half of attention). The head is included, over the padded vocabulary.
  int64_t forward = 0;
  // Forward and twice as much backward; what is computed again to save memory does not count.
  int64_t training = 0;
  // One token generated after T-1 others: as forward, but it sees T keys.
  int64_t decoding = 0;
};

// `length` is T, at least 1.
FlopCounts CountFlops(const ModelConfig& config, int64_t length);

// Bytes that one more position adds to the cache of keys and values, all layers.
int64_t KvCacheBytesPerToken(const Shape& shape, DType dtype);

// What the program takes whatever it trains, in bytes: pages of its code and libraries (12 MiB),
// and the buffers that matrix products on two threads pack their factors into (2 to 14 MiB). By
// measurement, see "Memory" in docs/performance.md.
inline constexpr int64_t kProgramBytes = int64_t{20} << 20;

// Bytes to train a model with AdamW in the capacity's element types.
struct TrainingMemory {
  int64_t weights = 0;
  int64_t operands = 0;  // weights rounded to the type of the activations, where that is another
  int64_t gradients = 0;
  int64_t optimizer = 0;    // two moments per parameter
  int64_t activations = 0;  // everything else that the model books for the capacity's batch
  int64_t total() const {
    return weights + operands + gradients + optimizer + activations + kProgramBytes;
  }
};

// Declares the model without allocating it. Throws Error if the configuration is impossible.
TrainingMemory CountTrainingMemory(const ModelConfig& config, const Capacity& capacity);

// Proportions that the paper relates to quality.
struct ShapeRatios {
  double width_to_depth = 0.0;   // d_model / L
  double ffn_to_model = 0.0;     // mean d_h / d_model
  double attention_share = 0.0;  // of the matrices
};

ShapeRatios RatiosOf(const Shape& shape);

}  // namespace sandglass
