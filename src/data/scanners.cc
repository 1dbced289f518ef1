#include "data/scanners.h"

#include "data/split_patterns.h"
#include "data/unicode.h"

namespace sandglass {
namespace {

using enum CharacterClass;

// Sets of classes as bits.
using ClassSet = uint32_t;
constexpr ClassSet SetOf(CharacterClass c) { return ClassSet{1} << static_cast<int>(c); }
constexpr ClassSet kLetters =
    SetOf(kUpper) | SetOf(kTitle) | SetOf(kLower) | SetOf(kModifier) | SetOf(kOtherLetter);
constexpr ClassSet kNumbers = SetOf(kNumber);
constexpr ClassSet kSpaces = SetOf(kSpace);
constexpr ClassSet kMarks = SetOf(kMark);
constexpr ClassSet kAll = (SetOf(kSpace) << 1) - 1;
constexpr ClassSet kRest = kAll & ~(kLetters | kNumbers | kSpaces);
// The two halves of a word in o200k: capitals first, small letters behind; letters without case
// and marks are in both.
constexpr ClassSet kCaseless = SetOf(kModifier) | SetOf(kOtherLetter) | kMarks;
constexpr ClassSet kHeads = SetOf(kUpper) | SetOf(kTitle) | kCaseless;
constexpr ClassSet kTails = SetOf(kLower) | kCaseless;

// Text between two positions, read character by character.
class Text {
 public:
  Text(const char* text, size_t end) : text_(text), end_(end), classes_(CharacterClasses()) {}

  size_t end() const { return end_; }
  bool AtEnd(size_t at) const { return at == end_; }
  char Byte(size_t at) const { return text_[at]; }
  size_t After(size_t at) const { return at + Utf8Length(text_[at]); }
  bool Is(size_t at, ClassSet set) const {
    return at < end_ && (SetOf(classes_[CodePoint(text_ + at)]) & set) != 0;
  }
  bool IsLineEnd(size_t at) const { return at < end_ && (text_[at] == '\n' || text_[at] == '\r'); }
  // The end of the characters of `set` from `at` on.
  size_t Run(size_t at, ClassSet set) const {
    while (Is(at, set)) at = After(at);
    return at;
  }

