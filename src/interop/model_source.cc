#include "interop/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "base/interrupt.h"
#include "interop/gguf_config.h"
#include "interop/gguf_tokenizer.h"
#include "interop/hf_config.h"
#include "interop/names.h"
#include "io/gguf_file.h"
#include "io/quantization.h"
#include "io/safetensors.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// A tensor of a file, whichever container it is in.
struct StoredTensor {
  std::vector<int64_t> shape;
  std::string file;
  std::string_view type;                       // "BF16"
  std::function<void(std::span<float>)> read;  // all elements, as f32
};
using StoredTensors = std::map<std::string, StoredTensor>;

// The types of the matrices, the most frequent (by elements) first.
std::string TypesOf(const StoredTensors& tensors) {
  std::map<std::string_view, int64_t> elements;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.shape.size() < 2) continue;
    elements[tensor.type] += tensor.shape[0] * tensor.shape[1];
  }
  std::vector<std::pair<int64_t, std::string_view>> sorted;
  for (const auto& [type, count] : elements) sorted.emplace_back(count, type);
  std::ranges::sort(sorted, std::greater<>());
  std::string text;
  for (const auto& [count, type] : sorted)
    text += (text.empty() ? "" : " and ") + std::string(type);
  return text;
}

// Leading dimensions of 1 do not count: a vector may be stored as a matrix of one row.
std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  while (shape.size() > 1 && shape.front() == 1) shape.erase(shape.begin());
  return shape;
}

std::vector<float> ReadAll(const StoredTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  std::vector<float> values(elements);
  tensor.read(values);
  return values;
}

// Whether a tensor that no place asks for can be left alone: derived values that old files carry,
// and a head that repeats the embedding it is tied to.
bool IsRedundant(const std::string& name, const StoredTensors& tensors, const ModelConfig& config) {
  if (name.ends_with(".rotary_emb.inv_freq") || name == kGgufRopeFactors) return true;
  if (name != "lm_head.weight" || config.embeddings != Embeddings::kTied) return false;
  const auto embedding = tensors.find("model.embed_tokens.weight");
  return embedding != tensors.end() && embedding->second.shape == tensors.at(name).shape &&
         ReadAll(embedding->second) == ReadAll(tensors.at(name));
}

// Weights by the names of another program.
class ForeignModel : public ModelSource {
 public:
  void LoadWeights(ParamTable& params,
                   const std::function<void(int64_t)>& progress) const override {
    SANDGLASS_CHECK(params.dtype() == DType::kF32, "weights are loaded as f32");
    std::unordered_map<std::string_view, const ParamSpec*> specs;
    for (const ParamSpec& spec : params.specs()) specs[spec.name] = &spec;
    std::vector<float> values;
    int64_t done = 0;
    for (const TensorPlace& place : places_) {
      if (InterruptRequested()) throw Interrupted{"nothing was changed; start it again"};
      const auto spec = specs.find(place.param);
      SANDGLASS_CHECK(spec != specs.end() && spec->second->cols == place.cols &&
                          place.first_row + place.rows <= spec->second->rows,
                      "a table that was declared for this configuration");
      const StoredTensor& tensor = tensors_.at(place.name);
      values.resize(place.elements());
      tensor.read(values);
      if (const auto bad =
              std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
          bad != values.end()) {
        throw Error({.what = fmt::format("tensor \"{}\" holds {} at element {}", place.name, *bad,
                                         bad - values.begin()),
                     .where = tensor.file,
                     .expected = "finite weights",
                     .remedy = "the file is damaged, or the model diverged when it was trained"});
      }
      FromFileOrder(place, values, spec->second->param->value);
      if (progress) progress(done += place.elements());
    }
  }

 protected:
  ForeignModel(Facts facts, Architecture architecture, StoredTensors tensors)
      : ModelSource(std::move(facts)),
        places_(TensorPlaces(config(), architecture)),
        tensors_(std::move(tensors)) {
    CheckTensors(EnumName(architecture));
  }

 private:
  // Every place has a tensor of its shape, and every tensor a place.
  void CheckTensors(const char* architecture) const {
    std::set<std::string> known;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    for (const TensorPlace& place : places_) {
      known.insert(place.name);
      const auto found = tensors_.find(place.name);
      if (found == tensors_.end()) {
        throw Error({.what = fmt::format("there is no tensor \"{}\"", place.name),
                     .where = path(),
                     .expected = fmt::format("the {} tensors of a {} of this size", places_.size(),
                                             architecture),
                     .remedy = DidYouMean(place.name, names)});
      }
      const std::vector<int64_t>& shape = found->second.shape;
      if (WithoutOnes(shape) != WithoutOnes({place.rows, place.cols})) {
        throw Error(
            {.what = fmt::format("tensor \"{}\" is [{}]", place.name, fmt::join(shape, ", ")),
             .where = found->second.file,
             .expected =
                 fmt::format("[{}], as the configuration has it", fmt::join(place.shape(), ", "))});
      }
    }
    for (const auto& [name, tensor] : tensors_) {
      if (known.contains(name) || IsRedundant(name, tensors_, config())) continue;
      throw Error({.what = fmt::format("tensor \"{}\" has no place in a {} that can be represented",
                                       name, architecture),
                   .where = tensor.file,
                   .expected = name.ends_with(".bias") ? "a model without biases"
                                                       : "the model's own tensors alone"});
    }
  }

