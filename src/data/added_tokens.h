// Finding the names of added tokens in text, as Hugging Face's `tokenizers` does
// (added_vocabulary.rs): the first name from the left, the longest of those that begin there, and
// on behind it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/merge_table.h"

namespace sandglass {

// A token with a name that stands for itself.
struct AddedToken {
  TokenId id = 0;
  // Special tokens have no text: their names become ids only on request. The others are text that
  // always becomes this one token.
  bool special = true;
  // Looked for in normalized text rather than in the text as it is.
  bool normalized = false;
  // Not found where a letter, mark, digit or underscore stands right before or behind the name.
  bool single_word = false;
  // Swallow the white space before the name and behind it, which no id then stands for.
  bool strips_left = false;
  bool strips_right = false;
};

// What the name of a special token in a text means.
enum class SpecialNames { kText, kIds };

// Whether a space is white space for names that swallow some: in text whose spaces are marks
// (U+2581, shown as spaces here) it is not.
enum class Blanks { kSpaces, kMarks };

class NameFinder {
 public:
  explicit NameFinder(Blanks blanks = Blanks::kSpaces) : blanks_(blanks) {}

  // `name` must not be empty. Of equal names the first counts.
  void Add(std::string name, const AddedToken& token);

  struct Found {
    size_t begin = 0;  // with the white space that the name swallows
    size_t end = 0;
    TokenId id = 0;
  };

 private:
  friend class NameReader;
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;
  };
  // The first name in `text` from `from` on, whatever its token asks for.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  bool IsBlank(uint32_t code_point) const;
  size_t BlanksBegin(std::string_view text, size_t end) const;
  size_t BlanksEnd(std::string_view text, size_t begin) const;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  Blanks blanks_;
  bool only_special_ = true;
  std::unordered_map<std::string, AddedToken, Hash, std::equal_to<>> tokens_;
  std::array<std::vector<size_t>, 256> lengths_;  // of the names by first byte, descending
  std::vector<bool> openings_ = std::vector<bool>(size_t{1} << 16);  // first two bytes of a name
  std::array<bool, 256> single_{};                                   // names of one byte
  std::optional<unsigned char> only_first_byte_;
};

// The names in one text, from left to right.
class NameReader {
 public:
  // `finder` and `text` must outlive the reader.
  NameReader(const NameFinder& finder, std::string_view text, SpecialNames names)
      : finder_(finder), text_(text), names_(names) {}

  // The next name, or nothing. Names may overlap where one of them swallowed the white space that
  // another consists of; the text between two names is what lies from the one's end to the other's
  // begin, if that is beyond it.
  std::optional<NameFinder::Found> Next();

 private:
  const NameFinder& finder_;
  std::string_view text_;
  SpecialNames names_;
  size_t searched_ = 0;  // behind the last match, accepted or not
  size_t done_ = 0;      // the end of the last name
};

}  // namespace sandglass
