// Byte-level byte-pair tokenizers: text to token ids and back, without loss for any bytes.
//
// A tokenizer is a plain TokenizerSpec plus the tables made from it. File formats only make or
// write a spec (tokenizer_json.h), so another format is another such file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/pre_tokenizer.h"

namespace sandglass {

using TokenId = int32_t;

// The special token that stands before every document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// Two neighbouring tokens that become one. Its rank is its place in the list of merges.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

// A pair of tokens as one number, ordered as the pairs are.
constexpr uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Whether a piece that is a token as a whole is looked up, or reached through merges like any other
// ("ignore_merges" in tokenizer.json).
enum class WholePieces { kMerge, kLookUp };

struct TokenizerSpec {
  std::string regex;                // of the pre-tokenizer
  std::vector<std::string> tokens;  // the bytes of each id; for a special token, its name
  std::vector<Merge> merges;        // the lowest rank is applied first
  std::vector<TokenId> special;     // ascending; these are never made from text
  WholePieces whole_pieces = WholePieces::kMerge;
};

// Immutable; threads may share it. To encode, each thread makes an Encoder.
class Tokenizer {
 public:
  // Throws Error if the spec cannot encode every text: a byte without a token, a merge whose result
  // is not the token of the joined bytes, no end-of-text token. `where` goes into the message.
  explicit Tokenizer(TokenizerSpec spec, const std::string& where = "");
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // From a tokenizer.json.
  static Tokenizer Load(const std::string& path);
  void Save(const std::string& path) const;

  // The canonical tokenizer.json, and its hash as 16 hexadecimal digits: the tokenizer's identity.
  std::string ToJson() const;
  const std::string& hash() const { return hash_; }

  const TokenizerSpec& spec() const { return spec_; }
  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
  int32_t vocabulary() const { return static_cast<int32_t>(spec_.tokens.size()); }
  TokenId end_of_text() const { return end_of_text_; }

  // The text of one token, empty for special tokens. Throws Error if there is no such id.
  std::string_view TokenBytes(TokenId id) const;

  // TokenBytes(id).size() for every id: the denominator of bits per byte.
  std::vector<int32_t> TokenByteCounts() const;

  // The joined text of `ids`. Throws Error for an id outside the vocabulary.
  std::string Decode(std::span<const TokenId> ids) const;

 private:
  friend class Encoder;
  struct RankedMerge {
    int32_t rank = 0;
    TokenId merged = 0;
  };

  void IndexTokens(const std::string& where);
  void IndexMerges(const std::string& where);

  TokenizerSpec spec_;
  PreTokenizer pre_tokenizer_;
  std::string hash_;
  TokenId end_of_text_ = -1;
  std::vector<bool> is_special_;
  std::vector<TokenId> byte_tokens_;                            // [256]
  std::unordered_map<uint64_t, RankedMerge> merges_;            // by PairKey
  std::unordered_map<std::string_view, TokenId> whole_pieces_;  // filled for kLookUp; keys in spec_
};

// Encodes with one thread's working memory and a cache of the words it has met.
class Encoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit Encoder(const Tokenizer& tokenizer);

  // Appends the ids of `text` to `ids`. All of it counts as text: a special token's name in it is
  // spelled out, never turned into that token.
  void Encode(std::string_view text, std::vector<TokenId>& ids);
  std::vector<TokenId> Encode(std::string_view text);

 private:
  struct CachedPiece {
    uint32_t begin = 0;  // in cached_ids_
    uint32_t count = 0;
  };
  struct PieceHash {
    using is_transparent = void;
    size_t operator()(std::string_view piece) const { return std::hash<std::string_view>{}(piece); }
  };
  // A token of the piece being merged, in a list linked by index.
  struct Symbol {
    TokenId id = 0;
    int32_t previous = 0;
    int32_t next = 0;
  };
  // A merge that was possible when it was queued.
  struct Candidate {
    int32_t rank = 0;
    int32_t position = 0;  // of the left symbol
    TokenId left = 0;
    TokenId right = 0;
    TokenId merged = 0;
  };

  void EncodePiece(std::string_view piece, std::vector<TokenId>& ids);
  void MergePiece(std::string_view piece, std::vector<TokenId>& ids);
  void Propose(int32_t position);

  const Tokenizer& tokenizer_;
  PieceReader pieces_;
  std::unordered_map<std::string, CachedPiece, PieceHash, std::equal_to<>> cache_;
  std::vector<TokenId> cached_ids_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap
};

}  // namespace sandglass
