#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>

#include "base/error.h"
#include "data/tokenizer.h"

namespace sandglass {
namespace {

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

namespace {

// Calls `on_text` with the stretches of `text` between the names that the reader finds in it, and
// where each begins, and `on_name` with the ids of the names, from left to right.
void ForEachStretch(const NameFinder& finder, std::string_view text, SpecialNames names,
                    const auto& on_text, const auto& on_name) {
  NameReader reader(finder, text, names);
  size_t done = 0;
  while (const auto name = reader.Next()) {
    if (done < name->begin) on_text(text.substr(done, name->begin - done), done);
    on_name(name->id);
    done = name->end;
  }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace

void Encoder::Encode(std::string_view text, std::vector<TokenId>& ids, SpecialNames names) {
  ForEachStretch(
      tokenizer_.raw_names_, text, names,
      [&](std::string_view stretch, size_t begin) {
        EncodeStretch(stretch, begin == 0 ? Place::kFirst : Place::kLater, names, ids);
      },
      [&](TokenId id) { ids.push_back(id); });
}

// Text without names to be found before normalization.
void Encoder::EncodeStretch(std::string_view text, Place place, SpecialNames names,
                            std::vector<TokenId>& ids) {
  const TokenizerSpec& spec = tokenizer_.spec();
  if (spec.normalization != Normalization::kNone) {
    normalized_.clear();
    Normalize(text, spec.normalization, normalized_);
    text = normalized_;
  }
  if (spec.blanks_in_normalized_text() == Blanks::kMarks) {
    spaced_ = SpacesForMarks(text);
    if (spec.leading_space == LeadingSpace::kAlways) spaced_.insert(0, 1, ' ');
    text = spaced_;
  }
  ForEachStretch(
      tokenizer_.normalized_names_, text, names,
      [&](std::string_view stretch, size_t begin) {
        EncodeNormalized(stretch, begin == 0 ? place : Place::kLater, ids);
      },
      [&](TokenId id) { ids.push_back(id); });
}

void Encoder::EncodeNormalized(std::string_view text, Place place, std::vector<TokenId>& ids) {
  const TokenizerSpec& spec = tokenizer_.spec();
  if (spec.symbols == Symbols::kCharacters && spec.blanks_in_normalized_text() == Blanks::kSpaces) {
    const bool wants_space =
        spec.leading_space == LeadingSpace::kUnlessSpace ||
        (spec.leading_space == LeadingSpace::kFirstUnlessSpace && place == Place::kFirst);
    spaced_ = SpacesForMarks(text);
    if (wants_space && !spaced_.starts_with(' ')) spaced_.insert(0, 1, ' ');
    text = spaced_;
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
