#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/rank_file.h"
#include "data/sentencepiece_model.h"
#include "data/tokenizer_json.h"

namespace sandglass {
namespace {

TokenizerSpec ParseTokenizerFile(std::string_view contents, const std::string& path) {
  if (contents.starts_with("GGUF")) {
    throw Error({.what = "the tokenizer is inside a GGUF file",
                 .where = path,
                 .expected = "a tokenizer.json, a rank file of tiktoken, a Tekken file or a "
                             "SentencePiece model",
                 .remedy = "write it out first: sandglass tokenizer convert " + path +
                           " --out tokenizer.json"});
  }
  if (LooksLikeSentencePieceModel(contents)) return ParseSentencePieceModel(contents, path);
  if (LooksLikeRankFile(contents)) return ParseRankFile(contents, path);
  if (LooksLikeTekken(contents)) return ParseTekken(contents, path);
  return ParseTokenizerJson(contents, path);
}

// Names by which tokenizers call the token that stands between documents, the best choice first.
constexpr std::string_view kSeparatorNames[] = {
    kEndOfText, "<|begin_of_text|>", "<|end_of_text|>", "<s>", "</s>", "<bos>", "<eos>"};

// The token for Tokenizer::end_of_text, -1 if there is none.
TokenId FindSeparator(const TokenizerSpec& spec) {
  if (!spec.begin.empty()) return spec.begin.back();
  for (const std::string_view name : kSeparatorNames) {
    for (const AddedToken& added : spec.added) {
      if (added.special && spec.tokens[added.id] == name) return added.id;
    }
  }
  return -1;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out += text;
}

}  // namespace

std::string SpacesForMarks(std::string_view text) { return ReplaceAll(text, kSpaceMark, " "); }

std::string MarksForSpaces(std::string_view text) { return ReplaceAll(text, " ", kSpaceMark); }

Blanks TokenizerSpec::blanks_in_normalized_text() const {
  const bool by_normalizer =
      leading_space == LeadingSpace::kNone || leading_space == LeadingSpace::kAlways;
  return symbols == Symbols::kCharacters && by_normalizer ? Blanks::kMarks : Blanks::kSpaces;
}

const AddedToken* TokenizerSpec::FindAdded(TokenId id) const {
  const auto found = std::ranges::lower_bound(added, id, {}, &AddedToken::id);
  return found != added.end() && found->id == id ? &*found : nullptr;
}

bool TokenizerSpec::IsSpecial(TokenId id) const {
  const AddedToken* token = FindAdded(id);
  return token != nullptr && token->special;
}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& where)
    : spec_(std::move(spec)), where_(where), pre_tokenizer_(spec_.splits, where) {
  IndexTokens(where);
  IndexMerges(where);
  IndexNames();
  CountBytes();
  if (spec_.symbols == Symbols::kCharacters) pre_tokenizer_.CutBeforeSpaces(BytesBeforeSpaces());
  hash_ = HashHex(HashBytes(ToJson()));
}

