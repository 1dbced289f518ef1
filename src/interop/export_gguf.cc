#include "interop/export_gguf.h"

#include <algorithm>
#include <vector>

#include "interop/gguf_config.h"
#include "interop/gguf_tokenizer_writer.h"
#include "io/gguf_writer.h"

namespace sandglass {
namespace {

GgufFileType FileTypeOf(ExportType type) {
  switch (type) {
    case ExportType::kF32:
      return GgufFileType::kF32;
    case ExportType::kF16:
      return GgufFileType::kF16;
    case ExportType::kBF16:
      return GgufFileType::kBF16;
    case ExportType::kQ8_0:
      return GgufFileType::kQ8_0;
  }
  return GgufFileType::kF32;
}

void AddGeneral(const ExportJob& job, GgufWriter& writer) {
  constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts
  writer.Add("general.architecture", EnumName(job.route.architecture));
  writer.Add("general.type", "model");
  writer.Add("general.name", job.name);
  writer.Add("general.file_type", static_cast<uint32_t>(FileTypeOf(job.type)));
  writer.Add("general.quantization_version", kQuantizationVersion);
  writer.Add("general.alignment", static_cast<uint32_t>(kGgufAlignment));
}

// What differs from block to block in `deci`, where every K-th has attention.
void AddBlockSizes(const Shape& shape, const std::string& prefix, GgufWriter& writer) {
  std::vector<uint32_t> heads, kv_heads, widths;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int index = 0; index < shape.sub_mlps(); ++index) {
      heads.push_back(index == 0 ? shape.heads : 0);
      kv_heads.push_back(index == 0 ? shape.kv_heads : 0);
      widths.push_back(shape.ffn[index]);
    }
  }
  writer.Add(prefix + "attention.head_count", heads);
  writer.Add(prefix + "attention.head_count_kv", kv_heads);
  writer.Add(prefix + "feed_forward_length", widths);
}

void AddArchitecture(const ExportJob& job, GgufWriter& writer) {
  const ModelConfig& config = job.config;
  const Shape& shape = config.shape;
  const std::string prefix = std::string(EnumName(job.route.architecture)) + ".";
  const auto add = [&](const char* key, int64_t value) {
    writer.Add(prefix + key, static_cast<uint32_t>(value));
  };
  add("vocab_size", config.vocabulary);
  add("context_length", job.context_length);
  add("embedding_length", shape.d_model);
  add("block_count", int64_t{shape.layers} * shape.sub_mlps());
  if (job.route.architecture == Architecture::kGgufDeci) {
    AddBlockSizes(shape, prefix, writer);
  } else {
    add("attention.head_count", shape.heads);
    add("attention.head_count_kv", shape.kv_heads);
    add("feed_forward_length", shape.ffn.front());
  }
  add("attention.key_length", shape.head_width);
  add("attention.value_length", shape.head_width);
  writer.Add(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_epsilon));
  add("rope.dimension_count", shape.head_width);
  writer.Add(prefix + "rope.freq_base", static_cast<float>(config.rope_theta));
  if (config.rope_scaling && config.rope_scaling->kind == RopeScalingKind::kLinear) {
    writer.Add(prefix + "rope.scaling.type", "linear");
    writer.Add(prefix + "rope.scaling.factor", static_cast<float>(config.rope_scaling->factor));
  }
}

// llama.cpp knows Llama 3's scaling as a tensor of what each frequency is divided by.
void AddRopeFactors(const ModelConfig& config, GgufWriter& writer) {
  if (!config.rope_scaling || config.rope_scaling->kind != RopeScalingKind::kLlama3) return;
  const std::vector<float> factors = RopeFactors(config);
  writer.AddTensor(kGgufRopeFactors, GgufTensorType::kF32, {std::ssize(factors)},
                   [factors](std::span<float> out) { std::ranges::copy(factors, out.begin()); });
}

}  // namespace

void WriteGgufModel(const ExportJob& job, const std::string& path) {
  GgufWriter writer;
  AddGeneral(job, writer);
  AddArchitecture(job, writer);
  AddGgufTokenizer(job.tokenizer, job.config.vocabulary, writer);
  AddRopeFactors(job.config, writer);
  for (const PlacedParam& placed : PlacedParams(job)) {
    writer.AddTensor(
        placed.place.name, StoredType(placed.place, job.route, job.type), placed.place.shape(),
        [placed](std::span<float> out) { ToFileOrder(placed.place, placed.value, out); });
  }
  writer.Write(path, job.progress);
}

}  // namespace sandglass
