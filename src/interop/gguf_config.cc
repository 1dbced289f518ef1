#include "interop/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "interop/blocks.h"
#include "io/quantization.h"
#include "model/rotary.h"

namespace sandglass {
namespace {

// Keys of an architecture that have no bearing on what the model computes.
constexpr std::array<std::string_view, 5> kNoEffect = {
    "context_length", "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "tensor_data_layout", "vocab_size"};

// Reads "<architecture>.<key>" and knows which were read.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }

  template <class T>
  std::optional<T> Get(std::string_view key) {
    read_.insert(Name(key));
    return file_.Get<T>(Name(key));
  }
  template <class T>
  T Require(std::string_view key) {
    read_.insert(Name(key));
    return file_.Require<T>(Name(key));
  }

  int Size(std::string_view key) { return Checked(key, Require<int64_t>(key)); }
  int Size(std::string_view key, int64_t otherwise) {
    return Checked(key, Get<int64_t>(key).value_or(otherwise));
  }
  // A number for all blocks, or one for each.
  std::vector<int64_t> PerBlock(std::string_view key, size_t blocks,
                                std::optional<std::vector<int64_t>> otherwise = {}) {
    read_.insert(Name(key));
    for (const GgufFile::Entry& entry : file_.metadata()) {
      if (entry.key != Name(key)) continue;
      if (const auto* list = std::get_if<std::vector<int64_t>>(&entry.value)) {
        if (list->size() != blocks) {
          throw Error({.what = fmt::format("{} has {} entries for {} blocks", entry.key,
                                           list->size(), blocks),
                       .where = file_.path()});
        }
        return *list;
      }
      return std::vector<int64_t>(blocks, file_.Require<int64_t>(entry.key));
    }
    if (otherwise) return *std::move(otherwise);
    return std::vector<int64_t>(blocks, file_.Require<int64_t>(Name(key)));
  }

  [[noreturn]] void Refuse(std::string_view key, std::string_view what) const {
    throw Error({.what = fmt::format("{}: {} cannot be represented", Name(key), what),
                 .where = file_.path(),
                 .expected = "a model of RMSNorm, RoPE, softmax attention and SwiGLU without "
                             "biases"});
  }

  // Every key of the architecture means something: what is not understood is not skipped.
  void RefuseTheRest() const {
    for (const GgufFile::Entry& entry : file_.metadata()) {
      if (!entry.key.starts_with(prefix_) || read_.contains(entry.key)) continue;
      const std::string_view key = std::string_view(entry.key).substr(prefix_.size());
      if (std::ranges::find(kNoEffect, key) == kNoEffect.end()) Refuse(key, "this setting");
    }
  }

 private:
  int Checked(std::string_view key, int64_t value) const {
    if (value < 0 || value > std::numeric_limits<int>::max()) {
      throw Error({.what = fmt::format("{} = {} is out of range", Name(key), value),
                   .where = file_.path()});
    }
    return static_cast<int>(value);
  }

  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string> read_;
};

Architecture FindArchitecture(const GgufFile& file) {
  const auto name = file.Require<std::string_view>("general.architecture");
  for (const auto& [architecture, text] : EnumNames<Architecture>::kNames) {
    if (IsGguf(architecture) && name == text) return architecture;
  }
  throw Error({.what = fmt::format("the architecture {} cannot be represented", name),
               .where = file.path(),
               .expected = "llama, qwen3, olmo2 or deci"});
}

void RefuseWhatCannotBe(const GgufFile& file, Keys& keys) {
  if (file.Get<int64_t>("split.count").value_or(1) > 1) {
    throw Error({.what = "the model is split over several files",
                 .where = file.path(),
                 .expected = "one file",
                 .remedy = "join them first: llama-gguf-split --merge"});
  }
  if (keys.Get<int64_t>("expert_count").value_or(0) > 0) {
    keys.Refuse("expert_count", "a mixture of experts");
  }
  keys.Get<int64_t>("expert_used_count");
  if (keys.Get<int64_t>("attention.sliding_window").value_or(0) > 0) {
    keys.Refuse("attention.sliding_window", "a sliding attention window");
  }
  if (!keys.Get<bool>("attention.causal").value_or(true)) {
    keys.Refuse("attention.causal", "attention to later tokens");
  }
  const auto type = keys.Get<std::string_view>("rope.scaling.type").value_or("none");
  if (type != "none" && type != "linear") {
    keys.Refuse("rope.scaling.type", fmt::format("RoPE scaling of type \"{}\"", type));
  }
}

std::optional<RopeScaling> ReadRopeScaling(const GgufFile& file, Keys& keys,
                                           const ModelConfig& config) {
  const auto type = keys.Get<std::string_view>("rope.scaling.type");
  const auto older = keys.Get<double>("rope.scale_linear");
  const double factor = keys.Get<double>("rope.scaling.factor").value_or(older.value_or(1.0));
  std::optional<RopeScaling> scaling;
  if (type != "none" && factor != 0.0 && factor != 1.0) {
    scaling = RopeScaling{.kind = RopeScalingKind::kLinear, .factor = factor};
  }
  const GgufFile::Tensor* tensor = file.Find(kGgufRopeFactors);
  if (tensor == nullptr) return scaling;
  const auto refuse = [&](const char* what) {
    throw Error(
        {.what = fmt::format("tensor \"{}\": {} cannot be represented", kGgufRopeFactors, what),
         .where = file.path(),
         .expected = "factors of Llama 3.1's RoPE scaling"});
  };
  if (tensor->elements() != config.shape.head_width / 2) refuse("another number of factors");
  std::vector<float> factors(tensor->elements());
  Dequantize(tensor->type, file.Bytes(*tensor), factors);
  if (std::ranges::all_of(factors, [](float value) { return value == 1.0f; })) return scaling;
  if (scaling) refuse("two RoPE scalings at a time");
  scaling = FindLlama3Scaling(factors, config.rope_theta);
  if (!scaling) refuse("this RoPE scaling");
  return scaling;
}

}  // namespace

GgufConfig ReadGgufConfig(const GgufFile& file) {
  GgufConfig result{.architecture = FindArchitecture(file)};
  Keys keys(file, EnumName(result.architecture));
  RefuseWhatCannotBe(file, keys);
  ModelConfig& config = result.config;
  Shape& shape = config.shape;
  const int blocks = keys.Size("block_count");
  if (std::ssize(file.tensors()) < blocks) {
    throw Error({.what = fmt::format("{} = {}, but the file has {} tensors",
                                     keys.Name("block_count"), blocks, file.tensors().size()),
                 .where = file.path()});
  }
  shape.d_model = keys.Size("embedding_length");
  const std::vector<int64_t> heads = keys.PerBlock("attention.head_count", blocks);
  const std::vector<int64_t> kv_heads =
      keys.PerBlock("attention.head_count_kv", blocks, std::vector<int64_t>(heads));
  const std::vector<int64_t> ffn = keys.PerBlock("feed_forward_length", blocks);
  std::vector<BlockSizes> sizes;
  for (int i = 0; i < blocks; ++i) sizes.push_back({heads[i], kv_heads[i], ffn[i]});
  RegroupBlocks(sizes, shape, file.path());
  if (shape.sub_mlps() > 1 && result.architecture != Architecture::kGgufDeci) {
    keys.Refuse("attention.head_count", "blocks without attention");
  }
  shape.head_width = keys.Size("attention.key_length", shape.d_model / shape.heads);
  if (keys.Size("attention.value_length", shape.head_width) != shape.head_width) {
    keys.Refuse("attention.value_length", "values of another width than keys");
  }
  if (keys.Size("rope.dimension_count", shape.head_width) != shape.head_width) {
    keys.Refuse("rope.dimension_count", "rotation of a part of each head");
  }
  config.norm_epsilon = keys.Require<double>("attention.layer_norm_rms_epsilon");
  // As decimal numbers that people wrote, not as the f32 nearest to them.
  config.norm_epsilon = std::stod(fmt::format("{:.7g}", config.norm_epsilon));
  config.rope_theta = keys.Get<double>("rope.freq_base").value_or(10000.0);
  config.rope_scaling = ReadRopeScaling(file, keys, config);
  if (result.architecture == Architecture::kGgufOlmo2) {
    config.norm = NormPlacement::kPost;
    config.qk_norm = QkNorm::kFullWidth;
  }
  if (result.architecture == Architecture::kGgufQwen3) config.qk_norm = QkNorm::kPerHead;
  const GgufFile::Tensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error({.what = "there is no matrix token_embd.weight", .where = file.path()});
  }
  config.vocabulary =
      static_cast<int>(std::min<int64_t>(embedding->shape[0], std::numeric_limits<int>::max()));
  config.embeddings =
      file.Find("output.weight") == nullptr ? Embeddings::kTied : Embeddings::kUntied;
  result.context_length = std::max<int64_t>(0, keys.Get<int64_t>("context_length").value_or(0));
  keys.RefuseTheRest();
  try {
    config.Validate();
  } catch (const Error& failure) {
    ErrorParts parts = failure.parts();
    parts.where = file.path();
    throw Error(parts);
  }
  return result;
}

