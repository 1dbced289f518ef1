#include "data/tokenizer_json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"

namespace sandglass {
namespace {

namespace dom = simdjson::dom;

// Vocabulary strings spell each byte as one printable character (from GPT-2): the printable bytes
// of Latin-1 as themselves, the others in order from U+0100.
struct ByteAlphabet {
  std::array<std::string, 256> spelling;  // UTF-8 of the byte's character, one or two bytes
  std::unordered_map<std::string_view, char> byte_of;

  ByteAlphabet() {
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const int character = printable ? byte : 0x100 + others++;
      spelling[byte] = character < 0x80 ? std::string(1, static_cast<char>(character))
                                        : std::string{static_cast<char>(0xC0 | character >> 6),
                                                      static_cast<char>(0x80 | (character & 0x3F))};
    }
    for (int byte = 0; byte < 256; ++byte) byte_of[spelling[byte]] = static_cast<char>(byte);
  }

  std::string Spell(std::string_view bytes) const {
    std::string out;
    for (const char byte : bytes) out += spelling[static_cast<unsigned char>(byte)];
    return out;
  }
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// Reads one file; remembers its name for the messages.
class Parser {
 public:
  explicit Parser(const std::string& where) : where_(where) {}
  TokenizerSpec Parse(std::string_view json);

 private:
  [[noreturn]] void Fail(std::string what, std::string expected = "") const {
    throw Error(
        {.what = std::move(what),
         .where = where_,
         .expected = std::move(expected),
         .remedy = "Sandglass reads byte-level BPE tokenizers in the tokenizer.json format"});
  }

  // The value at `key`, or JSON null if there is none.
  static dom::element Get(dom::element object, std::string_view key) {
    static dom::parser parser;
    static const dom::element null = parser.parse(std::string_view("null"));
    dom::element value;
    return object[key].get(value) == simdjson::SUCCESS ? value : null;
  }
  static std::string TypeOf(dom::element part) {
    std::string_view type;
    return Get(part, "type").get(type) == simdjson::SUCCESS ? std::string(type) : "?";
  }
  static bool IsFalse(dom::element value) {
    bool flag = true;
    return value.get(flag) == simdjson::SUCCESS && !flag;
  }
  static bool IsNullOrEmpty(dom::element value) {
    std::string_view text;
    return value.is_null() || (value.get(text) == simdjson::SUCCESS && text.empty());
  }

  void RefuseUnsupported(dom::element root) const;
  std::string ParseRegex(dom::element pre_tokenizer) const;
  void ParseVocabulary(dom::element root, TokenizerSpec& spec) const;
  void SetToken(TokenizerSpec& spec, int64_t id, std::string_view spelling) const;
  std::string Unspell(std::string_view spelling) const;
  void ParseMerges(dom::element model, TokenizerSpec& spec) const;
  std::pair<std::string_view, std::string_view> ParsePair(dom::element merge) const;

  const std::string& where_;
};

TokenizerSpec Parser::Parse(std::string_view json) {
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json).get(root)) {
    Fail(fmt::format("not a JSON file: {}", simdjson::error_message(error)));
  }
  if (!root.is_object()) Fail("not a tokenizer: the file holds no JSON object");
  RefuseUnsupported(root);
  TokenizerSpec spec;
  spec.splits = {ParseRegex(Get(root, "pre_tokenizer"))};
  ParseVocabulary(root, spec);
  ParseMerges(Get(root, "model"), spec);
  bool ignore_merges = false;
  if (Get(Get(root, "model"), "ignore_merges").get(ignore_merges) == simdjson::SUCCESS &&
      ignore_merges) {
    spec.whole_pieces = WholePieces::kLookUp;
  }
  return spec;
}

void Parser::RefuseUnsupported(dom::element root) const {
  const dom::element model = Get(root, "model");
  if (!model.is_object()) Fail("not a tokenizer: the file has no \"model\"");
  // Files of older versions leave the type out.
  if (!Get(model, "type").is_null() && TypeOf(model) != "BPE") {
    Fail(fmt::format("the tokenizer model \"{}\" is not supported", TypeOf(model)), "BPE");
  }
  for (const char* key : {"normalizer", "truncation", "padding"}) {
    if (!Get(root, key).is_null()) {
      const std::string type = Get(root, key).is_object() ? TypeOf(Get(root, key)) : "?";
      Fail(fmt::format("the tokenizer has a {} ({}), which is not supported", key, type), "null");
    }
  }
  const dom::element post_processor = Get(root, "post_processor");
  if (!post_processor.is_null() && TypeOf(post_processor) != "ByteLevel") {
    Fail(fmt::format("the post_processor \"{}\" is not supported", TypeOf(post_processor)),
         "null or ByteLevel");
  }
  const dom::element decoder = Get(root, "decoder");
  if (decoder.is_null() || TypeOf(decoder) != "ByteLevel") {
    Fail(fmt::format("the decoder \"{}\" is not supported",
                     decoder.is_null() ? "null" : TypeOf(decoder)),
         "ByteLevel");
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsNullOrEmpty(Get(model, key))) Fail(fmt::format("the model's {} is not supported", key));
  }
  if (!Get(model, "byte_fallback").is_null() && !IsFalse(Get(model, "byte_fallback"))) {
    Fail("the model's byte_fallback is not supported", "false");
  }
}

