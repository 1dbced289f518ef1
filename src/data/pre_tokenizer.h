// Cutting text into the pieces that byte-pair merges never cross, with the regular expressions
// that tokenizers store.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/scanners.h"

// PCRE2's own names, so that its header stays in the source file.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace sandglass {

// The two patterns that new tokenizers are trained with: kGpt2Regex and kCl100kRegex of
// split_patterns.h.
enum class SplitPattern { kGpt2, kCl100k };

std::string_view SplitRegex(SplitPattern pattern);

// Whether patterns that have a hand-written scanner use it. Both give the same pieces.
enum class Matching { kFastest, kRegexOnly };

// Bytes that some token has right before a space.
using ByteSet = std::array<bool, 256>;

// Compiled patterns. Immutable; threads may share it.
class PreTokenizer {
 public:
  // Each of the `regexes`, written as the reference tokenizers read them (Oniguruma, Ruby syntax),
  // cuts the pieces of the one before; without any the whole text is one piece. Throws Error for a
  // syntax error, and for constructs that PCRE2 would read differently.
  explicit PreTokenizer(const std::vector<std::string>& regexes, const std::string& where = "",
                        Matching matching = Matching::kFastest);

  // Pieces are cut once more, before each run of spaces whose preceding byte is not in
  // `joins_space`.
  void CutBeforeSpaces(const ByteSet& joins_space);

 private:
  friend class PieceReader;
  struct Stage {
    Scanner scanner = nullptr;                // either this
    std::shared_ptr<pcre2_real_code_8> code;  // or this
  };
  std::vector<Stage> stages_;
  std::optional<ByteSet> joins_space_;
};

// The pieces of one text after another. One per thread.
class PieceReader {
 public:
  // `pre_tokenizer` must outlive the reader.
  explicit PieceReader(const PreTokenizer& pre_tokenizer);

  // Starts on `text`, which must outlive the calls of Next.
  void Start(std::string_view text);

  // The next piece, never empty; nothing at the end. Joined, the pieces are the text: what the
  // patterns leave out is a piece, and so is every byte that is not valid UTF-8.
  std::optional<std::string_view> Next();

  // Whether the piece that Next gave last was cut at a space only.
  bool cut_at_space() const { return cut_at_space_; }

 private:
  template <class T>
  using Handle = std::unique_ptr<T, void (*)(T*)>;
  // A piece of one stage: [begin, end) of it is left to be cut, the rest from `origin` on is done.
  struct Range {
    size_t origin = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  bool NextRun();
  size_t PieceEnd(const PreTokenizer::Stage& stage, const Range& within);
  size_t Match(pcre2_real_code_8* code, const Range& within);
  size_t WordEnd(const Range& within) const;

  const PreTokenizer& pre_tokenizer_;
  Handle<pcre2_real_match_data_8> match_data_;
  Handle<pcre2_real_match_context_8> match_context_;
  Handle<pcre2_real_jit_stack_8> jit_stack_;
  std::string_view text_;
  // The present piece of each stage, the run of valid UTF-8 first.
  std::vector<Range> left_;
  bool run_is_valid_ = false;
  bool cut_at_space_ = false;
};

}  // namespace sandglass
