#include "interop/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "data/sentencepiece_model.h"
#include "data/split_patterns.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

namespace sandglass {
namespace {

// Patterns as the original tokenizers have them; llama.cpp writes some in other words.
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCjk = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kFalcon = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
// Characters as DeepSeek's first tokenizers group them.
constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kSpacedLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacedPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kEastAsian = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";

// Letters with case, as DeepSeek-LLM lists them.
constexpr std::string_view kSpacedCasedLetters =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59"
    "\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC"
    "\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107"
    "\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE"
    "\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
constexpr std::string_view kSpacedSigns =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr std::string_view kTrailingSpace = R"(\s+\z)";
constexpr std::string_view kNumbers = R"(\p{N}+)";

// What llama.cpp does for a value of tokenizer.ggml.pre (its src/llama-vocab.cpp).
struct PreTokenizerKind {
  std::string_view name;
  std::vector<std::string_view> splits;
  WholePieces whole_pieces = WholePieces::kMerge;
  bool adds_bos = false;  // where the file does not say
};

const std::vector<PreTokenizerKind>& KnownKinds() {
  using enum WholePieces;
  // The first of those that cut alike is the one that is written.
  static const std::vector<PreTokenizerKind> kinds = {
      {"gpt-2", {kGpt2Regex}},
      {"phi-2", {kGpt2Regex}},
      {"mpt", {kGpt2Regex}},
      {"olmo", {kGpt2Regex}},
      {"jais", {kGpt2Regex}},
      {"exaone4", {kGpt2Regex}},
      {"mellum", {kGpt2Regex}},
      {"smollm", {kNumberRegex, kGpt2Regex}},
      {"starcoder", {kNumberRegex, kGpt2Regex}},
      {"refact", {kNumberRegex, kGpt2Regex}},
      {"command-r", {kNumberRegex, kGpt2Regex}},
      {"codeshell", {kNumberRegex, kGpt2Regex}},
      {"exaone", {kNumberRegex, kGpt2Regex}},
      {"minerva-7b", {kNumberRegex, kGpt2Regex}},
      {"dbrx", {kCl100kRegex}},
      {"smaug-bpe", {kCl100kRegex}},
      {"chatglm-bpe", {kCl100kRegex}},
      {"llama-bpe", {kCl100kRegex}, kLookUp, true},
      {"llama3", {kCl100kRegex}, kLookUp, true},
      {"llama-v3", {kCl100kRegex}, kLookUp, true},
      {"falcon3", {kCl100kRegex}, kLookUp, true},
      {"falcon-h1", {kCl100kRegex}, kLookUp, true},
      {"lfm2", {kCl100kRegex}, kLookUp, true},
      {"glm4", {kCl100kRegex}, kLookUp},
      {"qwen2", {kQwen2Regex}},
      {"deepseek-r1-qwen", {kQwen2Regex}},
      {"stablelm2", {kQwen2Regex}},
      {"megrez", {kQwen2Regex}},
      {"qwen35", {kQwen35}},
      {"gpt-4o", {kO200kRegex}},
      {"llama4", {kO200kRegex}},
      {"tekken", {kTekkenRegex}, kLookUp, true},
      {"deepseek-v3", {kThreeNumbersRegex, kCjk, kDeepSeekV3}},
      {"deepseek-llm",
       {kLineEnd, kSpacedCasedLetters, kSpacedSigns, kTrailingSpace, kEastAsian, kNumbers}},
      {"deepseek-coder", {kLineEnd, kSpacedLetters, kSpacedPunctuation, kEastAsian, kNumberRegex}},
      {"falcon", {kFalcon, kGpt2Regex, kThreeDigits}},
  };
  return kinds;
}

// Names that llama.cpp takes for those of special tokens, whatever the file says they are: the ends
// of turns and texts, and the marks of infilling.
constexpr std::string_view kSpecialByName[] = {"<|eot_id|>",
                                               "<|im_end|>",
                                               "<|end|>",
                                               "<end_of_turn>",
                                               "<|endoftext|>",
                                               "<|end_of_text|>",
                                               "<EOT>",
                                               "_<EOT>",
                                               "[EOT]",
                                               "[EOS]",
                                               "<｜end▁of▁sentence｜>",
                                               "<end_of_utterance>",
                                               "<|eom_id|>",
                                               "</s>",
                                               "<eos>",
                                               "<|return|>",
                                               "<|call|>",
                                               "<|fim_prefix|>",
                                               "<fim-prefix>",
                                               "<fim_prefix>",
                                               "<｜fim▁begin｜>",
                                               "<PRE>",
                                               "▁<PRE>",
                                               "<|code_prefix|>",
                                               "<|prefix|>",
                                               "<|fim_suffix|>",
                                               "<fim-suffix>",
                                               "<fim_suffix>",
                                               "<｜fim▁hole｜>",
                                               "<SUF>",
                                               "▁<SUF>",
                                               "<|code_suffix|>",
                                               "<|suffix|>",
                                               "<|fim_middle|>",
                                               "<fim-middle>",
                                               "<fim_middle>",
                                               "<｜fim▁end｜>",
                                               "<MID>",
                                               "▁<MID>",
                                               "<|code_middle|>",
                                               "<|middle|>",
                                               "<|fim_pad|>",
                                               "<fim-pad>",
                                               "<fim_pad>",
                                               "<PAD>",
                                               "[PAD]",
                                               "<|fim_repo|>",
                                               "<|repo_name|>",
                                               "<fim-repo>",
                                               "<REPO>",
                                               "<reponame>",
                                               "<|file_sep|>"};

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  TokenizerSpec Read() {
    const auto model = file_.Get<std::string_view>("tokenizer.ggml.model");
    if (!model) Fail("the file has no tokenizer", "tokenizer.ggml.model", "gpt2 or llama");
    tokens_ = file_.Require<std::vector<std::string_view>>("tokenizer.ggml.tokens");
    types_ = file_.Get<std::vector<int64_t>>("tokenizer.ggml.token_type")
                 .value_or(std::vector<int64_t>(tokens_.size(),
                                                static_cast<int64_t>(PieceType::kNormal)));
    if (types_.size() != tokens_.size()) {
      Fail(fmt::format("{} tokens have {} types", tokens_.size(), types_.size()),
           "tokenizer.ggml.token_type");
    }
    if (*model == "gpt2") {
      ReadByteLevel();
    } else if (*model == "llama") {
      ReadScored();
    } else {
      Fail(fmt::format("the tokenizer model \"{}\" is not supported", *model),
           "tokenizer.ggml.model", "gpt2 (byte-level BPE) or llama (SentencePiece)");
    }
    ReadFlags();
    ReadEnds();
    return std::move(spec_);
  }

