#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>

#include "base/error.h"
#include "data/tokenizer.h"

namespace sandglass {
namespace {

// SentencePiece's mark for a space, U+2581. Text that holds it means a space by it.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Below this many symbols looking through all of them beats keeping a heap.
constexpr size_t kShortPiece = 48;

constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();

[[noreturn]] void FailByte(char byte) {
  throw Error(
      {.what = fmt::format("the text holds the byte 0x{:02X}, for which the tokenizer has no token",
                           static_cast<unsigned char>(byte)),
       .expected = "UTF-8, with characters below U+40000 and no control characters",
       .remedy = "convert the text to UTF-8, or use another tokenizer"});
}

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), pieces_(tokenizer.pre_tokenizer()) {}

std::vector<TokenId> Encoder::Encode(std::string_view text, SpecialNames names) {
  std::vector<TokenId> ids;
  Encode(text, ids, names);
  return ids;
}

std::vector<TokenId> Encoder::EncodeWithEnds(std::string_view text, SpecialNames names) {
  const auto& [begin, end] = std::tie(tokenizer_.spec().begin, tokenizer_.spec().end);
  std::vector<TokenId> ids = begin;
  Encode(text, ids, names);
  const std::span<const TokenId> encoded = std::span<const TokenId>(ids).subspan(begin.size());
  if (encoded.size() >= begin.size() && std::ranges::equal(encoded.first(begin.size()), begin)) {
    ids.erase(ids.begin(), ids.begin() + std::ssize(begin));
  }
  const std::span<const TokenId> all = ids;
  if (all.size() < end.size() || !std::ranges::equal(all.last(end.size()), end)) {
    ids.insert(ids.end(), end.begin(), end.end());
  }
  return ids;
}

void Encoder::Encode(std::string_view text, std::vector<TokenId>& ids, SpecialNames names) {
  const Tokenizer::Names& finders =
      names == SpecialNames::kText ? tokenizer_.text_names_ : tokenizer_.all_names_;
  size_t done = 0;
  while (done < text.size()) {
    const auto name = finders.raw.Find(text, done);
    const size_t end = name ? name->begin : text.size();
    EncodeStretch(text.substr(done, end - done), done == 0 ? Place::kFirst : Place::kLater,
                  finders.normalized, ids);
    if (!name) return;
    ids.push_back(name->id);
    done = name->end;
  }
}

// Text without names to be found before normalization.
void Encoder::EncodeStretch(std::string_view text, Place place, const NameFinder& names,
                            std::vector<TokenId>& ids) {
  const TokenizerSpec& spec = tokenizer_.spec();
  if (text.empty()) return;
  if (spec.normalization != Normalization::kNone) {
    normalized_.clear();
    Normalize(text, spec.normalization, normalized_);
    text = normalized_;
  }
  if (spec.symbols == Symbols::kCharacters) {
    spaced_.clear();
    if (spec.leading_space == LeadingSpace::kAlways) spaced_ += ' ';
    for (size_t mark; (mark = text.find(kSpaceMark)) != std::string_view::npos;) {
      spaced_ += text.substr(0, mark);
      spaced_ += ' ';
      text.remove_prefix(mark + kSpaceMark.size());
    }
    spaced_ += text;
    text = spaced_;
  }
  size_t done = 0;
  while (done < text.size()) {
    const auto name = names.Find(text, done);
    const size_t end = name ? name->begin : text.size();
    EncodeNormalized(text.substr(done, end - done), done == 0 ? place : Place::kLater, ids);
    if (!name) return;
    ids.push_back(name->id);
    done = name->end;
  }
}

void Encoder::EncodeNormalized(std::string_view text, Place place, std::vector<TokenId>& ids) {
  if (text.empty()) return;
  const LeadingSpace leading = tokenizer_.spec().leading_space;
  std::string with_space;
  if (text[0] != ' ' && (leading == LeadingSpace::kUnlessSpace ||
                         (leading == LeadingSpace::kFirstUnlessSpace && place == Place::kFirst))) {
    with_space.reserve(1 + text.size());
    with_space += ' ';
    with_space += text;
    text = with_space;
  }
  pieces_.Start(text);
  while (const auto piece = pieces_.Next()) EncodePiece(*piece, ids);
}

void Encoder::EncodePiece(std::string_view piece, std::vector<TokenId>& ids) {
  if (!PieceCache::Holds(piece)) return MergePiece(piece, ids);
  PieceCache::Place& place = cache_.At(piece);
  if (place.Is(piece)) {
    const std::span<const TokenId> known = place.ids();
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const size_t begin = ids.size();
  MergePiece(piece, ids);
  place.Keep(piece, std::span<const TokenId>(ids).subspan(begin));
}

// Applies the possible merge of lowest rank, the leftmost first, until none is left.
void Encoder::MergePiece(std::string_view piece, std::vector<TokenId>& ids) {
  if (const auto& whole = tokenizer_.whole_pieces_; !whole.empty() && !pieces_.cut_at_space()) {
    if (const auto found = whole.find(piece); found != whole.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  start_.clear();
  if (tokenizer_.spec().symbols == Symbols::kBytes) {
    for (const char byte : piece) {
      const TokenId id = tokenizer_.byte_tokens_[static_cast<unsigned char>(byte)];
      if (id < 0) FailByte(byte);
      start_.push_back(id);
    }
  } else {
    for (size_t i = 0; i < piece.size();) {
      // Bytes that are not valid UTF-8 come in pieces of their own.
      const size_t length = std::min(Utf8Length(piece[i]), piece.size() - i);
      AppendCharacter(piece.substr(i, length));
      i += length;
    }
  }
  if (start_.size() < kShortPiece) {
    MergeShort(ids);
  } else {
    MergeLong(ids);
  }
}

void Encoder::AppendCharacter(std::string_view character) {
  if (character.size() == Utf8Length(character[0])) {
    const auto found = tokenizer_.character_tokens_.find(CodePoint(character.data()));
    if (found != tokenizer_.character_tokens_.end()) return start_.push_back(found->second);
  }
  for (const char byte : character) {
    start_.push_back(tokenizer_.byte_tokens_[static_cast<unsigned char>(byte)]);
  }
}

// Merges start_ in place, looking through all neighbours for each merge.
void Encoder::MergeShort(std::vector<TokenId>& ids) {
  const auto rank = [&](size_t i) {
    if (i + 1 >= start_.size()) return kNoMerge;
    const MergeTable::Entry* merge = tokenizer_.merges_.Find(start_[i], start_[i + 1]);
    return merge == nullptr ? kNoMerge : merge->rank;
  };
  ranks_.resize(start_.size());
  for (size_t i = 0; i < start_.size(); ++i) ranks_[i] = rank(i);
  for (;;) {
    const auto lowest = std::ranges::min_element(ranks_);
    if (*lowest == kNoMerge) break;
    const size_t i = static_cast<size_t>(lowest - ranks_.begin());
    start_[i] = tokenizer_.spec().merges[*lowest].merged;
    start_.erase(start_.begin() + i + 1);
    ranks_.erase(ranks_.begin() + i + 1);
    ranks_[i] = rank(i);
    if (i > 0) ranks_[i - 1] = rank(i - 1);
  }
  ids.insert(ids.end(), start_.begin(), start_.end());
}

// The candidates wait in a heap, so a piece of n bytes takes O(n log n) however long it is.
void Encoder::MergeLong(std::vector<TokenId>& ids) {
  const auto size = static_cast<int32_t>(start_.size());
  symbols_.clear();
  candidates_.clear();
  for (int32_t i = 0; i < size; ++i)
    symbols_.push_back({start_[i], i - 1, i + 1 < size ? i + 1 : -1});
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
      if (candidates_.size() > before) {
        std::push_heap(candidates_.begin(), candidates_.end(), later);
      }
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols_[i].next) ids.push_back(symbols_[i].id);
}

// Queues the merge of the symbol at `position` with the next one, if there is such a merge.
void Encoder::Propose(int32_t position) {
  if (position < 0 || symbols_[position].next < 0) return;
  const TokenId left = symbols_[position].id;
  const TokenId right = symbols_[symbols_[position].next].id;
  if (const MergeTable::Entry* merge = tokenizer_.merges_.Find(left, right)) {
    candidates_.push_back({merge->rank, position, left, right, merge->merged});
  }
}

}  // namespace sandglass
