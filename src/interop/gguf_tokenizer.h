// The tokenizer inside a GGUF file (interop/gguf_tokenizer_writer.h writes it).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer.h"
#include "io/gguf_file.h"

namespace sandglass {

// From the keys tokenizer.ggml.*: model gpt2 (byte-level BPE, with a known pre-tokenizer) or llama
// (SentencePiece with scores and byte tokens). BOS and EOS are put around a text where the file
// says so. Throws Error that names the key for anything else: an unknown or a missing pre-tokenizer
// (llama.cpp would go on with a wrong one), lists of different lengths, merges of unknown tokens.
TokenizerSpec ReadGgufTokenizer(const GgufFile& file);

// llama.cpp's name for the way in which a byte-level tokenizer cuts text, or nothing if it has none
// that gives the same ids.
std::optional<std::string> GgufPreTokenizerName(const TokenizerSpec& spec);

// Whether llama.cpp takes a token of this name for a special one, whatever the file says.
bool IsSpecialToLlamaCpp(std::string_view name);

// The tokenizer in a file of any format that Sandglass reads, GGUF among them.
Tokenizer LoadAnyTokenizer(const std::string& path);

}  // namespace sandglass
