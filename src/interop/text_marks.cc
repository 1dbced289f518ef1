#include "interop/text_marks.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace sandglass {
namespace {

// The best choice first: a tokenizer for conversations ends its turns, not only its documents.
constexpr std::string_view kStopNames[] = {"<|im_end|>",      "<|eot_id|>", "<|endoftext|>",
                                           "<|end_of_text|>", "</s>",       "<eos>"};

std::optional<TokenId> OnlyOne(const std::vector<TokenId>& tokens, const char* where) {
  if (tokens.empty()) return std::nullopt;
  if (tokens.size() == 1) return tokens.front();
  throw Error(
      {.what = fmt::format("the tokenizer puts {} tokens {} every text", tokens.size(), where),
       .expected = "one token or none"});
}

}  // namespace

TextMarks MarksOf(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = tokenizer.spec();
  TextMarks marks{.begin = OnlyOne(spec.begin, "in front of"), .end = OnlyOne(spec.end, "behind")};
  for (const std::string_view name : kStopNames) {
    if (const auto found = tokenizer.FindAdded(name); found && tokenizer.IsSpecial(*found)) {
      marks.stop = found;
      break;
    }
  }
  return marks;
}

Tokenizer BeginningLikeDocuments(const Tokenizer& tokenizer) {
  TokenizerSpec spec = tokenizer.spec();
  if (spec.begin.empty()) spec.begin = {tokenizer.end_of_text()};
  return Tokenizer(std::move(spec));
}

}  // namespace sandglass
