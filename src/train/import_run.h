// A run directory made of a model that another program wrote, so that everything that takes a run
// takes that model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "interop/model_source.h"

namespace sandglass {

struct ImportedRun {
  int64_t parameters = 0;
  std::string tokenizer_hash;  // empty: the model takes token ids only
};

// Writes run.toml, run.json, tokenizer.json (if the model has a tokenizer) and a checkpoint of step
// 0 that holds weights alone. The directory appears whole or not at all. Throws Error if it exists
// and is not empty, and for weights that cannot be used; Interrupted if that is requested.
// `progress` (may be empty) gets the parameters read so far.
ImportedRun ImportRun(const ModelSource& source, const std::string& directory,
                      const std::function<void(int64_t)>& progress = {});

}  // namespace sandglass
