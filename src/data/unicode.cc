#include "data/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace sandglass {
namespace {

using enum CharacterClass;

struct ClassRange {
  uint32_t first = 0;
  uint32_t last = 0;
  CharacterClass character_class = kOther;
};

// Characters that were assigned in Unicode 15 and 16; none changed its class since 14. Made from
// the properties that tokenizers 0.23.3 and tiktoken 0.14.0 show.
constexpr ClassRange kAddedSince14[] = {{0x897, 0x897, kMark},
                                        {0xCF3, 0xCF3, kMark},
                                        {0xECE, 0xECE, kMark},
                                        {0x1B4E, 0x1B4F, kPunctuation},
                                        {0x1B7F, 0x1B7F, kPunctuation},
                                        {0x1C89, 0x1C89, kUpper},
                                        {0x1C8A, 0x1C8A, kLower},
                                        {0x2427, 0x2429, kSymbol},
                                        {0x2FFC, 0x2FFF, kSymbol},
                                        {0x31E4, 0x31E5, kSymbol},
                                        {0x31EF, 0x31EF, kSymbol},
                                        {0xA7CB, 0xA7CC, kUpper},
                                        {0xA7CD, 0xA7CD, kLower},
                                        {0xA7DA, 0xA7DA, kUpper},
                                        {0xA7DB, 0xA7DB, kLower},
                                        {0xA7DC, 0xA7DC, kUpper},
                                        {0x105C0, 0x105F3, kOtherLetter},
                                        {0x10D40, 0x10D49, kNumber},
                                        {0x10D4A, 0x10D4D, kOtherLetter},
                                        {0x10D4E, 0x10D4E, kModifier},
                                        {0x10D4F, 0x10D4F, kOtherLetter},
                                        {0x10D50, 0x10D65, kUpper},
                                        {0x10D69, 0x10D6D, kMark},
                                        {0x10D6E, 0x10D6E, kPunctuation},
                                        {0x10D6F, 0x10D6F, kModifier},
                                        {0x10D70, 0x10D85, kLower},
                                        {0x10D8E, 0x10D8F, kSymbol},
                                        {0x10EC2, 0x10EC4, kOtherLetter},
                                        {0x10EFC, 0x10EFF, kMark},
                                        {0x1123F, 0x11240, kOtherLetter},
                                        {0x11241, 0x11241, kMark},
                                        {0x11380, 0x11389, kOtherLetter},
                                        {0x1138B, 0x1138B, kOtherLetter},
                                        {0x1138E, 0x1138E, kOtherLetter},
                                        {0x11390, 0x113B5, kOtherLetter},
                                        {0x113B7, 0x113B7, kOtherLetter},
                                        {0x113B8, 0x113C0, kMark},
                                        {0x113C2, 0x113C2, kMark},
                                        {0x113C5, 0x113C5, kMark},
                                        {0x113C7, 0x113CA, kMark},
                                        {0x113CC, 0x113D0, kMark},
                                        {0x113D1, 0x113D1, kOtherLetter},
                                        {0x113D2, 0x113D2, kMark},
                                        {0x113D3, 0x113D3, kOtherLetter},
                                        {0x113D4, 0x113D5, kPunctuation},
                                        {0x113D7, 0x113D8, kPunctuation},
                                        {0x113E1, 0x113E2, kMark},
                                        {0x116D0, 0x116E3, kNumber},
                                        {0x11B00, 0x11B09, kPunctuation},
                                        {0x11BC0, 0x11BE0, kOtherLetter},
                                        {0x11BE1, 0x11BE1, kPunctuation},
                                        {0x11BF0, 0x11BF9, kNumber},
                                        {0x11F00, 0x11F01, kMark},
                                        {0x11F02, 0x11F02, kOtherLetter},
                                        {0x11F03, 0x11F03, kMark},
                                        {0x11F04, 0x11F10, kOtherLetter},
                                        {0x11F12, 0x11F33, kOtherLetter},
                                        {0x11F34, 0x11F3A, kMark},
                                        {0x11F3E, 0x11F42, kMark},
                                        {0x11F43, 0x11F4F, kPunctuation},
                                        {0x11F50, 0x11F59, kNumber},
                                        {0x11F5A, 0x11F5A, kMark},
                                        {0x1342F, 0x1342F, kOtherLetter},
                                        {0x13440, 0x13440, kMark},
                                        {0x13441, 0x13446, kOtherLetter},
                                        {0x13447, 0x13455, kMark},
                                        {0x13460, 0x143FA, kOtherLetter},
                                        {0x16100, 0x1611D, kOtherLetter},
                                        {0x1611E, 0x1612F, kMark},
                                        {0x16130, 0x16139, kNumber},
                                        {0x16D40, 0x16D42, kModifier},
                                        {0x16D43, 0x16D6A, kOtherLetter},
                                        {0x16D6B, 0x16D6C, kModifier},
                                        {0x16D6D, 0x16D6F, kPunctuation},
                                        {0x16D70, 0x16D79, kNumber},
                                        {0x18CFF, 0x18CFF, kOtherLetter},
                                        {0x1B132, 0x1B132, kOtherLetter},
                                        {0x1B155, 0x1B155, kOtherLetter},
                                        {0x1CC00, 0x1CCEF, kSymbol},
                                        {0x1CCF0, 0x1CCF9, kNumber},
                                        {0x1CD00, 0x1CEB3, kSymbol},
                                        {0x1D2C0, 0x1D2D3, kNumber},
                                        {0x1DF25, 0x1DF2A, kLower},
                                        {0x1E030, 0x1E06D, kModifier},
                                        {0x1E08F, 0x1E08F, kMark},
                                        {0x1E4D0, 0x1E4EA, kOtherLetter},
                                        {0x1E4EB, 0x1E4EB, kModifier},
                                        {0x1E4EC, 0x1E4EF, kMark},
                                        {0x1E4F0, 0x1E4F9, kNumber},
                                        {0x1E5D0, 0x1E5ED, kOtherLetter},
                                        {0x1E5EE, 0x1E5EF, kMark},
                                        {0x1E5F0, 0x1E5F0, kOtherLetter},
                                        {0x1E5F1, 0x1E5FA, kNumber},
                                        {0x1E5FF, 0x1E5FF, kPunctuation},
                                        {0x1F6DC, 0x1F6DC, kSymbol},
                                        {0x1F774, 0x1F776, kSymbol},
                                        {0x1F77B, 0x1F77F, kSymbol},
                                        {0x1F7D9, 0x1F7D9, kSymbol},
                                        {0x1F8B2, 0x1F8BB, kSymbol},
                                        {0x1F8C0, 0x1F8C1, kSymbol},
                                        {0x1FA75, 0x1FA77, kSymbol},
                                        {0x1FA87, 0x1FA89, kSymbol},
                                        {0x1FA8F, 0x1FA8F, kSymbol},
                                        {0x1FAAD, 0x1FAAF, kSymbol},
                                        {0x1FABB, 0x1FABF, kSymbol},
                                        {0x1FAC6, 0x1FAC6, kSymbol},
                                        {0x1FACE, 0x1FACF, kSymbol},
                                        {0x1FADA, 0x1FADC, kSymbol},
                                        {0x1FADF, 0x1FADF, kSymbol},
                                        {0x1FAE8, 0x1FAE9, kSymbol},
                                        {0x1FAF7, 0x1FAF8, kSymbol},
                                        {0x1FBCB, 0x1FBEF, kSymbol},
                                        {0x2B739, 0x2B739, kOtherLetter},
                                        {0x2EBF0, 0x2EE5D, kOtherLetter},
                                        {0x31350, 0x323AF, kOtherLetter}};

// The letters of a property's name and the classes that have it.
bool HasProperty(CharacterClass character_class, std::string_view property) {
  switch (character_class) {
    case kUpper:
      return property == "L" || property == "Lu";
    case kTitle:
      return property == "L" || property == "Lt";
    case kLower:
      return property == "L" || property == "Ll";
    case kModifier:
      return property == "L" || property == "Lm";
    case kOtherLetter:
      return property == "L" || property == "Lo";
    case kMark:
      return property == "M";
    case kNumber:
      return property == "N";
    case kPunctuation:
      return property == "P";
    case kSymbol:
      return property == "S";
    case kOther:
    case kSpace:
      return false;
  }
  return false;
}

CharacterClass ClassOfCategory(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
      return kUpper;
    case UTF8PROC_CATEGORY_LT:
      return kTitle;
    case UTF8PROC_CATEGORY_LL:
      return kLower;
    case UTF8PROC_CATEGORY_LM:
      return kModifier;
    case UTF8PROC_CATEGORY_LO:
      return kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    default:
      return kOther;
  }
}

