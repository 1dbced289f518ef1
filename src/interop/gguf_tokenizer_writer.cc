#include "interop/gguf_tokenizer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "base/error.h"
#include "data/rank_file.h"
#include "data/sentencepiece_model.h"
#include "data/split_patterns.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"
#include "interop/gguf_tokenizer.h"
#include "interop/text_marks.h"

namespace sandglass {
namespace {

constexpr std::string_view kUnknownName = "<unk>";

[[noreturn]] void Refuse(std::string what, std::string where = "",
                         std::string remedy = "--to hf, which keeps tokenizer.json") {
  throw Error({.what = std::move(what), .where = std::move(where), .remedy = std::move(remedy)});
}

// Whether merging alone makes one token of the bytes of every token, so that looking whole pieces
// up changes nothing.
bool MergesReachEveryToken(TokenizerSpec spec) {
  spec.whole_pieces = WholePieces::kMerge;
  spec.splits.clear();
  spec.normalization = Normalization::kNone;
  const Tokenizer merging(std::move(spec));
  Encoder encoder(merging);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < merging.vocabulary(); ++id) {
    const std::string& token = merging.spec().tokens[id];
    if (token.empty() || merging.spec().IsAdded(id)) continue;
    // Bytes that are not valid UTF-8 would be pieces of their own; such tokens are parts of
    // characters, which no piece consists of.
    if (ValidUtf8Length(token) != token.size()) continue;
    ids.clear();
    encoder.Encode(token, ids);
    if (ids != std::vector{id}) return false;
  }
  return true;
}

std::string PreTokenizerNameOf(const TokenizerSpec& spec) {
  if (std::optional<std::string> name = GgufPreTokenizerName(spec)) return *std::move(name);
  TokenizerSpec other = spec;
  other.whole_pieces =
      spec.whole_pieces == WholePieces::kMerge ? WholePieces::kLookUp : WholePieces::kMerge;
  std::optional<std::string> name = GgufPreTokenizerName(other);
  if (name && MergesReachEveryToken(other)) return *std::move(name);
  Refuse("llama.cpp has no pre-tokenizer that cuts text as this tokenizer does",
         fmt::format("regex {}", fmt::join(spec.splits, ", then ")),
         "--to hf; or train with a tokenizer whose pattern is gpt2 or cl100k");
}

// The merged tokens in the order of their merges; of any one token they must follow each other.
std::vector<TokenId> OrderOfMerges(const TokenizerSpec& spec) {
  std::vector<TokenId> order;
  std::vector<bool> seen(spec.tokens.size());
  for (const Merge& merge : spec.merges) {
    if (!order.empty() && order.back() == merge.merged) continue;
    if (seen[merge.merged]) {
      Refuse(
          fmt::format("the merges that give \"{}\" are not together, and llama.cpp merges by a "
                      "score of each token",
                      spec.tokens[merge.merged]));
    }
    seen[merge.merged] = true;
    order.push_back(merge.merged);
  }
  return order;
}

// A score for each token such that llama.cpp, which joins whatever gives the token of the highest
// score, merges as the tokenizer does: the negative place in the order of merges.
std::vector<float> ScoresOf(const TokenizerSpec& spec) {
  std::vector<TokenId> order = OrderOfMerges(spec);
  std::vector<float> scores(spec.tokens.size(), -static_cast<float>(order.size()));
  for (size_t i = 0; i < order.size(); ++i) scores[order[i]] = -static_cast<float>(i);

  std::vector<bool> may_merge(spec.tokens.size());
  std::vector<bool> ordered(spec.tokens.size());
  for (const TokenId id : order) ordered[id] = true;
  for (TokenId id = 0; id < std::ssize(spec.tokens); ++id) {
    may_merge[id] = !spec.tokens[id].empty() && !spec.IsAdded(id);
  }
  for (const TokenId id : spec.byte_fallback) may_merge[id] = false;
  for (TokenId id = 0; id < std::ssize(spec.tokens); ++id) {
    if (may_merge[id] && !ordered[id]) order.push_back(id);
  }
  const auto sorted = [](std::vector<Merge> merges) {
    std::vector<std::tuple<TokenId, TokenId, TokenId>> triples;
    for (const Merge& merge : merges) triples.emplace_back(merge.merged, merge.left, merge.right);
    std::ranges::sort(triples);
    triples.erase(std::unique(triples.begin(), triples.end()), triples.end());
    return triples;
  };
  const auto own = sorted(spec.merges);
  const auto all = sorted(MergesOfTokens(spec.tokens, order, may_merge));
  if (own != all) {
    const auto [in_all, in_own] = std::ranges::mismatch(all, own);
    const auto& [merged, left, right] = in_all != all.end() ? *in_all : *in_own;
    Refuse(
        fmt::format("llama.cpp joins any two tokens that give a token, and this tokenizer does "
                    "so by its merges alone: they differ about \"{}\" and \"{}\"",
                    spec.tokens[left], spec.tokens[right]));
  }
  return scores;
}

// Whether a text's pieces are those of no split at all: cut before every space, with no token that
// has a space inside.
bool SplitsChangeNothing(const TokenizerSpec& spec) {
  if (spec.splits.empty()) return true;
  return spec.splits == std::vector{std::string(kEachSpaceRegex)} &&
         std::ranges::none_of(spec.merges, [&](const Merge& merge) {
           return spec.tokens[merge.merged].find(' ', 1) != std::string::npos;
         });
}

void RequireKnownToScored(const TokenizerSpec& spec) {
  if (spec.normalization != Normalization::kNone) {
    Refuse("llama.cpp does not normalize text, and this tokenizer does");
  }
  if (!SplitsChangeNothing(spec)) {
    Refuse("llama.cpp does not cut the text of tokenizers with byte fallback",
           fmt::format("regex {}", fmt::join(spec.splits, ", then ")));
  }
  if (spec.whole_pieces == WholePieces::kLookUp) {
    Refuse("llama.cpp does not look whole pieces up in tokenizers with byte fallback",
           "ignore_merges");
  }
}

// llama.cpp finds the name of an added token wherever it stands, and swallows nothing around it.
void CheckAddedTokens(const TokenizerSpec& spec, std::vector<std::string>& cautions) {
  std::vector<std::string_view> special;
  std::vector<std::string_view> becomes_special;
  for (const AddedToken& token : spec.added) {
    if (!token.special && IsSpecialToLlamaCpp(spec.tokens[token.id])) {
      becomes_special.push_back(spec.tokens[token.id]);
    }
    const bool swallows_mark = token.normalized && spec.leading_space == LeadingSpace::kAlways;
    if (!token.single_word && !token.strips_left && !token.strips_right && !swallows_mark) continue;
    const std::string& name = spec.tokens[token.id];
    if (!token.special) {
      Refuse(fmt::format("llama.cpp finds the added token \"{}\" wherever its name stands", name),
             swallows_mark ? "normalized" : "single_word, lstrip, rstrip");
    }
    special.push_back(name);
  }
  if (!becomes_special.empty()) {
    cautions.push_back(
        fmt::format("llama.cpp takes these for special tokens, whose names in text are ids only on "
                    "request: {}",
                    fmt::join(becomes_special, ", ")));
  }
  if (special.empty()) return;
  cautions.push_back(fmt::format(
      "where llama.cpp is asked to find special tokens in text it finds these wherever their names "
      "stand, and leaves the spaces around them: {}",
      fmt::join(special, ", ")));
}

struct VocabularyKeys {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;

