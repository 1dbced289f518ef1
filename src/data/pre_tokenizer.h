// Cutting text into the pieces that byte-pair merges never cross, with the regular expression that
// a tokenizer.json stores.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

// PCRE2's own names, so that its header stays in the source file.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace sandglass {

// The two patterns that new tokenizers are trained with.
//   gpt2    contractions, words, numbers and punctuation, each with one leading space
//   cl100k  also any case of the contractions, numbers in groups of three, line ends apart
enum class SplitPattern { kGpt2, kCl100k };

std::string_view SplitRegex(SplitPattern pattern);

// Length of the longest prefix of `text` that is valid UTF-8 (Unicode 15, table 3-7).
size_t ValidUtf8Length(std::string_view text);

// A compiled pattern. Immutable; threads may share it.
class PreTokenizer {
 public:
  // `regex` is written as the reference tokenizers read it (Oniguruma, Ruby syntax). Throws Error
  // for a syntax error, and for constructs that PCRE2 would read differently.
  explicit PreTokenizer(std::string regex, const std::string& where = "");

  const std::string& regex() const { return regex_; }

 private:
  friend class PieceReader;
  std::string regex_;
  std::shared_ptr<pcre2_real_code_8> code_;
};

// The pieces of one text after another. One per thread.
class PieceReader {
 public:
  explicit PieceReader(const PreTokenizer& pre_tokenizer);

  // Starts on `text`, which must outlive the calls of Next.
  void Start(std::string_view text);

  // The next piece, never empty; nothing at the end. Joined, the pieces are the text: what the
  // pattern leaves out is a piece, and so is every byte that is not valid UTF-8.
  std::optional<std::string_view> Next();

 private:
  template <class T>
  using Handle = std::unique_ptr<T, void (*)(T*)>;

  std::shared_ptr<pcre2_real_code_8> code_;
  Handle<pcre2_real_match_data_8> match_data_;
  Handle<pcre2_real_match_context_8> match_context_;
  Handle<pcre2_real_jit_stack_8> jit_stack_;
  std::string_view text_;
  size_t position_ = 0;
  size_t run_begin_ = 0;  // the run of valid UTF-8 around position_
  size_t run_end_ = 0;
};

}  // namespace sandglass