std::vector<float> RopeFactors(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.rope_scaling.reset();
  const std::vector<double> before = RotaryFrequencies(plain);
  const std::vector<double> after = RotaryFrequencies(config);
  std::vector<float> factors(before.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    factors[i] = static_cast<float>(before[i] / after[i]);
  }
  return factors;
}

std::optional<RopeScaling> FindLlama3Scaling(const std::vector<float>& factors, double rope_theta) {
  // Between the two limits the share of a frequency that is kept, (1/f - 1/F) / (1 - 1/F) for its
  // factor f and the largest, F, is linear in 1/wavelength:
  //   kept = (original_max_position / wavelength - low) / (high - low).
  // The line through two such points gives the numbers up to a common multiple, which has no
  // effect; low = 1, as Llama 3.1 has it, fixes that.
  ModelConfig config;
  config.shape = {.head_width = 2 * static_cast<int>(factors.size())};
  config.rope_theta = rope_theta;
  if (factors.empty()) return std::nullopt;
  RopeScaling scaling{.kind = RopeScalingKind::kLlama3,
                      .factor = *std::ranges::max_element(factors)};
  const std::vector<double> frequencies = RotaryFrequencies(config);
  struct Point {
    double waves_per_position;
    double kept;
  };
  std::vector<Point> between;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] <= 1.0f || factors[i] >= scaling.factor) continue;
    between.push_back({frequencies[i] / (2 * std::numbers::pi),
                       (1 / double{factors[i]} - 1 / scaling.factor) / (1 - 1 / scaling.factor)});
  }
  if (between.size() >= 2) {
    const Point& first = between.front();
    const Point& last = between.back();
    const double slope =
        (first.kept - last.kept) / (first.waves_per_position - last.waves_per_position);
    const double at_zero = first.kept - slope * first.waves_per_position;  // -low / (high - low)
    scaling.high_freq_factor = 1 - 1 / at_zero;
    scaling.original_max_position = static_cast<int64_t>(
        std::clamp(std::round(slope * (scaling.high_freq_factor - 1)), 1.0, 1e15));
    // A number of a few digits, if that is what it is.
    const double rounded = std::round(scaling.high_freq_factor * 1e3) / 1e3;
    if (std::fabs(scaling.high_freq_factor - rounded) < 1e-4 * rounded) {
      scaling.high_freq_factor = rounded;
    }
  }
  const auto fits = [&](float a, float b) { return std::fabs(a - b) <= 1e-5f * b; };
  const auto holds = [&](const RopeScaling& candidate) {
    config.rope_scaling = candidate;
    return candidate.factor >= 1 && candidate.high_freq_factor > candidate.low_freq_factor &&
           std::ranges::equal(RopeFactors(config), factors, fits);
  };
  return holds(scaling) ? std::optional(scaling) : std::nullopt;
}

}  // namespace sandglass
