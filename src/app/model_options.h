// What verbs that use a model on disk have in common.
#pragma once

#include <string>

#include "train/options.h"
#include "train/run_directory.h"

namespace sandglass {

// A run's own settings, or the defaults for other models, with `threads` if it is positive.
inline SystemOptions SystemFor(const std::string& model, int threads) {
  SystemOptions system = IsRunDirectory(model) ? ReadRunConfig(model).system : SystemOptions();
  if (threads > 0) system.threads = threads;
  return system;
}

}  // namespace sandglass
