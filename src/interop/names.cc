#include "interop/names.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace sandglass {
namespace {

// The names of one architecture: prefix of layer or block {}, and what follows it.
struct Names {
  const char* embedding;
  const char* final_norm;
  const char* head;
  const char* block;  // "{}" is the number of the layer or block
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* output;
  const char* query_norm;
  const char* key_norm;
  // "{}", if there is one, is the number of the sub-MLP in its layer
  const char* ffn_norm;
  const char* gate;
  const char* up;
  const char* down;
};

constexpr Names kHuggingFace = {.embedding = "model.embed_tokens",
                                .final_norm = "model.norm",
                                .head = "lm_head",
                                .block = "model.layers.{}.",
                                .attention_norm = "input_layernorm",
                                .query = "self_attn.q_proj",
                                .key = "self_attn.k_proj",
                                .value = "self_attn.v_proj",
                                .output = "self_attn.o_proj",
                                .query_norm = "self_attn.q_norm",
                                .key_norm = "self_attn.k_norm",
                                .ffn_norm = "post_attention_layernorm",
                                .gate = "mlp.gate_proj",
                                .up = "mlp.up_proj",
                                .down = "mlp.down_proj"};

constexpr Names kGguf = {.embedding = "token_embd",
                         .final_norm = "output_norm",
                         .head = "output",
                         .block = "blk.{}.",
                         .attention_norm = "attn_norm",
                         .query = "attn_q",
                         .key = "attn_k",
                         .value = "attn_v",
                         .output = "attn_output",
                         .query_norm = "attn_q_norm",
                         .key_norm = "attn_k_norm",
                         .ffn_norm = "ffn_norm",
                         .gate = "ffn_gate",
                         .up = "ffn_up",
                         .down = "ffn_down"};

Names NamesOf(Architecture architecture) {
  Names names = IsGguf(architecture) ? kGguf : kHuggingFace;
  switch (architecture) {
    case Architecture::kHfOlmo2:
      names.attention_norm = "post_attention_layernorm";
      names.ffn_norm = "post_feedforward_layernorm";
      break;
    case Architecture::kGgufOlmo2:
      names.attention_norm = "post_attention_norm";
      names.ffn_norm = "post_ffw_norm";
      break;
    case Architecture::kHfSandglass:
      names.attention_norm = "attention_norm";
      names.ffn_norm = "mlp_norms.{}";
      names.gate = "mlps.{}.gate_proj";
      names.up = "mlps.{}.up_proj";
      names.down = "mlps.{}.down_proj";
      break;
    default:
      break;
  }
  return names;
}

// llama.cpp turns neighbouring channels in models of these kinds.
bool Interleaves(Architecture architecture) {
  return architecture == Architecture::kGgufLlama || architecture == Architecture::kGgufDeci;
}

// Blocks of one sub-MLP each.
bool SplitsLayers(Architecture architecture) {
  return architecture == Architecture::kHfNemotronNas || architecture == Architecture::kGgufDeci;
}

// Our row that stands at `row` of the place's rows in the file.
int64_t SourceRow(const TensorPlace& place, int64_t row) {
  if (place.order == RowOrder::kSame) return place.first_row + row;
  const int64_t width = place.rows / place.heads;  // E
  const int64_t head = row / width;
  const int64_t channel = row % width;
  return place.first_row + head * width + channel / 2 + channel % 2 * (width / 2);
}

}  // namespace

