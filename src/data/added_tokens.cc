#include "data/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "data/unicode.h"

namespace sandglass {
namespace {

// Length of the valid UTF-8 character at the front or at the back of `text`, 0 if there is none.
size_t FirstLength(std::string_view text) {
  if (text.empty()) return 0;
  const size_t length = Utf8Length(text[0]);
  return length <= text.size() && ValidUtf8Length(text.substr(0, length)) == length ? length : 0;
}
size_t LastLength(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size()); ++length) {
    const std::string_view last = text.substr(text.size() - length);
    if ((static_cast<unsigned char>(last[0]) & 0xC0) == 0x80) continue;
    return FirstLength(last) == length ? length : 0;
  }
  return 0;
}

bool BeginsWithWord(std::string_view text) {
  return FirstLength(text) > 0 && IsWordCharacter(CodePoint(text.data()));
}
bool EndsWithWord(std::string_view text) {
  const size_t length = LastLength(text);
  return length > 0 && IsWordCharacter(CodePoint(text.data() + text.size() - length));
}

}  // namespace

void NameFinder::Add(std::string name, const AddedToken& token) {
  const auto first = static_cast<unsigned char>(name[0]);
  only_first_byte_ =
      tokens_.empty() || only_first_byte_ == first ? std::optional(first) : std::nullopt;
  only_special_ = only_special_ && token.special;
  if (name.size() == 1) {
    single_[first] = true;
  } else {
    openings_[first << 8 | static_cast<unsigned char>(name[1])] = true;
  }
  std::vector<size_t>& lengths = lengths_[first];
  if (std::ranges::find(lengths, name.size()) == lengths.end()) {
    lengths.insert(std::ranges::lower_bound(lengths, name.size(), std::greater{}), name.size());
  }
  tokens_.emplace(std::move(name), token);
}

std::optional<NameFinder::Match> NameFinder::Find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i) {
    if (only_first_byte_) {
      const void* found = std::memchr(text.data() + i, *only_first_byte_, text.size() - i);
      if (found == nullptr) return std::nullopt;
      i = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    }
    const auto first = static_cast<unsigned char>(text[i]);
    if (lengths_[first].empty()) continue;
    const bool opens =
        i + 1 < text.size() && openings_[first << 8 | static_cast<unsigned char>(text[i + 1])];
    if (!opens && !single_[first]) continue;
    for (const size_t length : lengths_[first]) {
      if (length > text.size() - i) continue;
      if (const auto found = tokens_.find(text.substr(i, length)); found != tokens_.end()) {
        return Match{i, i + length, &found->second};
      }
    }
  }
  return std::nullopt;
}

bool NameFinder::IsBlank(uint32_t code_point) const {
  if (code_point == ' ') return blanks_ == Blanks::kSpaces;
  return CharacterClasses()[code_point] == CharacterClass::kSpace;
}

// Where the blanks begin that end at `end`.
size_t NameFinder::BlanksBegin(std::string_view text, size_t end) const {
  for (;;) {
    const size_t length = LastLength(text.substr(0, end));
    if (length == 0 || !IsBlank(CodePoint(text.data() + end - length))) return end;
    end -= length;
  }
}

// Where the blanks end that begin at `begin`.
size_t NameFinder::BlanksEnd(std::string_view text, size_t begin) const {
  for (;;) {
    const size_t length = FirstLength(text.substr(begin));
    if (length == 0 || !IsBlank(CodePoint(text.data() + begin))) return begin;
    begin += length;
  }
}

std::optional<NameFinder::Found> NameReader::Next() {
  if (names_ == SpecialNames::kText && finder_.only_special_) return std::nullopt;
  while (const auto match = finder_.Find(text_, searched_)) {
    const AddedToken& token = *match->token;
    searched_ = match->end;
    // A name that does not count hides those that begin inside it all the same.
    if (token.special && names_ == SpecialNames::kText) continue;
    if (token.single_word &&
        (EndsWithWord(text_.substr(0, match->begin)) || BeginsWithWord(text_.substr(match->end)))) {
      continue;
    }
    size_t begin = match->begin;
    if (token.strips_left) begin = std::max(done_, finder_.BlanksBegin(text_, begin));
    const size_t end = token.strips_right ? finder_.BlanksEnd(text_, match->end) : match->end;
    // The name before it has swallowed all of it.
    if (begin >= end) continue;
    done_ = end;
    return NameFinder::Found{begin, done_, token.id};
  }
  return std::nullopt;
}

}  // namespace sandglass
