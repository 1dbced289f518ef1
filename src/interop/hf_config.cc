#include "interop/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/fields.h"
#include "base/json.h"
#include "interop/blocks.h"

namespace sandglass {
namespace {

// Settings that have no bearing on what the model computes.
constexpr std::string_view kNoEffect[] = {
    "_attn_implementation_autoset",
    "_name_or_path",
    "_sliding_window_pattern",
    "add_cross_attention",
    "attention_dropout",
    "attn_implementation",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_window_layers",
    "model_max_length",
    "original_rope_config",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

// Settings that would change what the model computes. transformers' own classes of the
// architectures read none of them but attention_bias, mlp_bias and the sliding windows; a file that
// has one was made by a program that does read it.
struct RefusedKey {
  std::string_view key;
  std::string_view what;
  // A factor of 1 changes nothing. Nothing is changed by null, false, 0 or an empty list, either.
  enum class Kind { kSwitch, kFactor } kind = Kind::kSwitch;
};
constexpr RefusedKey kRefused[] = {
    {"attention_bias", "attention with biases"},
    {"attn_bias", "attention with biases"},
    {"qkv_bias", "attention with biases"},
    {"mlp_bias", "an MLP with biases"},
    {"use_bias", "biases"},
    {"lm_head_bias", "biases"},
    {"use_sliding_window", "a sliding attention window"},
    {"clip_qkv", "clipping of queries, keys and values"},
    {"num_experts", "a mixture of experts", RefusedKey::Kind::kFactor},
    {"num_local_experts", "a mixture of experts", RefusedKey::Kind::kFactor},
    {"n_routed_experts", "a mixture of experts", RefusedKey::Kind::kFactor},
    {"num_experts_per_tok", "a mixture of experts", RefusedKey::Kind::kFactor},
    {"quantization_config", "quantised weights"},
    {"compression_config", "quantised weights"},
    {"partial_rotary_factor", "rotation of a part of each head", RefusedKey::Kind::kFactor},
    {"rotary_pct", "rotation of a part of each head", RefusedKey::Kind::kFactor},
    {"rope_interleaved", "another layout of RoPE"},
    {"no_rope_layers", "layers without RoPE"},
    {"no_rope_layer_interval", "layers without RoPE"},
    {"alibi", "positions in attention scores"},
    {"use_alibi", "positions in attention scores"},
    {"attn_temperature_tuning", "attention scores scaled by position"},
    {"attn_logit_softcapping", "soft-capped attention scores"},
    {"final_logit_softcapping", "soft-capped logits"},
    {"logit_scale", "scaled logits", RefusedKey::Kind::kFactor},
    {"logits_scaling", "scaled logits", RefusedKey::Kind::kFactor},
    {"lm_head_multiplier", "scaled logits", RefusedKey::Kind::kFactor},
    {"dim_model_base", "scaled logits"},
    {"embedding_multiplier", "scaled embeddings", RefusedKey::Kind::kFactor},
    {"embedding_scale", "scaled embeddings", RefusedKey::Kind::kFactor},
    {"scale_emb", "scaled embeddings", RefusedKey::Kind::kFactor},
    {"residual_multiplier", "scaled residuals", RefusedKey::Kind::kFactor},
    {"scale_depth", "scaled residuals"},
    // Whatever its value, scores are scaled by another number than 1/sqrt(head width).
    {"attention_multiplier", "another scale of attention scores"},
    {"query_pre_attn_scalar", "another scale of attention scores"},
    {"use_parallel_residual", "attention and MLP side by side"},
    {"parallel_attn", "attention and MLP side by side"},
    {"use_qk_norm", "another norm of queries and keys than the architecture's"},
    {"qk_layernorm", "another norm of queries and keys than the architecture's"},
    {"attn_output_gate", "gated attention"},
    {"num_kv_shared_layers", "layers that share keys and values"},
};

bool ChangesNothing(const Json& value, RefusedKey::Kind kind) {
  return value.is_null() || value == false || value == 0 ||
         (value == 1 && kind == RefusedKey::Kind::kFactor) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Reads keys of one JSON object, with errors that name file and key, and knows which were read.
class Keys {
 public:
  Keys(const Json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  // Nullptr if the key is absent or null.
  const Json* Find(std::string_view key) {
    read_.insert(std::string(key));
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  template <class T>
  T Read(std::string_view key, std::optional<T> otherwise = std::nullopt) {
    const Json* value = Find(key);
    if (value == nullptr) {
      if (otherwise) return *std::move(otherwise);
      throw Error({.what = fmt::format("{}{} is missing", prefix_, key),
                   .where = where_,
                   .expected = "the config.json of a model"});
    }
    T out{};
    fields_internal::Read(out, *value, {.source = where_}, prefix_ + std::string(key));
    return out;
  }

  [[noreturn]] void Refuse(std::string_view key, std::string_view what) {
    throw Error({.what = fmt::format("{}{} = {}: {} cannot be represented", prefix_, key,
                                     object_.at(std::string(key)).dump(), what),
                 .where = where_,
                 .expected = "a model of RMSNorm, RoPE, softmax attention and SwiGLU without "
                             "biases"});
  }

  std::vector<std::string> Unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_.items()) {
      if (!read_.contains(key)) keys.push_back(key);
    }
    return keys;
  }

  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string> read_;
};

// transformers names a type "rope_type", older files "type"; the base of the frequencies lies
// beside rope_scaling in transformers 4 and inside rope_parameters in 5.
void ReadRope(Keys& keys, ModelConfig& config) {
  const Json* parameters = keys.Find("rope_parameters");
  const Json* scaling = keys.Find("rope_scaling");
  config.rope_theta = keys.Read<double>("rope_theta", 10000.0);
  const char* name = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* rope = parameters != nullptr ? parameters : scaling;
  if (rope == nullptr) return;
  if (!rope->is_object()) keys.Refuse(name, "what is not an object");
  Keys inner(*rope, keys.where(), std::string(name) + ".");
  config.rope_theta = inner.Read<double>("rope_theta", config.rope_theta);
  const auto older = inner.Read<std::string>("type", "default");
  const auto type = inner.Read<std::string>("rope_type", older);
  if (inner.Read<double>("partial_rotary_factor", 1.0) != 1.0) {
    inner.Refuse("partial_rotary_factor", "rotation of a part of each head");
  }
  if (type == "linear") {
    config.rope_scaling =
        RopeScaling{.kind = RopeScalingKind::kLinear, .factor = inner.Read<double>("factor")};
  } else if (type == "llama3") {
    config.rope_scaling = RopeScaling{
        .kind = RopeScalingKind::kLlama3,
        .factor = inner.Read<double>("factor"),
        .low_freq_factor = inner.Read<double>("low_freq_factor"),
        .high_freq_factor = inner.Read<double>("high_freq_factor"),
        .original_max_position = inner.Read<int64_t>("original_max_position_embeddings")};
  } else if (type != "default") {
    keys.Refuse(name, fmt::format("RoPE scaling of type \"{}\"", type));
  }
  for (const std::string& key : inner.Unread()) {
    // Written by transformers 5 beside any type.
    if (key == "original_max_position_embeddings") continue;
    inner.Refuse(key, "this part of RoPE");
  }
}

Architecture FindArchitecture(Keys& keys) {
  const Json* names = keys.Find("architectures");
  const auto model_type = keys.Read<std::string>("model_type", "");
  constexpr std::array<std::pair<std::string_view, Architecture>, 5> kModelTypes = {{
      {"llama", Architecture::kHfLlama},
      {"qwen3", Architecture::kHfQwen3},
      {"olmo2", Architecture::kHfOlmo2},
      {"sandglass", Architecture::kHfSandglass},
      {"nemotron-nas", Architecture::kHfNemotronNas},
  }};
  std::string name;
  if (names != nullptr && names->is_array() && names->size() == 1 && names->front().is_string()) {
    name = names->front().get<std::string>();
  }
  for (const auto& [type, architecture] : kModelTypes) {
    if (name.empty() ? model_type == type : name == EnumName(architecture)) return architecture;
  }
  throw Error({.what = name.empty()
                           ? fmt::format("models of type \"{}\" cannot be represented", model_type)
                           : fmt::format("the architecture {} cannot be represented", name),
               .where = keys.where(),
               .expected = "LlamaForCausalLM, Qwen3ForCausalLM, Olmo2ForCausalLM, "
                           "SandglassForCausalLM or DeciLMForCausalLM"});
}

void RefuseWhatCannotBe(Keys& keys, Architecture architecture) {
  for (const auto& [key, what, kind] : kRefused) {
    if (const Json* value = keys.Find(key); value != nullptr && !ChangesNothing(*value, kind)) {
      keys.Refuse(key, what);
    }
  }
  // Files of the other two classes name the modelling code or the configuration that they come
  // with.
  const bool own_code =
      architecture == Architecture::kHfSandglass || architecture == Architecture::kHfNemotronNas;
  if (const Json* map = keys.Find("auto_map"); map != nullptr && !own_code) {
    for (const auto& [name, code] : map->items()) {
      if (name.starts_with("AutoModel")) {
        keys.Refuse("auto_map", "what modelling code of its own computes");
      }
    }
  }
  // Qwen3 files carry a width beside use_sliding_window = false.
  if (keys.Find("sliding_window") != nullptr && architecture != Architecture::kHfQwen3) {
    keys.Refuse("sliding_window", "a sliding attention window");
  }
  if (const Json* types = keys.Find("layer_types")) {
    for (const Json& type : *types) {
      if (type != "full_attention") keys.Refuse("layer_types", "other than full attention");
    }
  }
  const auto activation = keys.Read<std::string>("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    keys.Refuse("hidden_act", "another activation than silu");
  }
}

// block_configs of nemotron-nas: an object per block.
void ReadBlocks(Keys& keys, Shape& shape) {
  const Json* list = keys.Find("block_configs");
  if (list == nullptr || !list->is_array()) {
    throw Error(
        {.what = list == nullptr ? "block_configs is missing" : "block_configs is not a list",
         .where = keys.where(),
         .expected = "an object per block"});
  }
  std::vector<BlockSizes> blocks;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string name = fmt::format("block_configs[{}].", i);
    const auto part = [&](const char* key) {
      const Json& block = (*list)[i];
      if (!block.is_object() || !block.contains(key) || !block[key].is_object()) {
        throw Error(
            {.what = fmt::format("{}{} is not an object", name, key), .where = keys.where()});
      }
      return Keys(block[key], keys.where(), name + key + ".");
    };
    BlockSizes sizes;
    Keys attention = part("attention");
    if (attention.Find("replace_with_linear") != nullptr &&
        attention.Read<bool>("replace_with_linear")) {
      attention.Refuse("replace_with_linear", "linear attention");
    }
    if (!attention.Read<bool>("no_op", false)) {
      const auto group = attention.Read<int>("n_heads_in_group");
      if (group < 1 || shape.heads % group != 0) {
        attention.Refuse("n_heads_in_group", "a group that does not divide the heads");
      }
      sizes.heads = shape.heads;
      sizes.kv_heads = shape.heads / group;
    }
    Keys ffn = part("ffn");
    if (ffn.Find("ffn_mult") != nullptr) ffn.Refuse("ffn_mult", "a width that vLLM rounds");
    if (!ffn.Read<bool>("no_op", false)) sizes.ffn = ffn.Read<int>("intermediate_size");
    blocks.push_back(sizes);
  }
  RegroupBlocks(blocks, shape, keys.where());
}

ModelConfig ReadModel(Keys& keys, Architecture architecture) {
  ModelConfig config;
  Shape& shape = config.shape;
  shape.layers = keys.Read<int>("num_hidden_layers");
  shape.d_model = keys.Read<int>("hidden_size");
  shape.heads = keys.Read<int>("num_attention_heads");
  if (shape.heads < 1) keys.Refuse("num_attention_heads", "a model without heads");
  const bool qwen3 = architecture == Architecture::kHfQwen3;
  shape.kv_heads = keys.Read<int>("num_key_value_heads", shape.heads);
  shape.head_width = keys.Read<int>("head_dim", qwen3 ? 128 : shape.d_model / shape.heads);
  config.vocabulary = keys.Read<int>("vocab_size");
  config.embeddings =
      keys.Read<bool>("tie_word_embeddings", false) ? Embeddings::kTied : Embeddings::kUntied;
  config.norm_epsilon = keys.Read<double>(
      "rms_norm_eps",
      architecture == Architecture::kHfOlmo2 || architecture == Architecture::kHfSandglass ? 1e-5
                                                                                           : 1e-6);
  ReadRope(keys, config);
  switch (architecture) {
    case Architecture::kHfSandglass:
      shape.ffn = keys.Read<std::vector<int>>("intermediate_sizes");
      config.norm = keys.Read<NormPlacement>("norm_placement", NormPlacement::kPre);
      config.qk_norm = keys.Read<QkNorm>("qk_norm", QkNorm::kNone);
      config.depth_scaled_norm = keys.Read<bool>("depth_scaled_norm", false);
      return config;
    case Architecture::kHfNemotronNas:
      keys.Find("intermediate_size");
      ReadBlocks(keys, shape);
      return config;
    case Architecture::kHfOlmo2:
      config.norm = NormPlacement::kPost;
      config.qk_norm = QkNorm::kFullWidth;
      break;
    case Architecture::kHfQwen3:
      config.qk_norm = QkNorm::kPerHead;
      break;
    default:
      break;
  }
  shape.ffn = {keys.Read<int>("intermediate_size")};
  return config;
}

}  // namespace

HfConfig ParseHfConfig(std::string_view json, const std::string& where) {
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& failure) {
    throw Error({.what = fmt::format("not valid JSON: {}", failure.what()), .where = where});
  }
  if (!root.is_object()) throw Error({.what = "not a JSON object", .where = where});
  Keys keys(root, where);
  HfConfig result{.architecture = FindArchitecture(keys)};
  RefuseWhatCannotBe(keys, result.architecture);
  result.config = ReadModel(keys, result.architecture);
  result.context_length = std::max<int64_t>(0, keys.Read<int64_t>("max_position_embeddings", 0));
  try {
    result.config.Validate();
  } catch (const Error& failure) {
    ErrorParts parts = failure.parts();
    parts.where = where;
    throw Error(parts);
  }
  for (const std::string& key : keys.Unread()) {
    if (std::ranges::find(kNoEffect, key) == std::end(kNoEffect)) result.not_used.push_back(key);
  }
  return result;
}

}  // namespace sandglass
