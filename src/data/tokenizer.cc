#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/tokenizer_json.h"

namespace sandglass {
namespace {

// Longer pieces are rare and not worth remembering; a full cache starts again.
constexpr size_t kMaxCachedPieceBytes = 64;
constexpr size_t kMaxCachedPieces = size_t{1} << 18;

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& where)
    : spec_(std::move(spec)), pre_tokenizer_(spec_.regex, where) {
  IndexTokens(where);
  IndexMerges(where);
  hash_ = HashHex(HashBytes(ToJson()));
}

void Tokenizer::IndexTokens(const std::string& where) {
  is_special_.assign(spec_.tokens.size(), false);
  for (const TokenId id : spec_.special) {
    is_special_.at(id) = true;
    if (spec_.tokens[id] == kEndOfText) end_of_text_ = id;
  }
  if (end_of_text_ < 0) {
    throw Error({.what = fmt::format("the tokenizer has no special token {}", kEndOfText),
                 .where = where,
                 .expected = "a token of that name among the added tokens, marked special",
                 .remedy = "documents are separated by it; train a tokenizer with "
                           "`sandglass tokenizer train`"});
  }
  byte_tokens_.assign(256, -1);
  for (TokenId id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[id];
    if (is_special_[id]) continue;
    if (token.size() == 1) byte_tokens_[static_cast<unsigned char>(token[0])] = id;
    if (spec_.whole_pieces == WholePieces::kLookUp) whole_pieces_.emplace(token, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_tokens_[byte] < 0) {
      throw Error(
          {.what = fmt::format("the vocabulary has no token for the byte 0x{:02X}", byte),
           .where = where,
           .expected = "one token for each of the 256 bytes, so that any text can be encoded"});
    }
  }
}

void Tokenizer::IndexMerges(const std::string& where) {
  merges_.reserve(spec_.merges.size());
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right, merged] = spec_.merges[rank];
    if (spec_.tokens.at(left) + spec_.tokens.at(right) != spec_.tokens.at(merged)) {
      throw Error(
          {.what = fmt::format("merge {} does not give the token it names", rank),
           .where = where,
           .expected = fmt::format("tokens {} and {} joined to be token {}", left, right, merged)});
    }
    // As in the reference implementation the last of equal pairs counts.
    merges_[PairKey(left, right)] = {static_cast<int32_t>(rank), merged};
  }
}

Tokenizer Tokenizer::Load(const std::string& path) {
  return Tokenizer(ParseTokenizerJson(ReadFile(path), path), path);
}

void Tokenizer::Save(const std::string& path) const { WriteFileAtomically(path, ToJson()); }

std::string Tokenizer::ToJson() const { return FormatTokenizerJson(spec_); }

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || id >= vocabulary()) {
    throw Error({.what = fmt::format("token id {} is outside the vocabulary", id),
                 .expected = fmt::format("0 to {}", vocabulary() - 1),
                 .remedy = "use the tokenizer that the tokens were made with"});
  }
  return is_special_[id] ? std::string_view() : spec_.tokens[id];
}

std::vector<int32_t> Tokenizer::TokenByteCounts() const {
  std::vector<int32_t> counts(spec_.tokens.size());
  for (TokenId id = 0; id < vocabulary(); ++id) {
    counts[id] = static_cast<int32_t>(TokenBytes(id).size());
  }
  return counts;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += TokenBytes(id);
  return text;
}

Encoder::Encoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), pieces_(tokenizer.pre_tokenizer()) {}

std::vector<TokenId> Encoder::Encode(std::string_view text) {
  std::vector<TokenId> ids;
  Encode(text, ids);
  return ids;
}

void Encoder::Encode(std::string_view text, std::vector<TokenId>& ids) {
  pieces_.Start(text);
  while (const auto piece = pieces_.Next()) EncodePiece(*piece, ids);
}

void Encoder::EncodePiece(std::string_view piece, std::vector<TokenId>& ids) {
  if (piece.size() > kMaxCachedPieceBytes) return MergePiece(piece, ids);
  if (const auto found = cache_.find(piece); found != cache_.end()) {
    const auto first = cached_ids_.begin() + found->second.begin;
    ids.insert(ids.end(), first, first + found->second.count);
    return;
  }
  if (cache_.size() == kMaxCachedPieces) {
    cache_.clear();
    cached_ids_.clear();
  }
  const size_t begin = ids.size();
  MergePiece(piece, ids);
  cache_.emplace(piece, CachedPiece{static_cast<uint32_t>(cached_ids_.size()),
                                    static_cast<uint32_t>(ids.size() - begin)});
  cached_ids_.insert(cached_ids_.end(), ids.begin() + begin, ids.end());
}

// Applies the possible merge of lowest rank, the leftmost first, until none is left. The candidates
// wait in a heap, so a piece of n bytes takes O(n log n) however long it is.
void Encoder::MergePiece(std::string_view piece, std::vector<TokenId>& ids) {
  const auto& whole = tokenizer_.whole_pieces_;
  if (const auto found = whole.find(piece); found != whole.end()) {
    ids.push_back(found->second);
    return;
  }
  const auto size = static_cast<int32_t>(piece.size());
  symbols_.clear();
  candidates_.clear();
  for (int32_t i = 0; i < size; ++i) {
    const TokenId id = tokenizer_.byte_tokens_[static_cast<unsigned char>(piece[i])];
    symbols_.push_back({id, i - 1, i + 1 < size ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < size; ++i) Propose(i);
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  std::make_heap(candidates_.begin(), candidates_.end(), later);
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), later);
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    Symbol& left = symbols_[best.position];
    if (left.id != best.left || left.next < 0 || symbols_[left.next].id != best.right) continue;
    Symbol& right = symbols_[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[left.next].previous = best.position;
    for (const int32_t position : {left.previous, best.position}) {
      const size_t before = candidates_.size();
      Propose(position);
      if (candidates_.size() > before)
        std::push_heap(candidates_.begin(), candidates_.end(), later);
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols_[i].next) ids.push_back(symbols_[i].id);
}

// Queues the merge of the symbol at `position` with the next one, if there is such a merge.
void Encoder::Propose(int32_t position) {
  if (position < 0 || symbols_[position].next < 0) return;
  const TokenId left = symbols_[position].id;
  const TokenId right = symbols_[symbols_[position].next].id;
  if (const auto found = tokenizer_.merges_.find(PairKey(left, right));
      found != tokenizer_.merges_.end()) {
    candidates_.push_back({found->second.rank, position, left, right, found->second.merged});
  }
}

}  // namespace sandglass
