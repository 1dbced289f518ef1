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

// Names by which tokenizers call the token that stands between documents, the best choice first.
constexpr std::string_view kSeparatorNames[] = {
    kEndOfText, "<|begin_of_text|>", "<|end_of_text|>", "<s>", "</s>", "<bos>", "<eos>"};

// The token for Tokenizer::end_of_text, -1 if there is none.
TokenId FindSeparator(const TokenizerSpec& spec) {
  if (!spec.begin.empty()) return spec.begin.back();
  for (const std::string_view name : kSeparatorNames) {
    for (const AddedToken& added : spec.added) {
      if (added.special && spec.tokens[added.id] == name) return added.id;
    }
  }
  return -1;
}

}  // namespace

bool TokenizerSpec::IsSpecial(TokenId id) const {
  const auto found =
      std::lower_bound(added.begin(), added.end(), id,
                       [](const AddedToken& token, TokenId at) { return token.id < at; });
  return found != added.end() && found->id == id && found->special;
}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& where)
    : spec_(std::move(spec)), where_(where), pre_tokenizer_(spec_.splits.at(0), where) {
  IndexTokens(where);
  IndexMerges(where);
  CountBytes();
  hash_ = HashHex(HashBytes(ToJson()));
}

void Tokenizer::IndexTokens(const std::string& where) {
  is_special_.assign(spec_.tokens.size(), false);
  for (const AddedToken& added : spec_.added) {
    is_special_.at(added.id) = added.special;
  }
  end_of_text_ = FindSeparator(spec_);
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

TokenId Tokenizer::end_of_text() const {
  if (end_of_text_ >= 0) return end_of_text_;
  throw Error({.what = "the tokenizer has no special token that can stand between documents",
               .where = where_,
               .expected = fmt::format("a special token named {}, or a configured BOS token",
                                       fmt::join(kSeparatorNames, ", ")),
               .remedy = "train a tokenizer with `sandglass tokenizer train`"});
}

std::optional<TokenId> Tokenizer::FindAdded(std::string_view name) const {
  for (const AddedToken& added : spec_.added) {
    if (spec_.tokens[added.id] == name) return added.id;
  }
  return std::nullopt;
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return id >= 0 && id < vocabulary() && is_special_[id];
}

void Tokenizer::CountBytes() {
  byte_counts_.counts_.resize(spec_.tokens.size());
  for (TokenId id = 0; id < vocabulary(); ++id) {
    byte_counts_.counts_[id] = static_cast<int32_t>(TokenBytes(id).size());
  }
  if (spec_.leading_space == LeadingSpace::kNone) return;
  byte_counts_.begins_text_.resize(spec_.tokens.size());
  byte_counts_.opens_with_space_.resize(spec_.tokens.size());
  for (TokenId id = 0; id < vocabulary(); ++id) {
    byte_counts_.opens_with_space_[id] = TokenBytes(id).starts_with(' ');
  }
  // Text begins anew behind an added token, unless its leading space was there before the token was
  // found.
  if (spec_.leading_space == LeadingSpace::kFirstUnlessSpace) {
    for (const TokenId id : spec_.begin) byte_counts_.begins_text_[id] = true;
    if (end_of_text_ >= 0) byte_counts_.begins_text_[end_of_text_] = true;
  } else {
    for (const AddedToken& added : spec_.added) {
      byte_counts_.begins_text_[added.id] =
          !added.normalized || spec_.leading_space == LeadingSpace::kUnlessSpace;
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

std::string_view Tokenizer::TextAfter(TokenId previous, TokenId id) const {
  const std::string_view bytes = TokenBytes(id);
  return bytes.substr(bytes.size() - byte_counts_(previous, id));
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  TokenId previous = -1;
  for (const TokenId id : ids) {
    text += TextAfter(previous, id);
    previous = id;
  }
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
