// Tokenizers as lists of ranks: tiktoken's files (a token in base64 and its rank on each line) and
// Mistral's Tekken (JSON with the pattern and such a list).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"

namespace sandglass {

// What a rank file does not say itself.
struct RankFileKind {
  std::string name;
  std::string regex;
  Normalization normalization = Normalization::kNone;
  std::vector<std::pair<std::string, TokenId>> special;  // names and ids
};

// Whether `contents` look like a rank file rather than JSON or a binary format.
bool LooksLikeRankFile(std::string_view contents);

// A rank file of one of the known kinds, told apart by their number of ranks: r50k_base, p50k_base,
// cl100k_base and o200k_base of OpenAI, Llama 3, Llama 4 and Qwen. Throws Error that lists them for
// any other. `where` (the file) goes into the messages.
TokenizerSpec ParseRankFile(std::string_view contents, const std::string& where);

// As above, of a kind that the caller knows.
TokenizerSpec ParseRankFile(std::string_view contents, const RankFileKind& kind,
                            const std::string& where);

// Whether `contents` look like a Tekken file.
bool LooksLikeTekken(std::string_view contents);

// Throws Error if `json` is not a Tekken file.
TokenizerSpec ParseTekken(std::string_view json, const std::string& where);

// The merges that join any two tokens whose bytes together are a token, the token of lowest rank
// first: how tiktoken and SentencePiece merge. `order` are the tokens that merges may give, by
// rank; `may_merge[id]` says which may be joined.
std::vector<Merge> MergesOfTokens(const std::vector<std::string>& tokens,
                                  const std::vector<TokenId>& order,
                                  const std::vector<bool>& may_merge);

}  // namespace sandglass