void Tokenizer::IndexTokens(const std::string& where) {
  const auto check = [&](TokenId id) {
    if (id >= 0 && id < vocabulary() && !spec_.tokens[id].empty()) return;
    throw Error(
        {.what = fmt::format("the tokenizer names the token {}, which it does not have", id),
         .where = where});
  };
  is_special_.assign(spec_.tokens.size(), false);
  for (const AddedToken& added : spec_.added) {
    check(added.id);
    is_special_[added.id] = added.special;
  }
  for (const std::vector<TokenId>* ids : {&spec_.begin, &spec_.end, &spec_.byte_fallback}) {
    for (const TokenId id : *ids) check(id);
  }
  for (const Merge& merge : spec_.merges) {
    for (const TokenId id : {merge.left, merge.right, merge.merged}) check(id);
  }
  end_of_text_ = FindSeparator(spec_);
  byte_tokens_.fill(-1);
  if (spec_.symbols == Symbols::kCharacters) return IndexCharacters(where);
  for (TokenId id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[id];
    if (token.empty() || spec_.IsAdded(id)) continue;
    if (token.size() == 1) byte_tokens_[static_cast<unsigned char>(token[0])] = id;
    if (spec_.whole_pieces == WholePieces::kLookUp) whole_pieces_.emplace(token, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    // Some vocabularies leave out bytes that no valid UTF-8 has, or none below U+40000, where
    // nearly all characters are; SmolLM2's leaves out control characters too.
    const bool control = byte < 0x20 && byte != '\t' && byte != '\n';
    const bool rare = control || byte == 0xC0 || byte == 0xC1 || byte >= 0xF1;
    if (byte_tokens_[byte] < 0 && !rare) {
      throw Error({.what = fmt::format("the vocabulary has no token for the byte 0x{:02X}", byte),
                   .where = where,
                   .expected = "a token for each byte of ordinary text"});
    }
  }
}

void Tokenizer::IndexCharacters(const std::string& where) {
  if (spec_.byte_fallback.size() != byte_tokens_.size()) {
    throw Error({.what = "the vocabulary has no tokens for single bytes",
                 .where = where,
                 .expected = "the tokens <0x00> to <0xFF>, so that any text can be encoded"});
  }
  std::ranges::copy(spec_.byte_fallback, byte_tokens_.begin());
  std::vector<bool> is_byte(spec_.tokens.size());
  for (const TokenId id : spec_.byte_fallback) is_byte[id] = true;
  for (TokenId id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[id];
    if (token.empty() || is_byte[id] || spec_.IsAdded(id)) continue;
    if (token.size() == Utf8Length(token[0]))
      character_tokens_.emplace(CodePoint(token.data()), id);
    if (spec_.whole_pieces == WholePieces::kLookUp) whole_pieces_.emplace(token, id);
  }
}

void Tokenizer::IndexNames() {
  const Blanks blanks = spec_.blanks_in_normalized_text();
  normalized_names_ = NameFinder(blanks);
  const auto add = [&](const AddedToken& added) {
    std::string name = spec_.tokens[added.id];
    if (added.normalized) {
      std::string normal;
      Normalize(name, spec_.normalization, normal);
      name = blanks == Blanks::kMarks ? SpacesForMarks(normal) : normal;
      if (spec_.leading_space == LeadingSpace::kAlways) name.insert(0, 1, ' ');
    }
    if (!name.empty()) (added.normalized ? normalized_names_ : raw_names_).Add(name, added);
  };
  // Special tokens first: of names that are the same once normalized theirs counts.
  for (const bool special : {true, false}) {
    for (const AddedToken& added : spec_.added) {
      if (added.special == special) add(added);
    }
  }
}

// What a token has right before a space inside it. Elsewhere no merge crosses the beginning of a
// space, and text can be cut there.
ByteSet Tokenizer::BytesBeforeSpaces() const {
  ByteSet bytes{};
  for (TokenId id = 0; id < vocabulary(); ++id) {
    const std::string& token = spec_.tokens[id];
    if (spec_.IsAdded(id)) continue;
    for (size_t i = 1; i < token.size(); ++i) {
      if (token[i] == ' ' && token[i - 1] != ' ')
        bytes[static_cast<unsigned char>(token[i - 1])] = true;
    }
  }
  return bytes;
}

TokenId Tokenizer::end_of_text() const {
  if (end_of_text_ >= 0) return end_of_text_;
  throw Error({.what = "the tokenizer has no special token that can stand between documents",
               .where = where_,
               .expected = fmt::format("a special token named {}, or a configured BOS token",
                                       fmt::join(kSeparatorNames, ", ")),
               .remedy = "train a tokenizer with `sandglass tokenizer train`"});
}

std::optional<TokenId> Tokenizer::FindAdded(std::string_view name) const {
  for (const AddedToken& added : spec_.added) {
    if (spec_.tokens[added.id] == name) return added.id;
  }
  return std::nullopt;
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return id >= 0 && id < vocabulary() && is_special_[id];
}

void Tokenizer::CountBytes() {
  byte_counts_.counts_.resize(spec_.tokens.size());
  for (TokenId id = 0; id < vocabulary(); ++id) {
    byte_counts_.counts_[id] = static_cast<int32_t>(TokenBytes(id).size());
  }
  if (spec_.leading_space == LeadingSpace::kNone) return;
  byte_counts_.begins_text_.resize(spec_.tokens.size());
  byte_counts_.opens_with_space_.resize(spec_.tokens.size());
  for (TokenId id = 0; id < vocabulary(); ++id) {
    byte_counts_.opens_with_space_[id] = TokenBytes(id).starts_with(' ');
  }
  // Text begins anew behind an added token, unless its leading space was there before the token was
  // found.
  if (spec_.leading_space == LeadingSpace::kFirstUnlessSpace) {
    for (const TokenId id : spec_.begin) byte_counts_.begins_text_[id] = true;
    if (end_of_text_ >= 0) byte_counts_.begins_text_[end_of_text_] = true;
  } else {
    for (const AddedToken& added : spec_.added) {
      byte_counts_.begins_text_[added.id] =
          !added.normalized || spec_.leading_space == LeadingSpace::kUnlessSpace;
    }
  }
}

void Tokenizer::IndexMerges(const std::string& where) {
  merges_.Reserve(spec_.merges.size());
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right, merged] = spec_.merges[rank];
    if (spec_.tokens[left] + spec_.tokens[right] != spec_.tokens[merged]) {
      throw Error(
          {.what = fmt::format("merge {} does not give the token it names", rank),
           .where = where,
           .expected = fmt::format("tokens {} and {} joined to be token {}", left, right, merged)});
    }
    // As in the reference implementation the last of equal pairs counts.
    merges_.Set(left, right, static_cast<int32_t>(rank), merged);
  }
}

Tokenizer Tokenizer::Load(const std::string& path) {
  return Tokenizer(ParseTokenizerFile(ReadFile(path), path), path);
}

void Tokenizer::Save(const std::string& path) const { WriteFileAtomically(path, ToJson()); }

std::string Tokenizer::ToJson() const { return FormatTokenizerJson(spec_); }

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || id >= vocabulary()) {
    throw Error({.what = fmt::format("token id {} is outside the vocabulary", id),
                 .expected = fmt::format("0 to {}", vocabulary() - 1),
                 .remedy = "use the tokenizer that the tokens were made with"});
  }
  return is_special_[id] ? std::string_view() : spec_.tokens[id];
}

std::string_view Tokenizer::TextAfter(TokenId previous, TokenId id) const {
  const std::string_view bytes = TokenBytes(id);
  return bytes.substr(bytes.size() - byte_counts_(previous, id));
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  std::string text;
  TokenId previous = -1;
  for (const TokenId id : ids) {
    text += TextAfter(previous, id);
    previous = id;
  }
  return text;
}

}  // namespace sandglass
