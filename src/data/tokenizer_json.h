// Hugging Face's tokenizer.json, as far as it describes a byte-level BPE tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace sandglass {

// Understood: model BPE; pre-tokenizer ByteLevel with its own (GPT-2) regex, or a Sequence of Split
// by a regex and ByteLevel without one; decoder ByteLevel; special added tokens. Throws Error that
// names the part for everything else that would change ids (normalizers, other models, ...).
// `where` (the file) goes into the messages.
TokenizerSpec ParseTokenizerJson(std::string_view json, const std::string& where);

// The tokens that a new tokenizer starts from: kEndOfText, then the 256 bytes in the order of the
// characters that spell them.
std::vector<std::string> BaseTokens();

// Bytes as vocabularies spell them: one printable character for each, "Ġ" for a space.
std::string SpellBytes(std::string_view bytes);

// The canonical text: equal specs give equal bytes, and the reference library loads it.
std::string FormatTokenizerJson(const TokenizerSpec& spec);

}  // namespace sandglass