  void Add(std::string text, PieceType type) {
    tokens.push_back(std::move(text));
    types.push_back(static_cast<int32_t>(type));
  }
};

PieceType TypeOfAdded(const AddedToken& token, std::string_view name) {
  if (!token.special) return PieceType::kUserDefined;
  return name == kUnknownName ? PieceType::kUnknown : PieceType::kControl;
}

VocabularyKeys KeysOf(const Tokenizer& tokenizer, int vocabulary) {
  const TokenizerSpec& spec = tokenizer.spec();
  std::vector<std::optional<int>> byte_of(spec.tokens.size());
  for (size_t byte = 0; byte < spec.byte_fallback.size(); ++byte) {
    byte_of[spec.byte_fallback[byte]] = static_cast<int>(byte);
  }
  VocabularyKeys keys;
  for (TokenId id = 0; id < vocabulary; ++id) {
    if (id >= tokenizer.vocabulary() || spec.tokens[id].empty()) {
      keys.Add(fmt::format("<|unused-{}|>", id), PieceType::kUnused);
      continue;
    }
    const std::string& token = spec.tokens[id];
    if (const AddedToken* added = spec.FindAdded(id)) {
      keys.Add(token, TypeOfAdded(*added, token));
    } else if (spec.symbols == Symbols::kBytes) {
      keys.Add(SpellBytes(token), PieceType::kNormal);
    } else if (byte_of[id]) {
      keys.Add(fmt::format("<0x{:02X}>", *byte_of[id]), PieceType::kByte);
    } else {
      keys.Add(MarksForSpaces(token), PieceType::kNormal);
    }
  }
  // llama.cpp ends the process over a vocabulary that has a text twice.
  std::unordered_set<std::string_view> seen;
  for (const std::string& token : keys.tokens) {
    if (!seen.insert(token).second) Refuse(fmt::format("two tokens are spelled \"{}\"", token));
  }
  return keys;
}

}  // namespace

