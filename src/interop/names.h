// Where the parameters of a model stand in files of other programs: names, which rows of which
// parameter a tensor holds, and in what order. The one list that import and export share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "model/config.h"
#include "tensor/view.h"

namespace sandglass {

// What another program calls a model of a certain build; each has its own names and layout.
//   Hugging Face directories, by "architectures" in config.json:
//     kHfLlama, kHfQwen3, kHfOlmo2   one wide FFN per layer
//     kHfSandglass                   our own modelling file: any model
//     kHfNemotronNas                 blocks of one sub-MLP each, the first of a layer with
//     attention
//   GGUF files, by general.architecture:
//     kGgufLlama, kGgufQwen3, kGgufOlmo2, and kGgufDeci with the same blocks as kHfNemotronNas
enum class Architecture {
  kHfLlama,
  kHfQwen3,
  kHfOlmo2,
  kHfSandglass,
  kHfNemotronNas,
  kGgufLlama,
  kGgufQwen3,
  kGgufOlmo2,
  kGgufDeci,
};

template <>
struct EnumNames<Architecture> {
  static constexpr std::array<std::pair<Architecture, const char*>, 9> kNames{
      {{Architecture::kHfLlama, "LlamaForCausalLM"},
       {Architecture::kHfQwen3, "Qwen3ForCausalLM"},
       {Architecture::kHfOlmo2, "Olmo2ForCausalLM"},
       {Architecture::kHfSandglass, "SandglassForCausalLM"},
       {Architecture::kHfNemotronNas, "DeciLMForCausalLM"},
       {Architecture::kGgufLlama, "llama"},
       {Architecture::kGgufQwen3, "qwen3"},
       {Architecture::kGgufOlmo2, "olmo2"},
       {Architecture::kGgufDeci, "deci"}}};
};

constexpr bool IsGguf(Architecture architecture) {
  return architecture >= Architecture::kGgufLlama;
}

// Rows of a query or key projection. RoPE turns channel i of a head with channel i + E/2 (ours), or
// channel 2i with 2i + 1; the two differ by the order of the rows alone.
enum class RowOrder { kSame, kInterleaved };

// One tensor of a file: `rows` rows of a parameter from `first_row` on.
struct TensorPlace {
  std::string name;   // "model.layers.0.self_attn.q_proj.weight"
  std::string param;  // "layers.0.attention.w_qkv", in the ParamTable
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  bool vector = false;  // a norm gain: one dimension in files
  RowOrder order = RowOrder::kSame;
  int heads = 1;  // heads that the rows belong to, where they are interleaved
  // The file holds the parameter times this: 1, but for norm gains that take in the factor
  // 1/sqrt(layer) of depth_scaled_norm, for programs that know no such factor.
  double factor = 1.0;

  int64_t elements() const { return rows * cols; }
  std::vector<int64_t> shape() const {
    return vector ? std::vector<int64_t>{cols} : std::vector<int64_t>{rows, cols};
  }
};

// Every tensor of a model, in the order of its ParamTable. Embedding and head have the rows of the
// vocabulary alone, without padding. The configuration must be one that the architecture can
// express (interop/targets.h).
std::vector<TensorPlace> TensorPlaces(const ModelConfig& config, Architecture architecture);

// Between a whole parameter [., cols] of f32, rows packed, and the place's elements in file order.
void ToFileOrder(const TensorPlace& place, ConstView param, std::span<float> file);
void FromFileOrder(const TensorPlace& place, std::span<const float> file, View param);

}  // namespace sandglass
