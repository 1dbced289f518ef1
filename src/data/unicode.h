// What tokenizers need to know about Unicode, fixed at version 16 on every system.
//
// Regular-expression and normalization libraries follow the version of the system they were built
// on, and would give other ids elsewhere. The reference tokenizers (tokenizers 0.23, tiktoken 0.14)
// have Unicode 16.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sandglass {

// General categories as far as tokenizers tell them apart, and White_Space, which shares no
// character with them.
enum class CharacterClass : uint8_t {
  kOther,
  kUpper,        // Lu
  kTitle,        // Lt
  kLower,        // Ll
  kModifier,     // Lm
  kOtherLetter,  // Lo
  kMark,
  kNumber,
  kPunctuation,
  kSymbol,
  kSpace,
};

// The class of every character, by code point: [0x110000].
const CharacterClass* CharacterClasses();

// Whether `\w` of the Rust regular expressions matches it: letters, marks, decimal and letter
// numbers, connecting punctuation, and what else is Alphabetic or Join_Control.
bool IsWordCharacter(uint32_t code_point);

// The characters that Unicode 15 and 16 added to a property such as "L", "Lu" or "N", as ranges for
// the inside of a PCRE2 character class; "" for properties that are not listed here.
std::string AddedSinceUnicode14(std::string_view property);

// Length of the longest prefix of `text` that is valid UTF-8 (Unicode, table 3-7).
size_t ValidUtf8Length(std::string_view text);

// Length in bytes of the UTF-8 character that begins with `lead`.
constexpr size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point of the valid UTF-8 character at `at`.
constexpr uint32_t CodePoint(const char* at) {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  switch (Utf8Length(*at)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

enum class Normalization { kNone, kNfc, kNfkc };

// Appends the normal form of `text` to `out`. Bytes that are not valid UTF-8 are kept as they are.
void Normalize(std::string_view text, Normalization form, std::string& out);

}  // namespace sandglass