std::string Parser::ParseRegex(dom::element pre_tokenizer) const {
  constexpr const char* kExpected =
      "ByteLevel, or a Sequence of Split (by a Regex) and ByteLevel with use_regex false";
  const auto is_byte_level = [&](dom::element part, bool with_regex) {
    if (TypeOf(part) != "ByteLevel") return false;
    if (!IsFalse(Get(part, "add_prefix_space"))) {
      Fail("the pre_tokenizer's add_prefix_space is not supported", "false");
    }
    return with_regex != IsFalse(Get(part, "use_regex"));
  };
  if (!pre_tokenizer.is_object()) Fail("the tokenizer has no pre_tokenizer", kExpected);
  if (is_byte_level(pre_tokenizer, true)) return std::string(SplitRegex(SplitPattern::kGpt2));
  dom::array parts;
  if (TypeOf(pre_tokenizer) != "Sequence" ||
      Get(pre_tokenizer, "pretokenizers").get(parts) != simdjson::SUCCESS || parts.size() != 2 ||
      TypeOf(parts.at(0)) != "Split" || !is_byte_level(parts.at(1), false)) {
    Fail(fmt::format("the pre_tokenizer \"{}\" is not supported", TypeOf(pre_tokenizer)),
         kExpected);
  }
  const dom::element split = parts.at(0);
  std::string_view regex, behavior;
  if (split["pattern"]["Regex"].get(regex) != simdjson::SUCCESS) {
    Fail("the pre_tokenizer splits by something other than a Regex", kExpected);
  }
  // Removed with invert keeps exactly the matches, which is the same for a pattern that matches
  // everywhere, as those in use do.
  const bool inverted = !Get(split, "invert").is_null() && !IsFalse(Get(split, "invert"));
  if (split["behavior"].get(behavior) != simdjson::SUCCESS ||
      behavior != (inverted ? "Removed" : "Isolated")) {
    Fail(fmt::format("the pre_tokenizer's behavior \"{}\" is not supported", behavior),
         "Isolated, or Removed with invert true");
  }
  return std::string(regex);
}

void Parser::ParseVocabulary(dom::element root, TokenizerSpec& spec) const {
  dom::object vocabulary;
  if (Get(Get(root, "model"), "vocab").get(vocabulary) != simdjson::SUCCESS) {
    Fail("the model has no \"vocab\"");
  }
  // Special tokens first: their names are plain text, not spelled bytes.
  dom::array added;
  if (Get(root, "added_tokens").get(added) == simdjson::SUCCESS) {
    for (const dom::element token : added) {
      std::string_view name;
      int64_t id = 0;
      if (token["content"].get(name) != simdjson::SUCCESS ||
          token["id"].get(id) != simdjson::SUCCESS) {
        Fail("an added token lacks its content or id");
      }
      if (Get(token, "special").is_null() || IsFalse(Get(token, "special"))) {
        Fail(fmt::format("the added token \"{}\" is not special, which is not supported", name));
      }
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (!Get(token, flag).is_null() && !IsFalse(Get(token, flag))) {
          Fail(fmt::format("the added token \"{}\" has {}, which is not supported", name, flag));
        }
      }
      SetToken(spec, id, name);
      spec.added.push_back({.id = static_cast<TokenId>(id)});
    }
  }
  std::ranges::sort(spec.added, {}, &AddedToken::id);
  for (const auto& [spelling, value] : vocabulary) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS)
      Fail(fmt::format("the id of \"{}\" is no number", spelling));
    if (id >= 0 && id < std::ssize(spec.tokens) && spec.IsSpecial(static_cast<TokenId>(id)) &&
        spec.tokens[id] == spelling)
      continue;
    SetToken(spec, id, Unspell(spelling));
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty())
      Fail(fmt::format("no token has the id {}", id), "ids without gaps");
  }
}

void Parser::SetToken(TokenizerSpec& spec, int64_t id, std::string_view spelling) const {
  constexpr int64_t kMaxVocabulary = 1 << 24;
  if (id < 0 || id >= kMaxVocabulary) {
    Fail(fmt::format("the id {} of \"{}\" is out of range", id, spelling));
  }
  if (spec.tokens.size() <= static_cast<size_t>(id)) spec.tokens.resize(id + 1);
  if (spelling.empty()) Fail(fmt::format("token {} is empty", id));
  if (!spec.tokens[id].empty()) Fail(fmt::format("two tokens have the id {}", id));
  spec.tokens[id] = spelling;
}

