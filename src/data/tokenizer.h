// Byte-pair tokenizers: text to token ids and back.
//
// A tokenizer is a plain TokenizerSpec plus the tables made from it. File formats only make or
// write a spec (tokenizer_json.h), so another format is another such file.
//
// Text goes through these stages, each described by fields of the spec:
//   added tokens are cut out; the text between them is normalized, gets a leading space where the
//   kind wants one, is cut into pieces by the splits, and each piece is merged into tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/merge_table.h"
#include "data/piece_cache.h"
#include "data/pre_tokenizer.h"
#include "data/unicode.h"

namespace sandglass {

// The special token that stands before every document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// Two neighbouring tokens that become one. Its rank is its place in the list of merges.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

// Whether a piece that is a token as a whole is looked up, or reached through merges like any other
// ("ignore_merges" in tokenizer.json).
enum class WholePieces { kMerge, kLookUp };

// What a piece is before its first merge.
//   kBytes       one token per byte (GPT-2 and all that followed it)
//   kCharacters  one token per character, and the tokens of its bytes where it has none
//                (SentencePiece with byte fallback)
enum class Symbols { kBytes, kCharacters };

// Whether text gets a space in front, so that its first word is the token it is elsewhere.
//   kAlways             every stretch of text between added tokens does
//   kUnlessSpace        as kAlways, but not one that begins with a space already
//   kFirstUnlessSpace   as kUnlessSpace, and only at the very beginning
enum class LeadingSpace { kNone, kAlways, kUnlessSpace, kFirstUnlessSpace };

// SentencePiece's mark for a space, U+2581. Text that holds it means a space by it.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// `text` with a space for each mark, and with a mark for each space.
std::string SpacesForMarks(std::string_view text);
std::string MarksForSpaces(std::string_view text);

struct TokenizerSpec {
  Symbols symbols = Symbols::kBytes;
  Normalization normalization = Normalization::kNone;
  LeadingSpace leading_space = LeadingSpace::kNone;  // with kCharacters
  // Regular expressions that cut the text, each the pieces of the one before; what a pattern
  // matches is a piece, and so is what lies between two matches.
  std::vector<std::string> splits;
  // The bytes of each id; for an added token, its name; empty where an id is not in use.
  std::vector<std::string> tokens;
  std::vector<TokenId> byte_fallback;  // the token of each byte, with kCharacters: [256]
  std::vector<Merge> merges;           // the lowest rank is applied first
  std::vector<AddedToken> added;       // by ascending id
  WholePieces whole_pieces = WholePieces::kMerge;
  // Special tokens that the tokenizer is configured to put around a text (BOS, EOS).
  std::vector<TokenId> begin;
  std::vector<TokenId> end;

  // What spaces are where names are looked for in normalized text: the normalizer has turned them
  // into marks already, or the pre-tokenizer will (a leading space of its own tells).
  Blanks blanks_in_normalized_text() const;

  const AddedToken* FindAdded(TokenId id) const;  // null if it is none
  bool IsAdded(TokenId id) const { return FindAdded(id) != nullptr; }
  bool IsSpecial(TokenId id) const;
};

// How many bytes of text each token of a stream stands for: the denominator of bits per byte.
class TokenByteCounts {
 public:
  // False for ids whose tokenizer is not at hand.
  bool known() const { return !counts_.empty(); }
  // The bytes that `id` adds to the text when it stands behind `previous` (-1: nothing). Special
  // tokens add none, and a leading space that the tokenizer put in front of a text is not counted.
  int64_t operator()(TokenId previous, TokenId id) const {
    const bool added_space =
        !begins_text_.empty() && opens_with_space_[id] && (previous < 0 || begins_text_[previous]);
    return counts_[id] - (added_space ? 1 : 0);
  }

 private:
  friend class Tokenizer;
  std::vector<int32_t> counts_;
  // Empty for tokenizers without a leading space.
  std::vector<bool> begins_text_;  // the token behind it begins a text
  std::vector<bool> opens_with_space_;
};

// Immutable; threads may share it. To encode, each thread makes an Encoder.
class Tokenizer {
 public:
  // Throws Error if the spec cannot encode every text (a byte without a token), contradicts itself
  // (a merge whose result is not the token of the joined bytes), or names ids that do not exist.
  // `where` goes into the message.
  explicit Tokenizer(TokenizerSpec spec, const std::string& where = "");
  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // From a file in any of the formats: tokenizer.json, tiktoken's rank files, Tekken,
  // SentencePiece.
  static Tokenizer Load(const std::string& path);
  void Save(const std::string& path) const;

