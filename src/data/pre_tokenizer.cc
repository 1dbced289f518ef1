#include "data/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <cctype>
#include <cstring>

#include "base/error.h"

namespace sandglass {
namespace {

// What common escapes mean to the reference tokenizers, as the inside of a PCRE2 character class.
// PCRE2 itself follows the Unicode version it was built with and would give other ids on other
// systems; so the letters and numbers of Unicode 15 and 16 are added to those of its own tables
// (Unicode 14 in PCRE2 10.42). tokenizers 0.23 has Unicode 16: together they agree everywhere.
struct CharacterSet {
  std::string_view escape;
  std::string_view members;
};
constexpr CharacterSet kCharacterSets[] = {
    // Unicode's White_Space; PCRE2's own \s also has U+180E.
    {R"(\s)", R"(\p{Z}\t-\r\x{85})"},
    {R"(\p{L})",
     R"(\p{L}\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3})"
     R"(\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
     R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
     R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
     R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF})"
     R"(\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB})"
     R"(\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {R"(\p{N})",
     R"(\p{N}\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59})"
     R"(\x{16130}-\x{16139}\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3})"
     R"(\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
};

// The set whose escape `text` starts with, or null.
const CharacterSet* FindCharacterSet(std::string_view text) {
  for (const CharacterSet& set : kCharacterSets) {
    if (text.starts_with(set.escape)) return &set;
  }
  return nullptr;
}

[[noreturn]] void FailRegex(std::string what, const std::string& where, const std::string& regex) {
  throw Error({.what = std::move(what),
               .where = fmt::format("{}{}regex {}", where, where.empty() ? "" : ", ", regex),
               .expected = "a pattern that means the same to Oniguruma and to PCRE2"});
}

// The same pattern for PCRE2. Both dialects agree on what is let through here.
std::string ToPcre2(const std::string& regex, const std::string& where) {
  constexpr std::string_view kSharedEscapes = "pPrntfdDx";
  constexpr std::string_view kSharedGroups = ":i!=<";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const char next = i + 1 < regex.size() ? regex[i + 1] : '\0';
    if (const CharacterSet* set = FindCharacterSet(std::string_view(regex).substr(i))) {
      out += in_class ? std::string(set->members) : fmt::format("[{}]", set->members);
      i += set->escape.size() - 1;
      continue;
    }
    if (c == '\\') {
      if (next == 'S' && !in_class) {
        out += fmt::format("[^{}]", kCharacterSets[0].members);
      } else if (std::ispunct(static_cast<unsigned char>(next)) ||
                 kSharedEscapes.find(next) != std::string_view::npos) {
        out += {c, next};
      } else {
        FailRegex(fmt::format("the escape \\{} is not supported here", next), where, regex);
      }
      ++i;
      continue;
    }
    if (in_class) {
      if (c == '[' || (c == '&' && next == '&')) {
        FailRegex("nested character classes are not supported", where, regex);
      }
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^' || c == '$') {
      FailRegex(fmt::format("the anchor {} is not supported", c), where, regex);
    } else if (c == '(' && next == '?' &&
               (i + 2 >= regex.size() || kSharedGroups.find(regex[i + 2]) == std::string::npos)) {
      FailRegex("this kind of group is not supported", where, regex);
    }
    out += c;
    if (c == '[' && next == '^') {
      out += next;
      ++i;
    }
  }
  return out;
}

std::string MessageOf(int error_code) {
  char message[256] = "unknown error";
  pcre2_get_error_message(error_code, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
  return message;
}

}  // namespace

std::string_view SplitRegex(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case SplitPattern::kCl100k:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  SANDGLASS_CHECK(false, "unknown split pattern");
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

PreTokenizer::PreTokenizer(std::string regex, const std::string& where) : regex_(std::move(regex)) {
  if (ValidUtf8Length(regex_) != regex_.size()) FailRegex("not valid UTF-8", where, "");
  const std::string translated = ToPcre2(regex_, where);
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP, &error_code, &error_offset, nullptr),
              pcre2_code_free);
  if (code_ == nullptr) {
    FailRegex("not a regular expression: " + MessageOf(error_code), where, regex_);
  }
  // Where there is no just-in-time compiler the interpreter gives the same pieces, only slower.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

PieceReader::PieceReader(const PreTokenizer& pre_tokenizer)
    : code_(pre_tokenizer.code_),
      match_data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      match_context_(pcre2_match_context_create(nullptr), pcre2_match_context_free),
      jit_stack_(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr), pcre2_jit_stack_free) {
  pcre2_jit_stack_assign(match_context_.get(), nullptr, jit_stack_.get());
}

void PieceReader::Start(std::string_view text) {
  text_ = text;
  position_ = run_begin_ = run_end_ = 0;
}

std::optional<std::string_view> PieceReader::Next() {
  if (position_ == text_.size()) return std::nullopt;
  if (position_ == run_end_) {
    run_begin_ = position_;
    run_end_ += ValidUtf8Length(text_.substr(position_));
    if (position_ == run_end_) {
      ++run_end_;
      return text_.substr(position_++, 1);
    }
  }
  const int found =
      pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()) + run_begin_,
                  run_end_ - run_begin_, position_ - run_begin_,
                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match_data_.get(), match_context_.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
    throw Error({.what = "the tokenizer's regular expression gave up: " + MessageOf(found),
                 .where = fmt::format("byte {} of a document", position_),
                 .remedy = "use one of the patterns gpt2 and cl100k, or cut the text into smaller "
                           "documents"});
  }
  size_t end = run_end_;
  if (found >= 0) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_data_.get());
    const size_t match_begin = run_begin_ + bounds[0];
    end = match_begin > position_ ? match_begin : run_begin_ + bounds[1];
  }
  const std::string_view piece = text_.substr(position_, end - position_);
  position_ = end;
  return piece;
}

}  // namespace sandglass
