// A tokenizer as the keys that llama.cpp reads (interop/gguf_tokenizer.h reads them back).
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "io/gguf_writer.h"

namespace sandglass {

// Texts for which llama.cpp will give other ids, in words for people; mostly none. Throws Error if
// it would give other ids for ordinary text: if it has no pre-tokenizer that cuts text as this
// tokenizer does, if its order of merges cannot be written as scores, and for settings that it does
// not know. Asked before anything is written.
std::vector<std::string> GgufTokenizerCautions(const Tokenizer& tokenizer);

// Adds the keys tokenizer.ggml.*: model gpt2 for byte-level tokenizers, llama for those with byte
// fallback. `vocabulary` ids are written, those beyond the tokenizer's as unused; nullptr writes
// that there is no tokenizer. Throws Error as GgufTokenizerCautions does.
void AddGgufTokenizer(const Tokenizer* tokenizer, int vocabulary, GgufWriter& writer);

}  // namespace sandglass