constexpr uint32_t kCodePoints = 0x110000;

std::vector<CharacterClass> MakeClasses() {
  std::vector<CharacterClass> classes(kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    classes[c] = ClassOfCategory(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
  }
  for (const ClassRange& range : kAddedSince14) {
    for (uint32_t c = range.first; c <= range.last; ++c) classes[c] = range.character_class;
  }
  // The control characters that are white space.
  for (uint32_t c = 0x09; c <= 0x0D; ++c) classes[c] = kSpace;
  classes[0x85] = kSpace;
  return classes;
}

// Characters below are the same in every normal form and never combine with what is before them.
constexpr unsigned char kFirstLeadThatMayChange[] = {
    0xFF,  // kNone
    0xCC,  // kNfc: from U+0300
    0xC2,  // kNfkc: from U+0080 (the no-break space, for one)
};

// Appends the normal form of valid UTF-8.
void NormalizeValid(std::string_view text, Normalization form, std::string& out) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_COMPOSE | (form == Normalization::kNfkc ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* normal = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &normal, options);
  SANDGLASS_CHECK(size >= 0, "text that was found to be valid is not");
  out.append(reinterpret_cast<const char*>(normal), static_cast<size_t>(size));
  std::free(normal);
}

}  // namespace

const CharacterClass* CharacterClasses() {
  static const std::vector<CharacterClass> classes = MakeClasses();
  return classes.data();
}

