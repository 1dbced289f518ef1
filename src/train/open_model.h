// Any model that Sandglass can load, as one kind of source: its own run directories, and what other
// programs wrote.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "interop/model_source.h"
#include "model/model.h"
#include "train/checkpoint.h"
#include "train/options.h"

namespace sandglass {

// A run directory (its newest sound checkpoint; damaged ones are told to `report`), a Hugging Face
// directory or a GGUF file. What the user should know of it is told to `report` as well. Only runs
// hold averaged weights: asking others for them is an Error, and loading them from a checkpoint
// that has none.
std::unique_ptr<ModelSource> OpenModel(const std::string& path,
                                       const std::function<void(std::string_view)>& report,
                                       WeightsKind weights = WeightsKind::kRaw);

// A model ready to compute, with the weights of a source.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

// `progress`, which may be empty and may throw, gets the number of parameters that are loaded.
LoadedModel LoadModel(const ModelSource& source, const Capacity& capacity,
                      const SystemOptions& system,
                      const std::function<void(int64_t)>& progress = {});

// Fills `params`, declared for `config`, with the weights of the model at `path`. Throws Error,
// naming the differences, if that is another model.
void LoadInitialWeights(const std::string& path, const ModelConfig& config, ParamTable& params,
                        const std::function<void(std::string_view)>& report);

}  // namespace sandglass