std::vector<std::string> GgufTokenizerCautions(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = tokenizer.spec();
  std::vector<std::string> cautions;
  CheckAddedTokens(spec, cautions);
  KeysOf(tokenizer, tokenizer.vocabulary());
  if (spec.symbols == Symbols::kBytes) {
    PreTokenizerNameOf(spec);
    if (spec.normalization == Normalization::kNfkc) {
      Refuse("llama.cpp does not normalize text, and this tokenizer turns it into NFKC");
    }
    if (spec.normalization == Normalization::kNfc) {
      // Its own converter leaves the normalizer out, too (conversion/base.py).
      cautions.push_back(
          "llama.cpp does not normalize text: give it text in NFC, as this tokenizer turns text "
          "into it first (letters and accents as separate characters get other ids)");
    }
    return cautions;
  }
  RequireKnownToScored(spec);
  ScoresOf(spec);
  if (spec.leading_space == LeadingSpace::kUnlessSpace) {
    cautions.push_back(
        "llama.cpp puts a space before every text; this tokenizer does not where there is one");
  }
  if (spec.leading_space == LeadingSpace::kFirstUnlessSpace) {
    cautions.push_back(
        "llama.cpp puts a space before every text and behind special tokens; this tokenizer does "
        "not where there is one, nor behind special tokens");
  }
  return cautions;
}

void AddGgufTokenizer(const Tokenizer* tokenizer, int vocabulary, GgufWriter& writer) {
  if (tokenizer == nullptr) {
    writer.Add("tokenizer.ggml.model", "none");
    return;
  }
  GgufTokenizerCautions(*tokenizer);
  const TokenizerSpec& spec = tokenizer->spec();
  const VocabularyKeys keys = KeysOf(*tokenizer, vocabulary);
  const TextMarks marks = MarksOf(*tokenizer);
  const auto add_mark = [&](const char* key, std::optional<TokenId> id) {
    if (id) writer.Add(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(*id));
  };
  if (spec.symbols == Symbols::kBytes) {
    writer.Add("tokenizer.ggml.model", "gpt2");
    writer.Add("tokenizer.ggml.pre", PreTokenizerNameOf(spec));
    std::vector<std::string> merges;
    for (const Merge& merge : spec.merges) {
      merges.push_back(SpellBytes(spec.tokens[merge.left]) + " " +
                       SpellBytes(spec.tokens[merge.right]));
    }
    writer.Add("tokenizer.ggml.merges", merges);
  } else {
    writer.Add("tokenizer.ggml.model", "llama");
    writer.Add("tokenizer.ggml.pre", "default");
    std::vector<float> scores = ScoresOf(spec);
    const float lowest = std::ranges::min(scores);
    scores.resize(static_cast<size_t>(vocabulary), lowest);
    writer.Add("tokenizer.ggml.scores", scores);
    writer.Add("tokenizer.ggml.add_space_prefix", spec.leading_space != LeadingSpace::kNone);
    add_mark("unknown_token_id", tokenizer->FindAdded(kUnknownName));
  }
  writer.Add("tokenizer.ggml.tokens", keys.tokens);
  writer.Add("tokenizer.ggml.token_type", keys.types);
  add_mark("bos_token_id", marks.begin);
  add_mark("eos_token_id", marks.end ? marks.end : marks.stop);
  add_mark("padding_token_id", marks.stop);
  // Said either way: llama.cpp's defaults depend on the kind of tokenizer.
  writer.Add("tokenizer.ggml.add_bos_token", marks.begin.has_value());
  writer.Add("tokenizer.ggml.add_eos_token", marks.end.has_value());
}

}  // namespace sandglass
