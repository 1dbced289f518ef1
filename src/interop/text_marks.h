// The tokens that mark where a text begins and ends, as other programs ask for them.
#pragma once

#include <optional>

#include "data/tokenizer.h"

namespace sandglass {

struct TextMarks {
  // Put in front of every text. Nothing if the tokenizer is configured without.
  std::optional<TokenId> begin;
  // What a model writes when it is done: generation stops there. Nothing if no special token has
  // one of the usual names.
  std::optional<TokenId> stop;
  // Put behind every text, as few tokenizers are configured to do.
  std::optional<TokenId> end;
};

// Throws Error for a tokenizer that puts more than one token in front of a text or behind it.
TextMarks MarksOf(const Tokenizer& tokenizer);

// The tokenizer, configured to begin every text as `prepare` begins every document: with the token
// that stands between documents. One that puts a token there already stays as it is.
Tokenizer BeginningLikeDocuments(const Tokenizer& tokenizer);

}  // namespace sandglass