  // The canonical tokenizer.json, and its hash as 16 hexadecimal digits: the tokenizer's identity.
  std::string ToJson() const;
  const std::string& hash() const { return hash_; }

  const TokenizerSpec& spec() const { return spec_; }
  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
  int32_t vocabulary() const { return static_cast<int32_t>(spec_.tokens.size()); }

  // The special token that stands before every document of a token stream: the one that the
  // tokenizer is configured to put in front of a text, or else kEndOfText or another of the usual
  // names. Throws Error if it has none of these.
  TokenId end_of_text() const;

  // The added token of this name, or nothing.
  std::optional<TokenId> FindAdded(std::string_view name) const;
  bool IsSpecial(TokenId id) const;

  // The text of one token, empty for special tokens. Throws Error if there is no such id.
  std::string_view TokenBytes(TokenId id) const;

  // What `id` adds to the text when it stands behind `previous` (-1: nothing): as TokenBytes, less
  // the leading space that the tokenizer puts in front of a text.
  std::string_view TextAfter(TokenId previous, TokenId id) const;

  // The size of TextAfter for every pair of ids.
  const TokenByteCounts& byte_counts() const { return byte_counts_; }

  // The joined text of `ids`. Throws Error for an id outside the vocabulary.
  std::string Decode(std::span<const TokenId> ids) const;

 private:
  friend class Encoder;

  void IndexTokens(const std::string& where);
  void IndexCharacters(const std::string& where);
  void IndexMerges(const std::string& where);
  void IndexNames();
  void CountBytes();
  ByteSet BytesBeforeSpaces() const;

  TokenizerSpec spec_;
  std::string where_;
  PreTokenizer pre_tokenizer_;
  std::string hash_;
  TokenId end_of_text_ = -1;
  TokenByteCounts byte_counts_;
  std::vector<bool> is_special_;
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_map<uint32_t, TokenId> character_tokens_;  // with kCharacters; by code point
  MergeTable merges_;
  std::unordered_map<std::string_view, TokenId> whole_pieces_;  // filled for kLookUp; keys in spec_
  NameFinder raw_names_;                                        // to be found in text as it is
  NameFinder normalized_names_;                                 // to be found once it is normalized
};

// Encodes with one thread's working memory and a cache of the words it has met.
class Encoder {
 public:
  // `tokenizer` must outlive the encoder.
  explicit Encoder(const Tokenizer& tokenizer);

  // Appends the ids of `text` to `ids`. Unless `names` says otherwise all of it counts as text: a
  // special token's name in it is spelled out, never turned into that token.
  void Encode(std::string_view text, std::vector<TokenId>& ids,
              SpecialNames names = SpecialNames::kText);
  std::vector<TokenId> Encode(std::string_view text, SpecialNames names = SpecialNames::kText);

  // As Encode, with the special tokens around the text that the tokenizer is configured to put
  // there (TokenizerSpec::begin and end), each once: names in the text that became them already are
  // not doubled.
  std::vector<TokenId> EncodeWithEnds(std::string_view text,
                                      SpecialNames names = SpecialNames::kText);

 private:
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
  enum class Place { kFirst, kLater };

  void EncodeStretch(std::string_view text, Place place, SpecialNames names,
                     std::vector<TokenId>& ids);
  void EncodeNormalized(std::string_view text, Place place, std::vector<TokenId>& ids);
  void EncodePiece(std::string_view piece, std::vector<TokenId>& ids);
  void MergePiece(std::string_view piece, std::vector<TokenId>& ids);
  void MergeShort(std::vector<TokenId>& ids);
  void MergeLong(std::vector<TokenId>& ids);
  void AppendCharacter(std::string_view character);
  void Propose(int32_t position);

  const Tokenizer& tokenizer_;
  PieceReader pieces_;
  PieceCache cache_;
  std::string normalized_;
  std::string spaced_;
  std::vector<TokenId> start_;  // the tokens that merging a piece begins with
  std::vector<int32_t> ranks_;  // of the merge of each with the next one
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap
};

}  // namespace sandglass
