// A model as one GGUF file for llama.cpp.
#pragma once

#include <string>

#include "interop/export.h"

namespace sandglass {

// Throws Error if the tokenizer is one that llama.cpp would read differently, before anything is
// written, and if the file cannot be written; Interrupted if that is requested.
void WriteGgufModel(const ExportJob& job, const std::string& path);

}  // namespace sandglass