std::string Parser::Unspell(std::string_view spelling) const {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const size_t length = static_cast<unsigned char>(spelling[i]) < 0x80 ? 1 : 2;
    const auto found = Alphabet().byte_of.find(spelling.substr(i, length));
    if (found == Alphabet().byte_of.end()) {
      Fail(fmt::format("the token \"{}\" is not spelled in the byte-level alphabet", spelling),
           "characters that each stand for one byte, such as \"Ġ\" for a space");
    }
    bytes += found->second;
    i += length;
  }
  return bytes;
}

void Parser::ParseMerges(dom::element model, TokenizerSpec& spec) const {
  dom::array merges;
  if (Get(model, "merges").get(merges) != simdjson::SUCCESS) Fail("the model has no \"merges\"");
  std::unordered_map<std::string_view, TokenId> id_of;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.IsSpecial(static_cast<TokenId>(id))) {
      id_of.emplace(spec.tokens[id], static_cast<TokenId>(id));
    }
  }
  for (const dom::element merge : merges) {
    const auto [left, right] = ParsePair(merge);
    const auto id = [&](const std::string& bytes) {
      const auto found = id_of.find(bytes);
      if (found == id_of.end()) {
        Fail(fmt::format("the merge \"{} {}\" uses a token that is not in the vocabulary", left,
                         right));
      }
      return found->second;
    };
    const std::string left_bytes = Unspell(left);
    const std::string right_bytes = Unspell(right);
    spec.merges.push_back({id(left_bytes), id(right_bytes), id(left_bytes + right_bytes)});
  }
}

// A merge is ["a", "b"], or "a b" in files of older versions.
std::pair<std::string_view, std::string_view> Parser::ParsePair(dom::element merge) const {
  std::string_view left, right;
  if (dom::array pair; merge.get(pair) == simdjson::SUCCESS) {
    if (pair.size() == 2 && pair.at(0).get(left) == simdjson::SUCCESS &&
        pair.at(1).get(right) == simdjson::SUCCESS) {
      return {left, right};
    }
  } else if (std::string_view text; merge.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space != std::string_view::npos) return {text.substr(0, space), text.substr(space + 1)};
  }
  Fail(fmt::format("the merge {} is not a pair of tokens", simdjson::minify(merge)));
}

// `text`, valid UTF-8, as a JSON string.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string ByteLevelPart(const char* use_regex) {
  return fmt::format(
      R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": {}}})",
      use_regex);
}

}  // namespace

TokenizerSpec ParseTokenizerJson(std::string_view json, const std::string& where) {
  return Parser(where).Parse(json);
}

std::vector<std::string> BaseTokens() {
  std::vector<std::pair<std::string, char>> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(Alphabet().spelling[byte], static_cast<char>(byte));
  }
  std::sort(bytes.begin(), bytes.end());  // UTF-8 sorts as the characters do
  std::vector<std::string> tokens = {std::string(kEndOfText)};
  for (const auto& [spelling, byte] : bytes) tokens.emplace_back(1, byte);
  return tokens;
}

std::string SpellBytes(std::string_view bytes) { return Alphabet().Spell(bytes); }

std::string FormatTokenizerJson(const TokenizerSpec& spec) {
  const auto spelled = [&](size_t id) {
    return Quoted(spec.IsSpecial(static_cast<TokenId>(id)) ? spec.tokens[id]
                                                           : Alphabet().Spell(spec.tokens[id]));
  };
  std::string out = "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n";
  out += "\"added_tokens\": [";
  const char* separator = "\n";
  for (const auto& [id, special, normalized] : spec.added) {
    out += fmt::format(
        R"({}{{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, )"
        R"("normalized": false, "special": true}})",
        separator, id, spelled(id));
    separator = ",\n";
  }
  out += "\n],\n\"normalizer\": null,\n\"pre_tokenizer\": ";
  if (spec.splits[0] == SplitRegex(SplitPattern::kGpt2)) {
    out += ByteLevelPart("true");
  } else {
    out += fmt::format(R"({{"type": "Sequence", "pretokenizers": [
{{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}},
{}
]}})",
                       Quoted(spec.splits[0]), ByteLevelPart("false"));
  }
  out += ",\n\"post_processor\": null,\n\"decoder\": " + ByteLevelPart("true");
  out += fmt::format(R"(,
"model": {{
"type": "BPE",
"dropout": null,
"unk_token": null,
"continuing_subword_prefix": null,
"end_of_word_suffix": null,
"fuse_unk": false,
"byte_fallback": false,
"ignore_merges": {},
"vocab": {{)",
                     spec.whole_pieces == WholePieces::kLookUp);
  separator = "\n";
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    out += fmt::format("{}{}: {}", separator, spelled(id), id);
    separator = ",\n";
  }
  out += "\n},\n\"merges\": [";
  separator = "\n";
  for (const Merge& merge : spec.merges) {
    out += fmt::format("{}[{}, {}]", separator, spelled(merge.left), spelled(merge.right));
    separator = ",\n";
  }
  out += "\n]\n}\n}\n";
  return out;
}

}  // namespace sandglass