 private:
  [[noreturn]] void Fail(std::string what, const char* key, std::string expected = "",
                         std::string remedy = "") const {
    throw Error({.what = std::move(what),
                 .where = fmt::format("{}, {}", file_.path(), key),
                 .expected = std::move(expected),
                 .remedy = std::move(remedy)});
  }

  void ReadByteLevel();
  void ReadMerges();
  void ReadScored();
  void ReadFlags();
  void ReadEnds();
  PieceType TypeOf(size_t id) const { return static_cast<PieceType>(types_[id]); }

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;
  TokenizerSpec spec_;
  bool adds_bos_ = false;
};

void Reader::ReadByteLevel() {
  constexpr const char* kKey = "tokenizer.ggml.pre";
  const auto name = file_.Get<std::string_view>(kKey);
  const auto kind = std::ranges::find(KnownKinds(), name.value_or(""), &PreTokenizerKind::name);
  if (kind == KnownKinds().end()) {
    std::vector<std::string> names;
    for (const PreTokenizerKind& known : KnownKinds()) names.emplace_back(known.name);
    Fail(name ? fmt::format("unknown pre-tokenizer \"{}\"", *name)
              : "the file does not say how text is cut before merging",
         kKey, fmt::format("one of {}", fmt::join(names, ", ")),
         name ? DidYouMean(*name, names)
              : "convert the model again, with a program that writes this key");
  }
  spec_.splits.assign(kind->splits.begin(), kind->splits.end());
  spec_.whole_pieces = kind->whole_pieces;
  adds_bos_ = kind->adds_bos;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    std::string text(tokens_[i]);
    if (text.empty() || ValidUtf8Length(text) != text.size()) {
      Fail(fmt::format("token {} is {}", id, text.empty() ? "empty" : "not valid UTF-8"),
           "tokenizer.ggml.tokens");
    }
    switch (TypeOf(i)) {
      case PieceType::kNormal:
      case PieceType::kByte:
        // No text leads to one that is not spelled in the byte-level alphabet; Command R has some.
        text = UnspellBytes(text).value_or("");
        break;
      case PieceType::kUserDefined:
        spec_.added.push_back({.id = id, .special = false});
        break;
      case PieceType::kControl:
      case PieceType::kUnknown:
        spec_.added.push_back({.id = id});
        break;
      case PieceType::kUnused:  // fills up the vocabulary
        text.clear();
        break;
      default:
        Fail(fmt::format("token {} has the unknown type {}", id, types_[i]),
             "tokenizer.ggml.token_type");
    }
    spec_.tokens.push_back(std::move(text));
  }
  ReadMerges();
}

