#include "interop/gguf_tokenizer_writer.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/tokenizer_json.h"
#include "interop/gguf_tokenizer.h"
#include "interop/text_marks.h"
#include "io/gguf_types.h"

namespace sandglass {
namespace {

std::string PreTokenizerNameOf(const TokenizerSpec& spec) {
  if (std::optional<std::string> name = GgufPreTokenizerName(spec)) return *std::move(name);
  throw Error({.what = "llama.cpp has no pre-tokenizer that cuts text as this tokenizer does",
               .where = fmt::format("regex {}", fmt::join(spec.splits, ", then ")),
               .remedy = "--to hf; or train with a tokenizer whose pattern is gpt2 or cl100k"});
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
