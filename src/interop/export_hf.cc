#include "interop/export_hf.h"

#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "interop/text_marks.h"
#include "io/safetensors.h"

namespace sandglass {

// The Python files (src/interop/python), built into the program.
extern const std::string_view kSandglassConfigurationPy;
extern const std::string_view kSandglassModelingPy;
extern const std::string_view kNemotronNasConfigurationPy;

namespace {

const char* ModelTypeOf(Architecture architecture) {
  switch (architecture) {
    case Architecture::kHfLlama:
      return "llama";
    case Architecture::kHfQwen3:
      return "qwen3";
    case Architecture::kHfOlmo2:
      return "olmo2";
    case Architecture::kHfNemotronNas:
      return "nemotron-nas";
    default:
      return "sandglass";
  }
}

const char* HfTypeName(ExportType type) {
  switch (type) {
    case ExportType::kF16:
      return "float16";
    case ExportType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

DType SafetensorsTypeOf(ExportType type) {
  switch (type) {
    case ExportType::kF16:
      return DType::kF16;
    case ExportType::kBF16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

// rope_scaling without the base (transformers 4) or rope_parameters with it (transformers 5).
Json RopeJson(const ModelConfig& config) {
  if (!config.rope_scaling) return {{"rope_type", "default"}};
  const RopeScaling& scaling = *config.rope_scaling;
  if (scaling.kind == RopeScalingKind::kLinear) {
    return {{"rope_type", "linear"}, {"factor", scaling.factor}};
  }
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_max_position}};
}

void AddRope(const ModelConfig& config, Json& json) {
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = config.rope_scaling ? RopeJson(config) : Json(nullptr);
  json["rope_parameters"] = RopeJson(config);
  json["rope_parameters"]["rope_theta"] = config.rope_theta;
}

// One entry per block: the first of a layer has attention, each has one sub-MLP.
Json BlockConfigs(const Shape& shape) {
  Json blocks = Json::array();
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int index = 0; index < shape.sub_mlps(); ++index) {
      Json attention = {{"no_op", index > 0}};
      attention["n_heads_in_group"] =
          index > 0 ? Json(nullptr) : Json(shape.heads / shape.kv_heads);
      blocks.push_back({{"attention", attention},
                        {"ffn", {{"no_op", false}, {"intermediate_size", shape.ffn[index]}}}});
    }
  }
  return blocks;
}

void WriteJson(const std::string& directory, const char* name, const Json& json) {
  WriteFileAtomically(directory + "/" + name, json.dump(2) + "\n");
}

void WriteWeights(const ExportJob& job, const std::string& path) {
  const DType stored = SafetensorsTypeOf(job.type);
  std::vector<std::vector<float>> folded;  // gains that take in a factor
  std::vector<NamedTensor> tensors;
  for (const PlacedParam& placed : PlacedParams(job)) {
    const TensorPlace& place = placed.place;
    // Rows keep their order in these files, so a tensor is a part of its parameter as it lies.
    ConstView view = placed.value.Rows(place.first_row, place.rows);
    if (place.factor != 1.0) {
      ToFileOrder(place, placed.value, folded.emplace_back(place.elements()));
      view = ViewOf(folded.back().data(), place.rows, place.cols);
    }
    tensors.push_back({place.name, place.shape(), view, stored});
  }
  WriteSafetensors(path, tensors, {{"format", "pt"}});
}

void WriteTokenizer(const ExportJob& job, const std::string& directory) {
  const Tokenizer& tokenizer = *job.tokenizer;
  tokenizer.Save(directory + "/tokenizer.json");
  const TextMarks marks = MarksOf(tokenizer);
  Json names = Json::object();
  const auto add = [&](const char* key, std::optional<TokenId> id) {
    if (id) names[key] = tokenizer.spec().tokens[*id];
  };
  add("bos_token", marks.begin);
  add("eos_token", marks.stop);
  add("pad_token", marks.stop);
  WriteJson(directory, "special_tokens_map.json", names);
  names["tokenizer_class"] = "PreTrainedTokenizerFast";
  names["model_max_length"] = job.context_length;
  names["clean_up_tokenization_spaces"] = false;
  WriteJson(directory, "tokenizer_config.json", names);
}

}  // namespace

Json HfConfigJson(const ExportJob& job) {
  const ModelConfig& config = job.config;
  const Shape& shape = config.shape;
  const Architecture architecture = job.route.architecture;
  const bool splits = architecture == Architecture::kHfNemotronNas;
  Json json = {{"architectures", {EnumName(architecture)}},
               {"model_type", ModelTypeOf(architecture)}};
  if (splits) {
    json["auto_map"] = {{"AutoConfig", "configuration_nemotron_nas.NemotronNasConfig"}};
  } else if (architecture == Architecture::kHfSandglass) {
    json["auto_map"] = {{"AutoConfig", "configuration_sandglass.SandglassConfig"},
                        {"AutoModel", "modeling_sandglass.SandglassModel"},
                        {"AutoModelForCausalLM", "modeling_sandglass.SandglassForCausalLM"}};
  }
  json["vocab_size"] = config.vocabulary;
  json["hidden_size"] = shape.d_model;
  json["num_hidden_layers"] = splits ? shape.layers * shape.sub_mlps() : shape.layers;
  json["num_attention_heads"] = shape.heads;
  json["num_key_value_heads"] = shape.kv_heads;
  json["head_dim"] = shape.head_width;
  if (splits) {
    json["block_configs"] = BlockConfigs(shape);
  } else if (architecture == Architecture::kHfSandglass) {
    json["intermediate_sizes"] = shape.ffn;
    json["norm_placement"] = EnumName(config.norm);
    json["qk_norm"] = EnumName(config.qk_norm);
    json["depth_scaled_norm"] = config.depth_scaled_norm;
  } else {
    json["intermediate_size"] = shape.ffn.front();
  }
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["mlp_bias"] = false;
  json["rms_norm_eps"] = config.norm_epsilon;
  AddRope(config, json);
  json["max_position_embeddings"] = job.context_length;
  json["initializer_range"] = config.init_std;
  json["tie_word_embeddings"] = config.embeddings == Embeddings::kTied;
  json["use_cache"] = true;
  const TextMarks marks = job.tokenizer ? MarksOf(*job.tokenizer) : TextMarks{};
  const auto id = [](std::optional<TokenId> mark) { return mark ? Json(*mark) : Json(nullptr); };
  json["bos_token_id"] = id(marks.begin);
  json["eos_token_id"] = id(marks.stop);
  json["pad_token_id"] = id(marks.stop);
  json["torch_dtype"] = HfTypeName(job.type);
  json["dtype"] = HfTypeName(job.type);
  return json;
}

void WriteHfDirectory(const ExportJob& job, const std::string& directory) {
  WriteWeights(job, directory + "/model.safetensors");
  const Json config = HfConfigJson(job);
  WriteJson(directory, "config.json", config);
  Json generation = Json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    generation[key] = config[key];
  }
  WriteJson(directory, "generation_config.json", generation);
  if (job.tokenizer != nullptr) WriteTokenizer(job, directory);
  if (job.route.architecture == Architecture::kHfSandglass) {
    WriteFileAtomically(directory + "/configuration_sandglass.py", kSandglassConfigurationPy);
    WriteFileAtomically(directory + "/modeling_sandglass.py", kSandglassModelingPy);
  } else if (job.route.architecture == Architecture::kHfNemotronNas) {
    WriteFileAtomically(directory + "/configuration_nemotron_nas.py", kNemotronNasConfigurationPy);
  }
}

}  // namespace sandglass
