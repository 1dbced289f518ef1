// What verbs that use a model on disk have in common.
#pragma once

#include <string>

#include "app/field_options.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/run_directory.h"

namespace sandglass {

// A run's own settings, or the defaults for other models, with `threads` if it is positive.
inline SystemOptions SystemFor(const std::string& model, int threads) {
  SystemOptions system = IsRunDirectory(model) ? ReadRunConfig(model).system : SystemOptions();
  if (threads > 0) system.threads = threads;
  return system;
}

// --weights raw|average: those of the last step, or their average over the updates.
inline void AddWeightsOption(CLI::App& verb, WeightsKind& weights) {
  const FieldOptions options(verb);
  options("weights", weights, "Weights of a run: raw, or average with train.average_decay");
}

}  // namespace sandglass