std::vector<TensorPlace> TensorPlaces(const ModelConfig& config, Architecture architecture) {
  const Shape& shape = config.shape;
  const Names names = NamesOf(architecture);
  const int64_t d_model = shape.d_model;
  std::vector<TensorPlace> places;
  const auto add = [&](const std::string& name, std::string param, int64_t first_row, int64_t rows,
                       int64_t cols) -> TensorPlace& {
    places.push_back({.name = name + ".weight",
                      .param = std::move(param),
                      .first_row = first_row,
                      .rows = rows,
                      .cols = cols});
    return places.back();
  };
  const auto add_gain = [&](const std::string& name, std::string param,
                            int64_t width) -> TensorPlace& {
    TensorPlace& place = add(name, std::move(param), 0, 1, width);
    place.vector = true;
    return place;
  };
  add(names.embedding, "embedding", 0, config.vocabulary, d_model);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const bool splits = SplitsLayers(architecture);
    const auto block = [&](int index) {
      return fmt::format(fmt::runtime(names.block),
                         splits ? layer * shape.sub_mlps() + index : layer);
    };
    const bool folds = config.depth_scaled_norm && architecture != Architecture::kHfSandglass;
    const double norm_factor = folds ? 1.0 / std::sqrt(layer + 1.0) : 1.0;

    const std::string attention = fmt::format("layers.{}.attention", layer);
    const std::string first = block(0);
    add_gain(first + names.attention_norm, attention + ".norm", d_model).factor = norm_factor;
    int64_t row = 0;
    const auto add_heads = [&](const char* name, int heads, RowOrder order) {
      const int64_t rows = int64_t{heads} * shape.head_width;
      TensorPlace& place = add(first + name, attention + ".w_qkv", row, rows, d_model);
      place.order = order;
      place.heads = heads;
      row += rows;
    };
    const RowOrder turned = Interleaves(architecture) ? RowOrder::kInterleaved : RowOrder::kSame;
    add_heads(names.query, shape.heads, turned);
    add_heads(names.key, shape.kv_heads, turned);
    add_heads(names.value, shape.kv_heads, RowOrder::kSame);
    add(first + names.output, attention + ".w_o", 0, d_model, shape.attention_width());
    if (config.qk_norm != QkNorm::kNone) {
      const bool per_head = config.qk_norm == QkNorm::kPerHead;
      add_gain(first + names.query_norm, attention + ".q_norm",
               per_head ? shape.head_width : shape.attention_width());
      add_gain(first + names.key_norm, attention + ".k_norm",
               per_head ? shape.head_width : shape.kv_width());
    }

    for (int index = 0; index < shape.sub_mlps(); ++index) {
      const std::string ffn = fmt::format("layers.{}.ffn.{}", layer, index);
      const auto name = [&](const char* part) {
        return block(index) + fmt::format(fmt::runtime(part), index);
      };
      const int64_t width = shape.ffn[index];
      add_gain(name(names.ffn_norm), ffn + ".norm", d_model).factor = norm_factor;
      add(name(names.gate), ffn + ".w_gate_up", 0, width, d_model);
      add(name(names.up), ffn + ".w_gate_up", width, width, d_model);
      add(name(names.down), ffn + ".w_down", 0, d_model, width);
    }
  }
  add_gain(names.final_norm, "final_norm", d_model);
  if (config.embeddings == Embeddings::kUntied) {
    add(names.head, "head", 0, config.vocabulary, d_model);
  }
  return places;
}

void ToFileOrder(const TensorPlace& place, ConstView param, std::span<float> file) {
  SANDGLASS_CHECK(
      param.contiguous() && param.cols == place.cols && std::ssize(file) == place.elements(),
      "a tensor of another size");
  for (int64_t row = 0; row < place.rows; ++row) {
    const float* source = param.Row<float>(SourceRow(place, row));
    float* target = file.data() + row * place.cols;
    if (place.factor == 1.0) {
      std::memcpy(target, source, place.cols * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < place.cols; ++i) {
      target[i] = static_cast<float>(source[i] * place.factor);
    }
  }
}

void FromFileOrder(const TensorPlace& place, std::span<const float> file, View param) {
  SANDGLASS_CHECK(
      param.contiguous() && param.cols == place.cols && std::ssize(file) == place.elements(),
      "a tensor of another size");
  SANDGLASS_CHECK(place.factor == 1.0, "a folded factor cannot be told from the gain");
  for (int64_t row = 0; row < place.rows; ++row) {
    std::memcpy(param.Row<float>(SourceRow(place, row)), file.data() + row * place.cols,
                place.cols * sizeof(float));
  }
}

}  // namespace sandglass
