#include "interop/gguf_tokenizer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/tokenizer_json.h"
#include "interop/text_marks.h"
#include "io/gguf_types.h"

namespace sandglass {
namespace {

// llama.cpp knows pre-tokenizers by name. A name also says whether whole pieces are looked up.
struct PreTokenizerName {
  const char* name;
  std::vector<std::string_view> splits;
  WholePieces whole_pieces;
};

const std::vector<PreTokenizerName>& PreTokenizerNames() {
  static const std::vector<PreTokenizerName> names = {
      {"gpt-2", {SplitRegex(SplitPattern::kGpt2)}, WholePieces::kMerge},
      {"smollm", {R"(\p{N})", SplitRegex(SplitPattern::kGpt2)}, WholePieces::kMerge},
      {"dbrx", {SplitRegex(SplitPattern::kCl100k)}, WholePieces::kMerge},
      {"llama-bpe", {SplitRegex(SplitPattern::kCl100k)}, WholePieces::kLookUp},
      {"qwen2",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       WholePieces::kMerge},
  };
  return names;
}

const char* PreTokenizerNameOf(const TokenizerSpec& spec) {
  for (const PreTokenizerName& known : PreTokenizerNames()) {
    if (std::ranges::equal(spec.splits, known.splits) && spec.whole_pieces == known.whole_pieces) {
      return known.name;
    }
  }
  throw Error({.what = "llama.cpp has no pre-tokenizer that cuts text as this tokenizer does",
               .where = fmt::format("regex {}", fmt::join(spec.splits, ", then ")),
               .expected = "one of the patterns gpt2 and cl100k",
               .remedy = "--to hf; or train with a tokenizer of one of these patterns"});
}

}  // namespace

void AddGgufTokenizer(const Tokenizer* tokenizer, int vocabulary, GgufWriter& writer) {
  if (tokenizer == nullptr) {
    writer.Add("tokenizer.ggml.model", "none");
    return;
  }
  const TokenizerSpec& spec = tokenizer->spec();
  if (spec.symbols != Symbols::kBytes || spec.normalization != Normalization::kNone) {
    throw Error({.what = "only byte-level tokenizers without a normalizer can be written as GGUF",
                 .remedy = "--to hf"});
  }
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.pre", PreTokenizerNameOf(spec));

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto add = [&](std::string text, GgufTokenType type) {
    tokens.push_back(std::move(text));
    types.push_back(static_cast<int32_t>(type));
  };
  std::vector<const AddedToken*> added(spec.tokens.size());
  for (const AddedToken& token : spec.added) added[token.id] = &token;
  for (int id = 0; id < vocabulary; ++id) {
    if (id >= tokenizer->vocabulary() || spec.tokens[id].empty()) {
      add(fmt::format("<|unused-{}|>", id), GgufTokenType::kUnused);
    } else if (added[id] != nullptr) {
      add(spec.tokens[id], added[id]->special ? GgufTokenType::kControl : GgufTokenType::kUser);
    } else {
      add(SpellBytes(spec.tokens[id]), GgufTokenType::kNormal);
    }
  }
  writer.Add("tokenizer.ggml.tokens", tokens);
  writer.Add("tokenizer.ggml.token_type", types);

  std::vector<std::string> merges;
  for (const Merge& merge : spec.merges) {
    merges.push_back(SpellBytes(spec.tokens[merge.left]) + " " +
                     SpellBytes(spec.tokens[merge.right]));
  }
  writer.Add("tokenizer.ggml.merges", merges);

  const TextMarks marks = MarksOf(*tokenizer);
  const auto add_mark = [&](const char* key, std::optional<TokenId> id) {
    if (id) writer.Add(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(*id));
  };
  add_mark("bos_token_id", marks.begin);
  add_mark("eos_token_id", marks.end ? marks.end : marks.stop);
  add_mark("padding_token_id", marks.stop);
  // Said either way: llama.cpp's defaults depend on the kind of tokenizer.
  writer.Add("tokenizer.ggml.add_bos_token", marks.begin.has_value());
  writer.Add("tokenizer.ggml.add_eos_token", marks.end.has_value());
}

}  // namespace sandglass
