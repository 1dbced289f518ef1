#include "data/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "data/split_patterns.h"
#include "data/unicode.h"

namespace sandglass {
namespace {

// The inside of a PCRE2 character class for the escape that `text` starts with, if it is one whose
// meaning depends on the Unicode version or on the library; `length` is the escape's.
struct CharacterSet {
  size_t length = 0;
  std::string members;
};
std::optional<CharacterSet> FindCharacterSet(std::string_view text) {
  // Unicode's White_Space; PCRE2's own \s also has U+180E.
  if (text.starts_with("\\s")) return CharacterSet{2, R"(\p{Z}\t-\r\x{85})"};
  if (!text.starts_with("\\p{")) return std::nullopt;
  const size_t close = text.find('}');
  if (close == std::string_view::npos) return std::nullopt;
  const std::string added = AddedSinceUnicode14(text.substr(3, close - 3));
  if (added.empty()) return std::nullopt;
  return CharacterSet{close + 1, std::string(text.substr(0, close + 1)) + added};
}

[[noreturn]] void FailRegex(std::string what, const std::string& where, const std::string& regex) {
  throw Error({.what = std::move(what),
               .where = fmt::format("{}{}regex {}", where, where.empty() ? "" : ", ", regex),
               .expected = "a pattern that means the same to Oniguruma and to PCRE2"});
}

// The same pattern for PCRE2. Both dialects agree on what is let through here.
std::string ToPcre2(const std::string& regex, const std::string& where) {
  constexpr std::string_view kSharedEscapes = "pPrntfdDxz";
  constexpr std::string_view kSharedGroups = ":i!=<";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const char next = i + 1 < regex.size() ? regex[i + 1] : '\0';
    if (const auto set = FindCharacterSet(std::string_view(regex).substr(i))) {
      out += in_class ? set->members : fmt::format("[{}]", set->members);
      i += set->length - 1;
      continue;
    }
    if (c == '\\') {
      if (next == 'S' && !in_class) {
        out += fmt::format("[^{}]", FindCharacterSet("\\s")->members);
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
    } else if (c == '}' && next == '+') {
      FailRegex("the possessive quantifier {...}+ is not supported", where, regex);
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

std::shared_ptr<pcre2_real_code_8> Compile(const std::string& regex, const std::string& where) {
  if (ValidUtf8Length(regex) != regex.size()) FailRegex("not valid UTF-8", where, "");
  const std::string translated = ToPcre2(regex, where);
  int error_code = 0;
  PCRE2_SIZE error_offset = 0;
  const std::shared_ptr<pcre2_real_code_8> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP, &error_code, &error_offset, nullptr),
      pcre2_code_free);
  if (code == nullptr) {
    FailRegex("not a regular expression: " + MessageOf(error_code), where, regex);
  }
  // Where there is no just-in-time compiler the interpreter gives the same pieces, only slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

std::string_view SplitRegex(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::kGpt2:
      return kGpt2Regex;
    case SplitPattern::kCl100k:
      return kCl100kRegex;
  }
  SANDGLASS_CHECK(false, "unknown split pattern");
}

PreTokenizer::PreTokenizer(const std::vector<std::string>& regexes, const std::string& where,
                           Matching matching) {
  for (const std::string& regex : regexes) {
    if (matching == Matching::kFastest) {
      if (const Scanner scanner = FindScanner(regex)) {
        stages_.push_back({.scanner = scanner});
        continue;
      }
    }
    stages_.push_back({.code = Compile(regex, where)});
  }
}

void PreTokenizer::CutBeforeSpaces(const ByteSet& joins_space) { joins_space_ = joins_space; }

PieceReader::PieceReader(const PreTokenizer& pre_tokenizer)
    : pre_tokenizer_(pre_tokenizer),
      match_data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      match_context_(pcre2_match_context_create(nullptr), pcre2_match_context_free),
      jit_stack_(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr), pcre2_jit_stack_free),
      left_(1 + pre_tokenizer.stages_.size()) {
  pcre2_jit_stack_assign(match_context_.get(), nullptr, jit_stack_.get());
}

void PieceReader::Start(std::string_view text) {
  text_ = text;
  std::ranges::fill(left_, Range{});
}

std::optional<std::string_view> PieceReader::Next() {
  // Down from the innermost stage to one that has something left, and up again.
  size_t stage = left_.size() - 1;
  while (left_[stage].begin == left_[stage].end) {
    if (stage == 0) {
      if (!NextRun()) return std::nullopt;
      break;
    }
    --stage;
  }
  for (; stage + 1 < left_.size(); ++stage) {
    Range& within = left_[stage];
    const size_t begin = within.begin;
    within.begin = run_is_valid_ ? PieceEnd(pre_tokenizer_.stages_[stage], within) : within.end;
    left_[stage + 1] = {begin, begin, within.begin};
  }
  Range& piece = left_.back();
  const size_t begin = piece.begin;
  const size_t end = pre_tokenizer_.joins_space_ ? WordEnd(piece) : piece.end;
  cut_at_space_ = begin != piece.origin || end != piece.end;
  piece.begin = end;
  return text_.substr(begin, end - begin);
}

// The next run of valid UTF-8 or single other byte, in left_[0].
bool PieceReader::NextRun() {
  const size_t begin = left_[0].end;
  if (begin == text_.size()) return false;
  const size_t valid = ValidUtf8Length(text_.substr(begin));
  run_is_valid_ = valid > 0;
  left_[0] = {begin, begin, begin + (run_is_valid_ ? valid : 1)};
  return true;
}

size_t PieceReader::PieceEnd(const PreTokenizer::Stage& stage, const Range& within) {
  return stage.scanner != nullptr ? stage.scanner(text_.data(), within.begin, within.end)
                                  : Match(stage.code.get(), within);
}

// The end of the next match, or of what stands before it. The pattern sees what of the piece is
// done already.
size_t PieceReader::Match(pcre2_real_code_8* code, const Range& within) {
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()) + within.origin,
                  within.end - within.origin, within.begin - within.origin,
                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match_data_.get(), match_context_.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
    throw Error({.what = "the tokenizer's regular expression gave up: " + MessageOf(found),
                 .where = fmt::format("byte {} of a document", within.begin),
                 .remedy = "use a tokenizer with one of the usual patterns, or cut the text into "
                           "smaller documents"});
  }
  if (found < 0) return within.end;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_data_.get());
  const size_t match_begin = within.origin + bounds[0];
  return match_begin > within.begin ? match_begin : within.origin + bounds[1];
}

// The end of the first word with the spaces before it.
size_t PieceReader::WordEnd(const Range& within) const {
  const ByteSet& joins_space = *pre_tokenizer_.joins_space_;
  size_t at = within.begin;
  while (at < within.end && text_[at] == ' ') ++at;
  while (at < within.end &&
         (text_[at] != ' ' || joins_space[static_cast<unsigned char>(text_[at - 1])])) {
    ++at;
  }
  return at;
}

}  // namespace sandglass