  std::vector<TensorPlace> places_;
  StoredTensors tensors_;
};

class HuggingFaceModel final : public ForeignModel {
 public:
  static std::unique_ptr<ModelSource> Open(const std::string& directory) {
    const std::string config_path = directory + "/config.json";
    HfConfig parsed = ParseHfConfig(ReadFile(config_path), config_path);
    auto files = std::make_unique<SafetensorsDirectory>(directory);
    StoredTensors tensors;
    for (const auto& [name, tensor] : files->tensors()) {
      tensors[name] = {.shape = tensor.entry->shape,
                       .file = tensor.file->path(),
                       .type = NameOf(tensor.entry->dtype),
                       .read = [tensor = tensor](std::span<float> out) {
                         tensor.file->ReadF32(*tensor.entry, out);
                       }};
    }
    Facts facts{
        .path = directory,
        .config = parsed.config,
        .description = fmt::format("{} in {}", EnumName(parsed.architecture), TypesOf(tensors)),
        .context_length = parsed.context_length};
    if (!parsed.not_used.empty()) {
      facts.notes.push_back(fmt::format("{}: settings that are not known were left alone: {}",
                                        config_path, fmt::join(parsed.not_used, ", ")));
    }
    return std::unique_ptr<ModelSource>(new HuggingFaceModel(std::move(facts), parsed.architecture,
                                                             std::move(tensors), std::move(files)));
  }

  std::optional<Tokenizer> LoadTokenizer() const override {
    const std::string json = path() + "/tokenizer.json";
    if (fs::exists(json)) return Tokenizer::Load(json);
    const std::string model = path() + "/tokenizer.model";
    if (fs::exists(model)) return Tokenizer::Load(model);
    return std::nullopt;
  }

 private:
  HuggingFaceModel(Facts facts, Architecture architecture, StoredTensors tensors,
                   std::unique_ptr<SafetensorsDirectory> files)
      : ForeignModel(std::move(facts), architecture, std::move(tensors)),
        files_(std::move(files)) {}

  std::unique_ptr<SafetensorsDirectory> files_;
};

class GgufModel final : public ForeignModel {
 public:
  static std::unique_ptr<ModelSource> Open(const std::string& path) {
    auto file = std::make_unique<GgufFile>(path);
    const GgufConfig parsed = ReadGgufConfig(*file);
    StoredTensors tensors;
    for (const GgufFile::Tensor& tensor : file->tensors()) {
      tensors[tensor.name] = {.shape = tensor.shape,
                              .file = path,
                              .type = InfoOf(tensor.type).name,
                              .read = [&file = *file, &tensor](std::span<float> out) {
                                Dequantize(tensor.type, file.Bytes(tensor), out);
                              }};
    }
    Facts facts{.path = path,
                .config = parsed.config,
                .description =
                    fmt::format("GGUF {} in {}", EnumName(parsed.architecture), TypesOf(tensors)),
                .context_length = parsed.context_length};
    return std::unique_ptr<ModelSource>(
        new GgufModel(std::move(facts), parsed.architecture, std::move(tensors), std::move(file)));
  }

  std::optional<Tokenizer> LoadTokenizer() const override {
    const auto model = file_->Get<std::string_view>("tokenizer.ggml.model");
    if (!model || *model == "none") return std::nullopt;
    return Tokenizer(ReadGgufTokenizer(*file_), path());
  }

 private:
  GgufModel(Facts facts, Architecture architecture, StoredTensors tensors,
            std::unique_ptr<GgufFile> file)
      : ForeignModel(std::move(facts), architecture, std::move(tensors)), file_(std::move(file)) {}

  std::unique_ptr<GgufFile> file_;
};

}  // namespace

std::unique_ptr<ModelSource> OpenForeignModel(const std::string& path) {
  if (!fs::exists(path)) {
    throw Error({.what = "there is no such model",
                 .where = path,
                 .expected = "a run directory, a Hugging Face directory or a GGUF file",
                 .remedy = "check the path; relative paths start at the current directory"});
  }
  if (!fs::is_directory(path)) return GgufModel::Open(path);
  if (fs::exists(path + "/config.json")) return HuggingFaceModel::Open(path);
  throw Error({.what = "the directory holds no model that is known",
               .where = path,
               .expected = "run.toml (a run directory) or config.json (a Hugging Face directory); "
                           "for GGUF, name the file itself"});
}

void RequireFinite(const ParamTable& params, const std::string& where) {
  for (const ParamSpec& spec : params.specs()) {
    const View value = spec.param->value;
    const std::span<const float> values(value.Row<float>(), spec.elements());
    const auto bad =
        std::ranges::find_if_not(values, [](float weight) { return std::isfinite(weight); });
    if (bad == values.end()) continue;
    throw Error({.what = fmt::format("tensor \"{}\" holds {} at element {}", spec.name, *bad,
                                     bad - values.begin()),
                 .where = where,
                 .expected = "finite weights"});
  }
}

std::vector<std::string> ModelDifferences(const ModelConfig& given, const ModelConfig& wanted) {
  // How weights start, the extra loss and the padding of matrices do not change what is computed.
  return Differences(given, wanted,
                     {"init_std", "depth_scaled_init", "z_loss", "vocabulary_multiple"});
}

}  // namespace sandglass
