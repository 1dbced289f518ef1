// The one idea: a decoder of any shape is a list of residual sub-layers on one stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "model/config.h"
#include "ops/backend.h"
#include "tensor/memory_plan.h"
#include "tensor/param_table.h"

namespace sandglass {

// What a pass is for decides which buffers live on for a backward pass.
enum class Purpose { kTrain, kEvaluate };

// Which of its intermediate results the backward pass computes again. kNothing: none, all are kept.
// kCheap: norm outputs and SwiGLU products; what matrix products made is kept. kLayer: everything
// but the stream before each layer, for the price of a second forward pass.
enum class Recompute { kNothing, kCheap, kLayer };

template <>
struct EnumNames<Recompute> {
  static constexpr std::array<std::pair<Recompute, const char*>, 3> kNames{
      {{Recompute::kNothing, "nothing"},
       {Recompute::kCheap, "cheap"},
       {Recompute::kLayer, "layer"}}};
};

// The largest batch that buffers are booked for, and how they are used.
struct Capacity {
  Purpose purpose = Purpose::kTrain;
  int batch = 1;
  int length = 1;        // T
  int cache_length = 0;  // > 0: keys and values of this many positions are kept for decoding
  Recompute recompute = Recompute::kCheap;
  DType dtype = DType::kF32;         // the backend's
  std::optional<DType> activations;  // bf16 beside f32; the backend's if unset

  int64_t tokens() const { return int64_t{batch} * length; }
  DType activation_dtype() const { return activations.value_or(dtype); }
  bool rounds_activations() const { return activation_dtype() != dtype; }
};

// One pass over a batch, as the sub-layers see it.
struct Pass {
  Backend& ops;
  int batch;                           // B
  int length;                          // T, tokens of each batch element in this pass
  int cached = 0;                      // positions already in the cache (decoding)
  std::span<const int32_t> positions;  // [B*T], for RoPE
  ConstView cosines;                   // [positions, E/2]
  ConstView sines;
  std::span<const int32_t> first_keys = {};  // [B*T] see AttentionSpec; empty: no documents

  int64_t tokens() const { return int64_t{batch} * length; }
};

// What an attention read, for diagnostics: queries and keys as its scores are made of them.
struct AttentionInputs {
  ConstView q;  // [M, H*E]
  ConstView k;  // [M, KV*E]
  AttentionSpec spec;
};

// x <- x + f(x) on the residual stream x [M, D]. Forward and backward stand side by side in the
// file of each kind.
class SubLayer {
 public:
  virtual ~SubLayer() = default;

  // "layers.3.ffn.2": what the names of its parameters begin with.
  virtual const std::string& name() const = 0;
  virtual void Declare(ParamTable& params) = 0;
  virtual void Book(MemoryPlan& plan, const Capacity& capacity) = 0;
  // Adds the sub-layer's output to the stream.
  virtual void Forward(const Pass& pass, View x) = 0;
  // dx holds the gradient of the stream after the sub-layer, then that of the stream before it;
  // parameter gradients are added to. Belongs to the last Forward.
  virtual void Backward(const Pass& pass, View dx) = 0;
  // Of an attention, right after its Forward of a pass without a cache; later its scratch is
  // others'.
  virtual std::optional<AttentionInputs> attention_inputs(const Pass&) const {
    return std::nullopt;
  }
};

}  // namespace sandglass
