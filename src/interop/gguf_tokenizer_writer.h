// A tokenizer as the keys that llama.cpp reads (interop/gguf_tokenizer.h reads them back).
#pragma once

#include "data/tokenizer.h"
#include "io/gguf_writer.h"

namespace sandglass {

// Adds the keys tokenizer.ggml.*. `vocabulary` ids are written, those beyond the tokenizer's as
// unused; nullptr writes that there is no tokenizer. Throws Error if llama.cpp has no pre-tokenizer
// that cuts text as this tokenizer does, or none of this kind at all.
void AddGgufTokenizer(const Tokenizer* tokenizer, int vocabulary, GgufWriter& writer);

}  // namespace sandglass
