// A model as a Hugging Face directory: config.json, model.safetensors, the tokenizer's files, and
// for models that transformers does not have itself the Python files that describe them.
#pragma once

#include <string>

#include "base/json.h"
#include "interop/export.h"

namespace sandglass {

// config.json, in a spelling that transformers 4 and 5 read alike.
Json HfConfigJson(const ExportJob& job);

// Writes all files into an existing, empty directory. Throws Error if that is not possible;
// Interrupted if that is requested.
void WriteHfDirectory(const ExportJob& job, const std::string& directory);

}  // namespace sandglass
