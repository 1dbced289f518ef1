// A decoder: embedding, a list of residual sub-layers, final norm, head and loss.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/observer.h"
#include "model/sub_layer.h"
#include "ops/backend.h"
#include "tensor/memory_plan.h"
#include "tensor/param_table.h"

namespace sandglass {

// B sequences of T tokens, row by row. targets[i] is the token that should follow ids[i], or
// kIgnoredTarget; targets may be empty where no loss is asked for.
struct Batch {
  int batch = 0;                     // B
  int length = 0;                    // T
  std::span<const int32_t> ids;      // [B*T]
  std::span<const int32_t> targets;  // [B*T]
  // [B*T] where in its sequence the document of each token begins. Attention stays within the
  // document and positions count from its beginning. Empty: a sequence is one document.
  std::span<const int32_t> starts = {};
};

class Model {
 public:
  // Declares every parameter and books every buffer, but takes no memory: enough for counting and
  // planning. Throws Error if the configuration is impossible.
  Model(const ModelConfig& config, const Capacity& capacity);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  const Capacity& capacity() const { return capacity_; }
  const ParamTable& params() const { return params_; }
  ParamTable& params() { return params_; }
  // Everything but parameters, gradients and optimizer moments.
  const MemoryPlan& memory() const { return memory_; }

  // Takes the memory. The backend must outlive the model and have the capacity's element type.
  void Allocate(Backend& backend);

  // Tells `observer` of every pass from now on, until it is null. It must outlive that.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Loss sums of a batch; token_loss (may be empty) gets each token's cross-entropy in nats.
  LossSums Loss(const Batch& batch, std::span<double> token_loss = {});
  // The same, and gradients of grad_scale * (sum of losses + z-loss) added to the gradient slab.
  LossSums LossAndGradients(const Batch& batch, double grad_scale);

  // Logits [B*T, V] of a batch, written to `logits` (padding columns left out).
  void Logits(const Batch& batch, View logits);
  // Continues one sequence: feeds `ids` after the tokens already in the cache and writes the logits
  // [1, V] that follow the last of them. Needs capacity.cache_length.
  void Decode(std::span<const int32_t> ids, View logits);
  int cached() const { return cached_; }
  void ClearCache() { cached_ = 0; }

 private:
  // Continues the cache if `cached` > 0.
  Pass BeginPass(const Batch& batch, int cached);
  // Embedding, all sub-layers, final norm: what the head reads, [M, D].
  View ForwardStream(const Pass& pass, std::span<const int32_t> ids);
  // The sub-layers of a layer: its attention and its K gated MLPs.
  std::span<const std::unique_ptr<SubLayer>> Layer(int layer) const;
  // Where the stream before a layer is kept, [M, D], if layers are computed again.
  View LayerInput(const Pass& pass, int layer) const;
  // Makes a layer's results for its backward pass once more.
  void ForwardAgain(const Pass& pass, int layer);
  // logits [M, V] = normed [M, D] W_head^T.
  void HeadLogits(ConstView normed, View logits);
  // Calls action(begin, count) for blocks of tokens that fit the logits buffer.
  template <class Action>
  void ForEachHeadChunk(int64_t tokens, const Action& action) const;
  CrossEntropySpec LossSpec(double grad_scale) const;
  RmsNormSpec final_norm() const { return {.epsilon = config_.norm_epsilon}; }
  Param& head() { return config_.embeddings == Embeddings::kTied ? embedding_ : head_; }

  ModelConfig config_;
  Capacity capacity_;
  ParamTable params_;
  MemoryPlan memory_;
  Arena arena_;
  Backend* ops_ = nullptr;
  Observer* observer_ = nullptr;
  int cached_ = 0;
  bool recomputes_layers_ = false;

  Param embedding_;   // [V', D]
  Param final_gain_;  // [1, D]
  Param head_;        // [V', D], unless tied
  std::vector<std::unique_ptr<SubLayer>> sub_layers_;

  View x_;             // [M, D] residual stream
  View normed_;        // [M, D] final norm of it
  View inverse_rms_;   // [M, 1]
  View dx_;            // [M, D] gradient of the stream
  View logits_;        // [chunk, V'] one block of the head's output
  View dlogits_;       // [chunk, V'] its gradient, where that has another type
  View layer_inputs_;  // [L*M, D] the stream before each layer, if layers are computed again
  View cosines_;       // [positions, E/2]
  View sines_;
  std::vector<int32_t> positions_;  // [M]
};

}  // namespace sandglass