 private:
  const char* text_;
  size_t end_;
  const CharacterClass* classes_;
};

enum class Case { kExact, kAny };

// The end of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at` if there is none. In any case the
// long s of U+017F counts as an s.
template <Case letter_case>
size_t Contraction(const Text& text, size_t at) {
  if (text.end() - at < 2 || text.Byte(at) != '\'') return at;
  const auto lower = [&](size_t i) -> char {
    if (i >= text.end()) return '\0';
    const char c = text.Byte(i);
    return letter_case == Case::kAny && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = lower(at + 1);
  const char second = lower(at + 2);
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return second == 'e' ? at + 3 : at;
    case 'l':
      return second == 'l' ? at + 3 : at;
    case '\xC5':
      return letter_case == Case::kAny && second == '\xBF' ? at + 3 : at;
    default:
      return at;
  }
}

enum class LineEnds { kAsSpace, kApart };

// The end of the white space at `at`, which leaves one character for the word that follows. Line
// ends kApart: a piece ends with the last of them.
template <LineEnds line_ends>
size_t WhiteSpace(const Text& text, size_t at) {
  size_t end = at;
  size_t last = at;             // where the last character begins
  size_t behind_line_end = at;  // behind the last line end
  for (; text.Is(end, kSpaces); end = text.After(end)) {
    if (line_ends == LineEnds::kApart && text.IsLineEnd(end)) behind_line_end = end + 1;
    last = end;
  }
  if (behind_line_end > at) return behind_line_end;
  return text.AtEnd(end) || last == at ? end : last;
}

// kGpt2Regex.
size_t ScanGpt2(const char* data, size_t at, size_t end) {
  const Text text(data, end);
  if (const size_t contraction = Contraction<Case::kExact>(text, at); contraction > at) {
    return contraction;
  }
  const size_t word = text.Byte(at) == ' ' ? at + 1 : at;
  for (const ClassSet set : {kLetters, kNumbers, kRest}) {
    if (text.Is(word, set)) return text.Run(text.After(word), set);
  }
  return WhiteSpace<LineEnds::kAsSpace>(text, at);
}

// Up to `most` numbers.
size_t Numbers(const Text& text, size_t at, int most) {
  for (int i = 0; i < most && text.Is(at, kNumbers); ++i) at = text.After(at);
  return at;
}

// A character that may stand before a word: anything but a letter, a number or a line end.
bool MayLead(const Text& text, size_t at) {
  return text.Is(at, kAll & ~(kLetters | kNumbers)) && !text.IsLineEnd(at);
}

// ` ?[^\s\p{L}\p{N}]+[\r\n]*`, with a slash among the last ones for kWithSlash; `at` if no match.
enum class Closing { kLineEnds, kLineEndsAndSlashes };
template <Closing closing>
size_t Punctuation(const Text& text, size_t at) {
  const size_t mark = text.Byte(at) == ' ' ? at + 1 : at;
  if (!text.Is(mark, kRest)) return at;
  size_t end = text.Run(text.After(mark), kRest);
  while (text.IsLineEnd(end) ||
         (closing == Closing::kLineEndsAndSlashes && !text.AtEnd(end) && text.Byte(end) == '/')) {
    ++end;
  }
  return end;
}

// kCl100kRegex (up to three numbers) and kQwen2Regex (one).
template <int most_numbers>
size_t ScanCl100k(const char* data, size_t at, size_t end) {
  const Text text(data, end);
  if (const size_t contraction = Contraction<Case::kAny>(text, at); contraction > at) {
    return contraction;
  }
  if (text.Is(at, kLetters)) return text.Run(text.After(at), kLetters);
  if (text.Is(at, kNumbers)) return Numbers(text, at, most_numbers);
  if (const size_t word = text.After(at); text.Is(word, kLetters) && MayLead(text, at)) {
    return text.Run(text.After(word), kLetters);
  }
  if (const size_t marks = Punctuation<Closing::kLineEnds>(text, at); marks > at) return marks;
  return WhiteSpace<LineEnds::kApart>(text, at);
}

// [heads]*[tails]+ as a backtracking matcher finds it; `at` if there is no match.
size_t HeadsThenTails(const Text& text, size_t at) {
  size_t heads = at;
  size_t behind_last_tail = at;  // behind the last of the heads that is a tail too
  for (; text.Is(heads, kHeads); heads = text.After(heads)) {
    if (text.Is(heads, kCaseless)) behind_last_tail = text.After(heads);
  }
  const size_t tails = text.Run(heads, kTails);
  return tails > heads ? tails : behind_last_tail;
}

// [heads]+[tails]*; `at` if there is no match.
size_t HeadsMaybeTails(const Text& text, size_t at) {
  const size_t heads = text.Run(at, kHeads);
  return heads > at ? text.Run(heads, kTails) : at;
}

// o200k's words: [^\r\n\p{L}\p{N}]? before [heads]*[tails]+ or else before [heads]+[tails]*.
size_t CasedWord(const Text& text, size_t at) {
  const bool may_lead = MayLead(text, at);
  for (const auto& match : {HeadsThenTails, HeadsMaybeTails}) {
    if (may_lead) {
      const size_t begin = text.After(at);
      if (const size_t end = match(text, begin); end > begin) return end;
    }
    if (const size_t end = match(text, at); end > at) return end;
  }
  return at;
}

enum class Contractions { kWithWord, kNone };

// kO200kRegex and kTekkenRegex.
template <Contractions contractions, int most_numbers>
size_t ScanO200k(const char* data, size_t at, size_t end) {
  const Text text(data, end);
  if (const size_t word = CasedWord(text, at); word > at) {
    return contractions == Contractions::kWithWord ? Contraction<Case::kAny>(text, word) : word;
  }
  if (text.Is(at, kNumbers)) return Numbers(text, at, most_numbers);
  if (const size_t marks = Punctuation<Closing::kLineEndsAndSlashes>(text, at); marks > at) {
    return marks;
  }
  return WhiteSpace<LineEnds::kApart>(text, at);
}

// kNumberRegex and kThreeNumbersRegex.
template <int most_numbers>
size_t ScanNumbers(const char* data, size_t at, size_t end) {
  const Text text(data, end);
  if (text.Is(at, kNumbers)) return Numbers(text, at, most_numbers);
  return text.Run(at, kAll & ~kNumbers);
}

constexpr NamedScanner kScanners[] = {
    {kGpt2Regex, ScanGpt2},
    {kCl100kRegex, ScanCl100k<3>},
    {kQwen2Regex, ScanCl100k<1>},
    {kO200kRegex, ScanO200k<Contractions::kWithWord, 3>},
    {kTekkenRegex, ScanO200k<Contractions::kNone, 1>},
    {kNumberRegex, ScanNumbers<1>},
    {kThreeNumbersRegex, ScanNumbers<3>},
};

}  // namespace

Scanner FindScanner(std::string_view regex) {
  for (const NamedScanner& named : kScanners) {
    if (named.regex == regex) return named.scanner;
  }
  return nullptr;
}

std::span<const NamedScanner> AllScanners() { return kScanners; }

}  // namespace sandglass