bool IsWordCharacter(uint32_t code_point) {
  const auto within = [code_point](uint32_t first, uint32_t last) {
    return first <= code_point && code_point <= last;
  };
  switch (CharacterClasses()[code_point]) {
    case kUpper:
    case kTitle:
    case kLower:
    case kModifier:
    case kOtherLetter:
    case kMark:
      return true;
    case kNumber:
      // Of those that were added since Unicode 14, the Kaktovik numerals alone are no digits.
      return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) != UTF8PROC_CATEGORY_NO &&
             !within(0x1D2C0, 0x1D2D3);
    case kPunctuation:
      return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_PC;
    case kSymbol:  // letters in circles and squares
      return within(0x24B6, 0x24E9) || within(0x1F130, 0x1F149) || within(0x1F150, 0x1F169) ||
             within(0x1F170, 0x1F189);
    case kOther:
      return within(0x200C, 0x200D);  // the joiners
    case kSpace:
      return false;
  }
  return false;
}

std::string AddedSinceUnicode14(std::string_view property) {
  std::string ranges;
  for (const ClassRange& range : kAddedSince14) {
    if (!HasProperty(range.character_class, property)) continue;
    ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.last);
  }
  return ranges;
}

void Normalize(std::string_view text, Normalization form, std::string& out) {
  const unsigned char first_lead = kFirstLeadThatMayChange[static_cast<size_t>(form)];
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t done = 0;
  for (size_t i = 0; form != Normalization::kNone && i < text.size();) {
    if (byte(i) < first_lead) {
      ++i;
      continue;
    }
    // A stretch that may change, with the character before it, which it may combine with, up to
    // the next characters that cannot change; two of them, since one may combine.
    size_t begin = i;
    while (begin > done && begin > 0) {
      --begin;
      if ((byte(begin) & 0xC0) != 0x80) break;
    }
    const size_t valid = i + ValidUtf8Length(text.substr(i));
    size_t end = i;
    while (end < valid && byte(end) >= 0x80) end += Utf8Length(text[end]);
    if (end == i) {  // not valid UTF-8
      ++i;
      continue;
    }
    // What stands before the stretch is valid where the stretch itself was reached through it.
    if (ValidUtf8Length(text.substr(begin, i - begin)) != i - begin) begin = i;
    out += text.substr(done, begin - done);
    NormalizeValid(text.substr(begin, end - begin), form, out);
    done = i = end;
  }
  out += text.substr(done);
}
size_t ValidUtf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t i = 0;
  while (i < text.size()) {
    // Eight ASCII bytes at a time, since most text is mostly that.
    uint64_t word = 0;
    while (i + 8 <= text.size()) {
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      i += 8;
    }
    if (i == text.size()) break;
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    size_t length = 0;
    unsigned char low = 0x80;   // bounds of the second byte: they exclude overlong forms,
    unsigned char high = 0xBF;  // surrogates and what lies beyond U+10FFFF
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (length == 0 || i + length > text.size() || byte(i + 1) < low || byte(i + 1) > high) break;
    bool continued = true;
    for (size_t k = 2; k < length; ++k) continued &= (byte(i + k) & 0xC0) == 0x80;
    if (!continued) break;
    i += length;
  }
  return i;
}

}  // namespace sandglass
