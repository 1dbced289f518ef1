// A model on disk, whoever wrote it: what it is, its tokenizer, its weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "model/config.h"
#include "tensor/param_table.h"

namespace sandglass {

// What a text that the model continues begins with: the tokens that its tokenizer is configured to
// put there (often none), or, for models that learned documents behind it, the document separator.
enum class TextStart { kAsConfigured, kDocument };

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  const std::string& path() const { return facts_.path; }
  const ModelConfig& config() const { return facts_.config; }
  // One line for people: "LlamaForCausalLM in BF16, runs/kjv step 1200".
  const std::string& description() const { return facts_.description; }
  // Positions that the model was made for; 0 if nothing says.
  int64_t context_length() const { return facts_.context_length; }
  TextStart text_start() const { return facts_.text_start; }
  // What the user should know: settings that were not understood and have no effect, say.
  const std::vector<std::string>& notes() const { return facts_.notes; }

  // Nothing if the model has none (it takes token ids only). Throws Error if there is one that
  // cannot be read.
  virtual std::optional<Tokenizer> LoadTokenizer() const = 0;

  // Fills every parameter of a table of f32 that was declared for config() (padding of the
  // vocabulary may differ and is zero). `progress` (may be empty) gets the elements done so far.
  // Throws Error naming file and tensor for weights that are missing, of another size, or not
  // finite; Interrupted if that is requested.
  virtual void LoadWeights(ParamTable& params,
                           const std::function<void(int64_t)>& progress = {}) const = 0;

 protected:
  struct Facts {
    std::string path;
    ModelConfig config;
    std::string description;
    int64_t context_length = 0;
    TextStart text_start = TextStart::kAsConfigured;
    std::vector<std::string> notes;
  };
  explicit ModelSource(Facts facts) : facts_(std::move(facts)) {}

 private:
  Facts facts_;
};

// A model that another program wrote: a Hugging Face directory (config.json and safetensors) or a
// GGUF file. Everything but the weights' values is checked; what Sandglass cannot represent is
// refused by name. (train/open_model.h opens run directories too.)
std::unique_ptr<ModelSource> OpenForeignModel(const std::string& path);

// Throws Error with the places of values in `params` that are NaN or infinite, if there are any.
// `where` is the file that they came from.
void RequireFinite(const ParamTable& params, const std::string& where);

// The settings that decide what a model computes and that differ between two configurations, as
// "shape (L2-d16-a2x8-f1x32, now L2-d16-a2x8-f2x16)".
std::vector<std::string> ModelDifferences(const ModelConfig& given, const ModelConfig& wanted);

}  // namespace sandglass
