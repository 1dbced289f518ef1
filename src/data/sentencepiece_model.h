// SentencePiece tokenizers: BPE with byte fallback, as in Llama 2 and Mistral.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace sandglass {

// What a piece of such a vocabulary is; the numbers are those of SentencePiece and of GGUF.
enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct ScoredPiece {
  std::string piece;  // with U+2581 for spaces; "<0x0A>" for a byte
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// How user-defined pieces are found, and what an unused one is.
//   kInPlace   as part of the text around them; refused (SentencePiece)
//   kApart     as added tokens, behind which text begins anew; an id without a token (llama.cpp)
enum class UserDefined { kInPlace, kApart };

// A spec that merges as SentencePiece does: the two neighbours first whose joined piece has the
// highest score. Throws Error if bytes are missing or a piece has a wrong type or text; `where`
// (the file) goes into the messages.
TokenizerSpec SpecOfScoredPieces(const std::vector<ScoredPiece>& pieces, LeadingSpace leading_space,
                                 UserDefined user_defined, const std::string& where);

// From a .model file. Throws Error for models other than BPE with byte fallback, and for text
// normalization.
TokenizerSpec ParseSentencePieceModel(std::string_view contents, const std::string& where);

// Whether `contents` look like such a file.
bool LooksLikeSentencePieceModel(std::string_view contents);

}  // namespace sandglass
