#include "train/open_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

class Run final : public ModelSource {
 public:
  static std::unique_ptr<ModelSource> Open(const std::string& directory,
                                           const std::function<void(std::string_view)>& report,
                                           WeightsKind weights) {
    const RunConfig config = ReadRunConfig(directory);
    const std::optional<std::string> checkpoint = FindCheckpoint(directory, report);
    if (!checkpoint) {
      throw Error({.what = "the run has no sound checkpoint",
                   .where = directory,
                   .remedy = "train it first: sandglass train " + ConfigPath(directory)});
    }
    const bool imported =
        IsRunDirectory(directory) && ReadRunInfo(directory).imported_from.has_value();
    return std::unique_ptr<ModelSource>(new Run(
        {.path = directory,
         .config = config.model.config,
         .description =
             weights == WeightsKind::kAverage ? *checkpoint + ", averaged weights" : *checkpoint,
         .context_length = config.train.length,
         .text_start = imported ? TextStart::kAsConfigured : TextStart::kDocument},
        *checkpoint, weights));
  }

  std::optional<Tokenizer> LoadTokenizer() const override {
    if (!fs::exists(TokenizerPath(path()))) return std::nullopt;
    return Tokenizer::Load(TokenizerPath(path()));
  }

  void LoadWeights(ParamTable& params,
                   const std::function<void(int64_t)>& progress) const override {
    sandglass::LoadWeights(checkpoint_, params, weights_);
    RequireFinite(params, checkpoint_);
    if (progress) progress(params.elements());
  }

 private:
  Run(Facts facts, std::string checkpoint, WeightsKind weights)
      : ModelSource(std::move(facts)), checkpoint_(std::move(checkpoint)), weights_(weights) {}

  std::string checkpoint_;
  WeightsKind weights_;
};

}  // namespace

std::unique_ptr<ModelSource> OpenModel(const std::string& path,
                                       const std::function<void(std::string_view)>& report,
                                       WeightsKind weights) {
  const bool run = fs::exists(ConfigPath(path));
  if (!run && weights == WeightsKind::kAverage) {
    throw Error({.what = "models of other programs have no averaged weights",
                 .where = path,
                 .expected = "the directory of a run with train.average_decay",
                 .remedy = "use the raw weights"});
  }
  std::unique_ptr<ModelSource> source =
      run ? Run::Open(path, report, weights) : OpenForeignModel(path);
  for (const std::string& note : source->notes()) report(note);
  return source;
}

LoadedModel LoadModel(const ModelSource& source, const Capacity& capacity,
                      const SystemOptions& system, const std::function<void(int64_t)>& progress) {
  LoadedModel loaded{system.MakeBackend(), std::make_unique<Model>(source.config(), capacity)};
  loaded.model->Allocate(*loaded.backend);
  source.LoadWeights(loaded.model->params(), progress);
  return loaded;
}

void LoadInitialWeights(const std::string& path, const ModelConfig& config, ParamTable& params,
                        const std::function<void(std::string_view)>& report) {
  const std::unique_ptr<ModelSource> source = OpenModel(path, report);
  const std::vector<std::string> differences = ModelDifferences(source->config(), config);
  if (!differences.empty()) {
    throw Error({.what = fmt::format("the weights belong to another model: {}",
                                     fmt::join(differences, ", ")),
                 .where = "train.initial_weights = " + path,
                 .expected = "a model that differs in no setting of what is computed",
                 .remedy = "take over the settings of [model] from the model's own"});
  }
  source->LoadWeights(params);
}

}  // namespace sandglass