void Reader::ReadMerges() {
  constexpr const char* kKey = "tokenizer.ggml.merges";
  std::unordered_map<std::string_view, TokenId> id_of;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (TypeOf(i) != PieceType::kNormal && TypeOf(i) != PieceType::kByte) continue;
    if (!id_of.emplace(tokens_[i], static_cast<TokenId>(i)).second) {
      Fail(fmt::format("the token \"{}\" is twice in the vocabulary", tokens_[i]),
           "tokenizer.ggml.tokens");
    }
  }
  for (const std::string_view merge : file_.Require<std::vector<std::string_view>>(kKey)) {
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos) {
      Fail(fmt::format("the merge \"{}\" is not a pair of tokens", merge), kKey);
    }
    const std::string left(merge.substr(0, space));
    const std::string right(merge.substr(space + 1));
    const auto id = [&](const std::string& token) {
      const auto found = id_of.find(token);
      if (found == id_of.end()) {
        Fail(fmt::format("the merge \"{}\" uses a token that is not in the vocabulary", merge),
             kKey);
      }
      return found->second;
    };
    spec_.merges.push_back({id(left), id(right), id(left + right)});
  }
}

void Reader::ReadScored() {
  constexpr const char* kKey = "tokenizer.ggml.scores";
  const auto scores = file_.Require<std::vector<double>>(kKey);
  if (scores.size() != tokens_.size()) {
    Fail(fmt::format("{} tokens have {} scores", tokens_.size(), scores.size()), kKey);
  }
  std::vector<ScoredPiece> pieces;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    pieces.push_back({std::string(tokens_[i]), static_cast<float>(scores[i]), TypeOf(i)});
  }
  const bool leading_space = file_.Get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  adds_bos_ = true;
  spec_ = SpecOfScoredPieces(pieces, leading_space ? LeadingSpace::kAlways : LeadingSpace::kNone,
                             UserDefined::kApart, file_.path());
}

// What llama.cpp knows by names: which tokens are special, and that those of Phi-3 swallow the
// white space behind them.
void Reader::ReadFlags() {
  for (AddedToken& token : spec_.added) {
    token.special = token.special || IsSpecialToLlamaCpp(spec_.tokens[token.id]);
  }
  std::string name(file_.Get<std::string_view>("general.name").value_or(""));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  constexpr std::string_view kWithout[] = {"<unk>", "<s>", "<|endoftext|>"};
  for (AddedToken& token : spec_.added) {
    token.strips_right = std::ranges::find(kWithout, spec_.tokens[token.id]) == std::end(kWithout);
  }
}

void Reader::ReadEnds() {
  const auto token = [&](const char* key) -> std::optional<TokenId> {
    const auto id = file_.Get<int64_t>(key);
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= std::ssize(spec_.tokens)) {
      Fail(fmt::format("the id {} is no token", *id), key,
           fmt::format("0 to {}", spec_.tokens.size() - 1));
    }
    return static_cast<TokenId>(*id);
  };
  const auto bos = token("tokenizer.ggml.bos_token_id");
  const auto eos = token("tokenizer.ggml.eos_token_id");
  if (file_.Get<bool>("tokenizer.ggml.add_bos_token").value_or(adds_bos_) && bos) {
    spec_.begin = {*bos};
  }
  if (file_.Get<bool>("tokenizer.ggml.add_eos_token").value_or(false) && eos) spec_.end = {*eos};
}

}  // namespace

TokenizerSpec ReadGgufTokenizer(const GgufFile& file) { return Reader(file).Read(); }

bool IsSpecialToLlamaCpp(std::string_view name) {
  return std::ranges::find(kSpecialByName, name) != std::end(kSpecialByName);
}

std::optional<std::string> GgufPreTokenizerName(const TokenizerSpec& spec) {
  for (const PreTokenizerKind& kind : KnownKinds()) {
    if (std::ranges::equal(spec.splits, kind.splits) && spec.whole_pieces == kind.whole_pieces) {
      return std::string(kind.name);
    }
  }
  return std::nullopt;
}

Tokenizer LoadAnyTokenizer(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().starts_with("GGUF")) {
    return Tokenizer(ReadGgufTokenizer(GgufFile(file.bytes(), path)), path);
  }
  return Tokenizer::Load(path);
}

}  // namespace sandglass
