#include "data/rank_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "data/split_patterns.h"

namespace sandglass {
namespace {

// The names in order from `first` on, each `name` with {} counting from 0.
void AddNumbered(RankFileKind& kind, std::string_view name, int from, int count) {
  TokenId next = kind.special.back().second + 1;
  for (int i = 0; i < count; ++i)
    kind.special.emplace_back(fmt::format(fmt::runtime(name), from + i), next++);
}

void AddNames(RankFileKind& kind, TokenId first, std::initializer_list<const char*> names) {
  for (const char* name : names) kind.special.emplace_back(name, first++);
}

RankFileKind Llama3() {
  RankFileKind kind{.name = "Llama 3", .regex = std::string(kCl100kRegex)};
  AddNames(kind, 128000,
           {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
            "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
            "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
            "<|python_tag|>", "<|image|>"});
  AddNumbered(kind, "<|reserved_special_token_{}|>", 2, 256 - 12);
  return kind;
}

RankFileKind Llama4() {
  RankFileKind kind{.name = "Llama 4", .regex = std::string(kO200kRegex)};
  constexpr const char* kText = "<|text_post_train_reserved_special_token_{}|>";
  constexpr const char* kVision = "<|vision_reserved_special_token_{}|>";
  constexpr const char* kReasoning = "<|reasoning_reserved_special_token_{}|>";
  AddNames(
      kind, 200000,
      {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
       "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"});
  AddNumbered(kind, kText, 0, 6);
  AddNames(kind, kind.special.back().second + 1,
           {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  AddNumbered(kind, kText, 61, 8);
  AddNames(kind, kind.special.back().second + 1, {"<|image_start|>", "<|image_end|>"});
  AddNumbered(kind, kVision, 0, 2);
  AddNames(kind, kind.special.back().second + 1, {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  AddNumbered(kind, kVision, 2, 4);
  AddNames(kind, kind.special.back().second + 1, {"<|image|>"});
  AddNumbered(kind, kVision, 6, 1);
  AddNames(kind, kind.special.back().second + 1, {"<|patch|>"});
  AddNumbered(kind, kVision, 1041, 7);
  AddNumbered(kind, kReasoning, 0, 8);
  AddNames(kind, kind.special.back().second + 1,
           {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  AddNumbered(kind, "<|reserved_special_token_{}|>", 0,
              2048 - static_cast<int>(kind.special.size()));
  return kind;
}

RankFileKind Qwen() {
  RankFileKind kind{
      .name = "Qwen", .regex = std::string(kQwen2Regex), .normalization = Normalization::kNfc};
  AddNames(kind, 151643, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  AddNumbered(kind, "<|extra_{}|>", 0, 205);
  return kind;
}

// The known kinds by number of ranks.
const std::vector<std::pair<size_t, RankFileKind>>& KnownKinds() {
  const std::string gpt2(kGpt2Regex);
  static const std::vector<std::pair<size_t, RankFileKind>> kinds = {
      {50256, {"r50k_base", gpt2, Normalization::kNone, {{"<|endoftext|>", 50256}}}},
      {50280, {"p50k_base", gpt2, Normalization::kNone, {{"<|endoftext|>", 50256}}}},
      {100256,
       {"cl100k_base",
        std::string(kCl100kRegex),
        Normalization::kNone,
        {{"<|endoftext|>", 100257},
         {"<|fim_prefix|>", 100258},
         {"<|fim_middle|>", 100259},
         {"<|fim_suffix|>", 100260},
         {"<|endofprompt|>", 100276}}}},
      {199998,
       {"o200k_base",
        std::string(kO200kRegex),
        Normalization::kNone,
        {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}}},
      {128000, Llama3()},
      {200000, Llama4()},
      {151643, Qwen()},
  };
  return kinds;
}

// The bytes that base64 text stands for, or nothing if it is not such text.
std::optional<std::string> DecodeBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool padded = i >= text.size() - padding;
    const size_t digit = padded ? 0 : kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xFF);
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Tokens of a list of ranks, by rank, those that are not there empty.
class RankedTokens {
 public:
  explicit RankedTokens(const std::string& where) : where_(where) {}

  void Add(std::string bytes, int64_t rank, const std::string& at) {
    if (rank < 0 || rank >= kMaxRank) {
      Fail(fmt::format("the rank {} is out of range", rank), at);
    }
    if (bytes.empty()) Fail("a token is empty", at);
    if (tokens_.size() <= static_cast<size_t>(rank)) tokens_.resize(rank + 1);
    if (!tokens_[rank].empty()) Fail(fmt::format("two tokens have the rank {}", rank), at);
    tokens_[rank] = std::move(bytes);
    ++count_;
  }
  size_t count() const { return count_; }
  std::vector<std::string>& tokens() { return tokens_; }

  [[noreturn]] void Fail(std::string what, const std::string& at) const {
    throw Error({.what = std::move(what),
                 .where = where_ + at,
                 .expected = "tokens in base64, each with a rank of its own"});
  }

 private:
  static constexpr int64_t kMaxRank = 1 << 20;
  const std::string& where_;
  std::vector<std::string> tokens_;
  size_t count_ = 0;
};

RankedTokens ReadRanks(std::string_view contents, const std::string& where) {
  RankedTokens ranks(where);
  int64_t line_number = 0;
  while (!contents.empty()) {
    ++line_number;
    std::string_view line = contents.substr(0, contents.find('\n'));
    contents.remove_prefix(std::min(contents.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string at = fmt::format(":{}", line_number);
    const size_t space = line.find(' ');
    auto bytes = DecodeBase64(line.substr(0, space));
    int64_t rank = -1;
    const std::string_view digits =
        space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
      ranks.Fail("not a line of a rank file", at);
    }
    ranks.Add(std::move(*bytes), rank, at);
  }
  return ranks;
}

TokenizerSpec MakeSpec(std::vector<std::string> tokens, const RankFileKind& kind,
                       const std::string& where) {
  TokenizerSpec spec;
  spec.splits = {kind.regex};
  spec.normalization = kind.normalization;
  spec.whole_pieces = WholePieces::kLookUp;
  std::vector<TokenId> order;
  std::unordered_map<std::string_view, TokenId> id_of;
  for (TokenId id = 0; id < std::ssize(tokens); ++id) {
    if (tokens[id].empty()) continue;
    const auto [same, is_new] = id_of.emplace(tokens[id], id);
    if (!is_new) {
      throw Error({.what = fmt::format("the ranks {} and {} have the same token", same->second, id),
                   .where = where});
    }
    order.push_back(id);
  }
  spec.merges = MergesOfTokens(tokens, order, std::vector<bool>(tokens.size(), true));
  spec.tokens = std::move(tokens);
  for (const auto& [name, id] : kind.special) {
    if (spec.tokens.size() <= static_cast<size_t>(id)) spec.tokens.resize(id + 1);
    if (!spec.tokens[id].empty()) {
      throw Error(
          {.what = fmt::format("the special token {} has the id {} of another token", name, id),
           .where = where});
    }
    spec.tokens[id] = name;
    spec.added.push_back({.id = id});
  }
  std::ranges::sort(spec.added, {}, &AddedToken::id);
  return spec;
}

}  // namespace

bool LooksLikeRankFile(std::string_view contents) {
  const std::string_view line = contents.substr(0, contents.find('\n'));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && DecodeBase64(line.substr(0, space)).has_value();
}

TokenizerSpec ParseRankFile(std::string_view contents, const std::string& where) {
  RankedTokens ranks = ReadRanks(contents, where);
  std::vector<std::string> known;
  for (const auto& [count, kind] : KnownKinds()) {
    if (count == ranks.count()) return MakeSpec(std::move(ranks.tokens()), kind, where);
    known.push_back(fmt::format("{} ({} ranks)", kind.name, count));
  }
  throw Error({.what = fmt::format("{} ranks are those of no known tokenizer", ranks.count()),
               .where = where,
               .expected = fmt::format("one of {}", fmt::join(known, ", ")),
               .remedy = "a rank file says neither pattern nor special tokens; use the "
                         "tokenizer.json of the same model"});
}

TokenizerSpec ParseRankFile(std::string_view contents, const RankFileKind& kind,
                            const std::string& where) {
  return MakeSpec(std::move(ReadRanks(contents, where).tokens()), kind, where);
}

bool LooksLikeTekken(std::string_view contents) {
  const std::string_view head = contents.substr(0, 4096);
  return head.find("\"default_num_special_tokens\"") != std::string_view::npos;
}

TokenizerSpec ParseTekken(std::string_view json, const std::string& where) {
  namespace dom = simdjson::dom;
  const auto fail = [&](std::string what) {
    throw Error({.what = std::move(what), .where = where, .expected = "a Tekken file of Mistral"});
  };
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json).get(root)) {
    fail(fmt::format("not a JSON file: {}", simdjson::error_message(error)));
  }
  std::string_view pattern;
  int64_t vocabulary = 0;
  int64_t special_count = 0;
  dom::array entries;
  if (root["config"]["pattern"].get(pattern) != simdjson::SUCCESS ||
      root["config"]["default_vocab_size"].get(vocabulary) != simdjson::SUCCESS ||
      root["config"]["default_num_special_tokens"].get(special_count) != simdjson::SUCCESS ||
      root["vocab"].get(entries) != simdjson::SUCCESS) {
    fail("the file lacks a pattern, a size or a vocabulary");
  }
  constexpr int64_t kMaxVocabulary = 1 << 20;
  if (special_count < 0 || special_count >= vocabulary || vocabulary > kMaxVocabulary) {
    fail(fmt::format("{} tokens of which {} are special are no vocabulary", vocabulary,
                     special_count));
  }
  // The file may hold more than the vocabulary uses.
  RankedTokens ranks(where);
  for (const dom::element entry : entries) {
    std::string_view text;
    int64_t rank = -1;
    if (entry["token_bytes"].get(text) != simdjson::SUCCESS ||
        entry["rank"].get(rank) != simdjson::SUCCESS) {
      fail("an entry of the vocabulary lacks its bytes or its rank");
    }
    if (rank >= vocabulary - special_count) continue;
    auto bytes = DecodeBase64(text);
    if (!bytes) fail(fmt::format("the bytes of rank {} are not in base64", rank));
    ranks.Add(std::move(*bytes), rank, "");
  }
  RankFileKind kind{.name = "Tekken", .regex = std::string(pattern)};
  TokenizerSpec spec = MakeSpec(std::move(ranks.tokens()), kind, where);
  // Special tokens come first and move the others up.
  const auto shift = static_cast<TokenId>(special_count);
  for (Merge& merge : spec.merges) {
    merge = {merge.left + shift, merge.right + shift, merge.merged + shift};
  }
  spec.tokens.insert(spec.tokens.begin(), special_count, "");
  dom::array special;
  const bool listed = root["special_tokens"].get(special) == simdjson::SUCCESS;
  // Older files leave the names to the program.
  static constexpr const char* kNames[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
  if (listed) {
    for (const dom::element entry : special) {
      std::string_view name;
      int64_t id = -1;
      if (entry["token_str"].get(name) != simdjson::SUCCESS ||
          entry["rank"].get(id) != simdjson::SUCCESS || id < 0 || id >= special_count ||
          name.empty()) {
        fail("a special token lacks its name, or its rank is out of range");
      }
      spec.tokens[id] = name;
    }
  }
  for (TokenId id = 0; id < shift; ++id) {
    if (spec.tokens[id].empty()) {
      spec.tokens[id] =
          !listed && id < std::ssize(kNames) ? kNames[id] : fmt::format("<SPECIAL_{}>", id);
    }
  }
  spec.added.clear();
  for (TokenId id = 0; id < shift; ++id) spec.added.push_back({.id = id});
  if (shift > 1 && spec.tokens[1] == "<s>") spec.begin = {1};
  return spec;
}

std::vector<Merge> MergesOfTokens(const std::vector<std::string>& tokens,
                                  const std::vector<TokenId>& order,
                                  const std::vector<bool>& may_merge) {
  std::unordered_map<std::string_view, TokenId> id_of;
  for (TokenId id = 0; id < std::ssize(tokens); ++id) {
    if (may_merge[id] && !tokens[id].empty()) id_of.emplace(tokens[id], id);
  }
  std::vector<int32_t> rank_of(tokens.size());
  for (size_t rank = 0; rank < order.size(); ++rank) rank_of[order[rank]] = static_cast<int>(rank);
  std::vector<Merge> merges;
  for (const TokenId merged : order) {
    const std::string_view bytes = tokens[merged];
    const auto first = std::ssize(merges);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = id_of.find(bytes.substr(0, cut));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(bytes.substr(cut));
      if (right != id_of.end()) merges.push_back({left->second, right->second, merged});
    }
    // The order in which other programs write them, too.
    std::sort(merges.begin() + first, merges.end(), [&](const Merge& a, const Merge& b) {
      return std::pair(rank_of[a.left], rank_of[a.right]) <
             std::pair(rank_of[b.left], rank_of[b.right]);
    });
  }
  return merges;
}

}  // namespace sandglass
