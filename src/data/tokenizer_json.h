// Hugging Face's tokenizer.json, as far as it describes a BPE tokenizer that can encode any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer.h"

namespace sandglass {

// Understood: model BPE, byte-level (pre-tokenizers Split, Digits and ByteLevel, normalizers NFC
// and NFKC) or with byte fallback (normalizers Prepend and Replace, or the pre-tokenizer
// Metaspace); added tokens, special or not; TemplateProcessing. Throws Error that names the part
// for everything else that would change ids (other normalizers, other models, ...). `where` (the
// file) goes into the messages.
TokenizerSpec ParseTokenizerJson(std::string_view json, const std::string& where);

// The tokens that a new tokenizer starts from: kEndOfText, then the 256 bytes in the order of the
// characters that spell them.
std::vector<std::string> BaseTokens();

// Bytes as vocabularies spell them: one printable character for each, "Ġ" for a space.
std::string SpellBytes(std::string_view bytes);
// And back; nothing if there is a character that stands for no byte.
std::optional<std::string> UnspellBytes(std::string_view spelling);

// The canonical text: equal specs give equal bytes, and the reference library loads it.
std::string FormatTokenizerJson(const TokenizerSpec& spec);

}  // namespace sandglass
