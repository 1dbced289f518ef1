#include "data/tokenizer_json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "data/split_patterns.h"
#include "data/unicode.h"

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

// The byte that a name such as "<0x0A>" stands for.
std::optional<unsigned char> ByteOfName(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(name[3]);
  const size_t low = kDigits.find(name[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

// `text` as a regular expression that matches nothing else.
std::string EscapeRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

// Reads one file; remembers its name for the messages.
class Parser {
 public:
  explicit Parser(const std::string& where) : where_(where) {}
  TokenizerSpec Parse(std::string_view json);

 private:
  [[noreturn]] void Fail(std::string what, std::string expected = "") const {
    throw Error({.what = std::move(what),
                 .where = where_,
                 .expected = std::move(expected),
                 .remedy = "Sandglass reads BPE tokenizers, byte-level or with byte fallback, in "
                           "the tokenizer.json format"});
  }

  // The value at `key`, or JSON null if there is none.
  static dom::element Get(dom::element object, std::string_view key) {
    static dom::parser parser;
    static const dom::element null = parser.parse(std::string_view("null"));
    dom::element value;
    return object[key].get(value) == simdjson::SUCCESS ? value : null;
  }
  static std::string_view Text(dom::element value) {
    std::string_view text;
    return value.get(text) == simdjson::SUCCESS ? text : std::string_view();
  }
  static std::string TypeOf(dom::element part) {
    std::string_view type;
    return Get(part, "type").get(type) == simdjson::SUCCESS ? std::string(type) : "?";
  }
  static bool IsFalse(dom::element value) {
    bool flag = true;
    return value.get(flag) == simdjson::SUCCESS && !flag;
  }
  static bool IsTrue(dom::element value) {
    bool flag = false;
    return value.get(flag) == simdjson::SUCCESS && flag;
  }
  static bool IsNullOrEmpty(dom::element value) {
    std::string_view text;
    return value.is_null() || (value.get(text) == simdjson::SUCCESS && text.empty());
  }

  // `part`, or what it lists under `key` if it is a Sequence, in depth.
  void Flatten(dom::element part, std::string_view key, std::vector<dom::element>& out) const;

  void RefuseUnsupported(dom::element root) const;
  void ParseNormalizer(dom::element normalizer);
  void ParsePreTokenizer(dom::element pre_tokenizer);
  void ParseSplit(dom::element split);
  void ParseMetaspace(dom::element metaspace);
  void ChooseSymbols(dom::element root);
  void ParseDecoder(dom::element decoder) const;
  void ParseAddedTokens(dom::element root);
  void ParseVocabulary(dom::element root);
  void SetToken(int64_t id, std::string_view bytes, std::string_view spelling);
  std::string Unspell(std::string_view spelling) const;
  void ParseMerges(dom::element model);
  std::pair<std::string_view, std::string_view> ParsePair(dom::element merge) const;
  void ParsePostProcessor(dom::element post_processor);
  void ParseTemplate(dom::element post_processor);

  const std::string& where_;
  TokenizerSpec spec_;
  std::unordered_map<std::string_view, TokenId> id_of_;  // by spelling
  int64_t max_ids_ = 0;
  bool byte_level_ = false;    // ByteLevel among the pre-tokenizers
  bool marks_spaces_ = false;  // a normalizer or a pre-tokenizer turns spaces into marks
  bool marks_late_ = false;    // it is a pre-tokenizer
};

TokenizerSpec Parser::Parse(std::string_view json) {
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json).get(root)) {
    Fail(fmt::format("not a JSON file: {}", simdjson::error_message(error)));
  }
  if (!root.is_object()) Fail("not a tokenizer: the file holds no JSON object");
  RefuseUnsupported(root);
  ParseNormalizer(Get(root, "normalizer"));
  ParsePreTokenizer(Get(root, "pre_tokenizer"));
  ChooseSymbols(root);
  ParseDecoder(Get(root, "decoder"));
  ParseAddedTokens(root);
  ParseVocabulary(root);
  ParseMerges(Get(root, "model"));
  ParsePostProcessor(Get(root, "post_processor"));
  if (IsTrue(Get(Get(root, "model"), "ignore_merges"))) {
    spec_.whole_pieces = WholePieces::kLookUp;
  }
  return std::move(spec_);
}

void Parser::Flatten(dom::element part, std::string_view key,
                     std::vector<dom::element>& out) const {
  if (part.is_null()) return;
  if (!part.is_object()) Fail(fmt::format("a part of {} is no JSON object", key));
  if (TypeOf(part) != "Sequence") return out.push_back(part);
  dom::array parts;
  if (Get(part, key).get(parts) != simdjson::SUCCESS) {
    Fail(fmt::format("a Sequence has no list \"{}\"", key));
  }
  for (const dom::element inner : parts) Flatten(inner, key, out);
}

void Parser::RefuseUnsupported(dom::element root) const {
  const dom::element model = Get(root, "model");
  if (!model.is_object()) Fail("not a tokenizer: the file has no \"model\"");
  // Files of older versions leave the type out.
  if (!Get(model, "type").is_null() && TypeOf(model) != "BPE") {
    Fail(fmt::format("the tokenizer model \"{}\" is not supported", TypeOf(model)), "BPE");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (!Get(root, key).is_null()) {
      Fail(fmt::format("the tokenizer has a {}, which is not supported", key), "null");
    }
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!IsNullOrEmpty(Get(model, key))) Fail(fmt::format("the model's {} is not supported", key));
  }
}

void Parser::ParseNormalizer(dom::element normalizer) {
  std::vector<dom::element> parts;
  Flatten(normalizer, "normalizers", parts);
  for (const dom::element part : parts) {
    const std::string type = TypeOf(part);
    if (type == "NFC" || type == "NFKC") {
      spec_.normalization = type == "NFC" ? Normalization::kNfc : Normalization::kNfkc;
    } else if (type == "Prepend" && Text(Get(part, "prepend")) == kSpaceMark) {
      spec_.leading_space = LeadingSpace::kAlways;
    } else if (type == "Replace" && Text(Get(Get(part, "pattern"), "String")) == " " &&
               Text(Get(part, "content")) == kSpaceMark) {
      marks_spaces_ = true;
    } else {
      Fail(fmt::format("the normalizer {} is not supported", simdjson::minify(part)),
           "null, NFC, NFKC, or Prepend and Replace of a space by \xE2\x96\x81");
    }
  }
  if (spec_.leading_space == LeadingSpace::kAlways && !marks_spaces_) {
    Fail("a normalizer prepends a mark for a space, and none replaces spaces by it");
  }
}

void Parser::ParsePreTokenizer(dom::element pre_tokenizer) {
  std::vector<dom::element> parts;
  Flatten(pre_tokenizer, "pretokenizers", parts);
  for (const dom::element part : parts) {
    const std::string type = TypeOf(part);
    if (byte_level_) {
      Fail(fmt::format("the pre_tokenizer \"{}\" comes after ByteLevel, which is not supported",
                       type));
    }
    if (type == "ByteLevel") {
      if (!IsFalse(Get(part, "add_prefix_space"))) {
        Fail("the pre_tokenizer's add_prefix_space is not supported", "false");
      }
      byte_level_ = true;
      if (!IsFalse(Get(part, "use_regex"))) {
        spec_.splits.emplace_back(kGpt2Regex);
      }
    } else if (type == "Split") {
      ParseSplit(part);
    } else if (type == "Digits") {
      spec_.splits.emplace_back(IsTrue(Get(part, "individual_digits")) ? kNumberRegex
                                                                       : R"(\p{N}+)");
    } else if (type == "Metaspace") {
      ParseMetaspace(part);
    } else {
      Fail(fmt::format("the pre_tokenizer \"{}\" is not supported", type),
           "ByteLevel, Split, Digits or Metaspace");
    }
  }
}

void Parser::ParseSplit(dom::element split) {
  const dom::element pattern = Get(split, "pattern");
  const std::string_view literal = Text(Get(pattern, "String"));
  const std::string regex =
      literal.empty() ? std::string(Text(Get(pattern, "Regex"))) : EscapeRegex(literal);
  if (regex.empty()) Fail("the pre_tokenizer Split has no pattern", "a Regex or a String");
  // Removed with invert keeps exactly the matches, which is the same for a pattern that matches
  // everywhere, as those in use do.
  const bool inverted = IsTrue(Get(split, "invert"));
  const std::string_view behavior = Text(Get(split, "behavior"));
  if (behavior != (inverted ? "Removed" : "Isolated")) {
    Fail(fmt::format("the pre_tokenizer's behavior \"{}\" is not supported", behavior),
         "Isolated, or Removed with invert true");
  }
  spec_.splits.push_back(regex);
}

void Parser::ParseMetaspace(dom::element metaspace) {
  if (Text(Get(metaspace, "replacement")) != kSpaceMark) {
    Fail("the pre_tokenizer Metaspace has another replacement", "\"\xE2\x96\x81\"");
  }
  if (spec_.leading_space != LeadingSpace::kNone) {
    Fail("both a normalizer and the pre_tokenizer Metaspace are there to prepend a space");
  }
  marks_spaces_ = true;
  marks_late_ = true;
  std::string_view scheme = Text(Get(metaspace, "prepend_scheme"));
  if (scheme.empty()) {  // as older files say it
    scheme = IsFalse(Get(metaspace, "add_prefix_space")) ? "never" : "always";
  }
  if (scheme == "always") {
    spec_.leading_space = LeadingSpace::kUnlessSpace;
  } else if (scheme == "first") {
    spec_.leading_space = LeadingSpace::kFirstUnlessSpace;
  } else if (scheme != "never") {
    Fail(fmt::format("unknown prepend_scheme \"{}\"", scheme), "always, first or never");
  }
  if (!IsFalse(Get(metaspace, "split"))) spec_.splits.emplace_back(kEachSpaceRegex);
}

void Parser::ChooseSymbols(dom::element root) {
  const bool byte_fallback = IsTrue(Get(Get(root, "model"), "byte_fallback"));
  if (byte_level_ && !marks_spaces_) {
    if (byte_fallback) Fail("byte_fallback together with ByteLevel is not supported", "false");
    return;
  }
  if (byte_level_ || !marks_spaces_ || !byte_fallback) {
    Fail("the tokenizer is neither byte-level nor one with marks for spaces and byte_fallback",
         "the pre_tokenizer ByteLevel; or a normalizer or Metaspace that turns spaces into "
         "\xE2\x96\x81, and byte_fallback true");
  }
  spec_.symbols = Symbols::kCharacters;
  // Patterns see marks; here they see the spaces themselves.
  for (std::string& regex : spec_.splits) regex = SpacesForMarks(regex);
}

void Parser::ParseDecoder(dom::element decoder) const {
  if (spec_.symbols == Symbols::kBytes) {
    if (decoder.is_null() || TypeOf(decoder) != "ByteLevel") {
      Fail(fmt::format("the decoder \"{}\" is not supported",
                       decoder.is_null() ? "null" : TypeOf(decoder)),
           "ByteLevel");
    }
    return;
  }
  std::vector<dom::element> parts;
  Flatten(decoder, "decoders", parts);
  for (const dom::element part : parts) {
    const std::string type = TypeOf(part);
    if (type != "Replace" && type != "ByteFallback" && type != "Fuse" && type != "Strip" &&
        type != "Metaspace") {
      Fail(fmt::format("the decoder \"{}\" is not supported", type),
           "Replace, ByteFallback, Fuse, Strip or Metaspace");
    }
  }
}

void Parser::ParseAddedTokens(dom::element root) {
  dom::object vocabulary;
  dom::array added;
  if (Get(Get(root, "model"), "vocab").get(vocabulary) != simdjson::SUCCESS) {
    Fail("the model has no \"vocab\"");
  }
  const bool any = Get(root, "added_tokens").get(added) == simdjson::SUCCESS;
  // Some ids may be unused, as in the vocabularies of OpenAI, but not nearly all of them.
  max_ids_ = 4096;
  for ([[maybe_unused]] const auto field : vocabulary) max_ids_ += 4;
  if (!any) return;
  for ([[maybe_unused]] const dom::element token : added) max_ids_ += 4;
  for (const dom::element token : added) {
    std::string_view name;
    int64_t id = 0;
    if (Get(token, "content").get(name) != simdjson::SUCCESS ||
        Get(token, "id").get(id) != simdjson::SUCCESS) {
      Fail("an added token lacks its content or id");
    }
    const AddedToken parsed{.id = static_cast<TokenId>(id),
                            .special = IsTrue(Get(token, "special")),
                            .normalized = IsTrue(Get(token, "normalized")),
                            .single_word = IsTrue(Get(token, "single_word")),
                            .strips_left = IsTrue(Get(token, "lstrip")),
                            .strips_right = IsTrue(Get(token, "rstrip"))};
    const bool about_spaces = parsed.strips_left || parsed.strips_right ||
                              SpacesForMarks(name).find(' ') != std::string::npos;
    if (parsed.normalized && about_spaces && marks_late_ &&
        spec_.leading_space == LeadingSpace::kNone) {
      Fail(fmt::format("the added token \"{}\" is looked for before Metaspace turns spaces into "
                       "marks, which is not supported with prepend_scheme never",
                       name),
           "normalized false");
    }
    SetToken(id, name, name);
    spec_.added.push_back(parsed);
  }
  std::ranges::sort(spec_.added, {}, &AddedToken::id);
}

void Parser::ParseVocabulary(dom::element root) {
  const bool characters = spec_.symbols == Symbols::kCharacters;
  std::vector<TokenId> byte_tokens(characters ? 256 : 0, -1);
  size_t bytes_found = 0;
  for (const auto& [spelling, value] : dom::object(Get(Get(root, "model"), "vocab"))) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS) {
      Fail(fmt::format("the id of \"{}\" is no number", spelling));
    }
    const auto byte = characters ? ByteOfName(spelling) : std::nullopt;
    const bool known =
        id >= 0 && id < std::ssize(spec_.tokens) && spec_.IsAdded(static_cast<TokenId>(id));
    if (known && (spec_.tokens[id] == spelling ||
                  (!characters && Alphabet().Spell(spec_.tokens[id]) == spelling))) {
      // Its text is known from the added tokens.
    } else if (byte) {
      SetToken(id, std::string(1, static_cast<char>(*byte)), spelling);
      bytes_found += byte_tokens[*byte] < 0 ? 1 : 0;
      byte_tokens[*byte] = static_cast<TokenId>(id);
    } else {
      SetToken(id, characters ? SpacesForMarks(spelling) : Unspell(spelling), spelling);
    }
    if (!id_of_.emplace(spelling, static_cast<TokenId>(id)).second) {
      Fail(fmt::format("the token \"{}\" is twice in the vocabulary", spelling));
    }
  }
  if (bytes_found == byte_tokens.size()) spec_.byte_fallback = std::move(byte_tokens);
}

void Parser::SetToken(int64_t id, std::string_view bytes, std::string_view spelling) {
  if (id < 0 || id >= max_ids_) {
    Fail(fmt::format("the id {} of \"{}\" is out of range", id, spelling),
         fmt::format("0 to {} in a vocabulary of this size", max_ids_ - 1));
  }
  if (spec_.tokens.size() <= static_cast<size_t>(id)) spec_.tokens.resize(id + 1);
  if (bytes.empty()) Fail(fmt::format("token {} is empty", id));
  if (!spec_.tokens[id].empty()) Fail(fmt::format("two tokens have the id {}", id));
  spec_.tokens[id] = bytes;
}

std::string Parser::Unspell(std::string_view spelling) const {
  if (auto bytes = UnspellBytes(spelling)) return *std::move(bytes);
  Fail(fmt::format("the token \"{}\" is not spelled in the byte-level alphabet", spelling),
       "characters that each stand for one byte, such as \"Ġ\" for a space");
}

void Parser::ParseMerges(dom::element model) {
  dom::array merges;
  if (Get(model, "merges").get(merges) != simdjson::SUCCESS) Fail("the model has no \"merges\"");
  std::string joined;
  for (const dom::element merge : merges) {
    const std::pair<std::string_view, std::string_view> pair = ParsePair(merge);
    const auto& left = pair.first;
    const auto& right = pair.second;
    joined = left;
    joined += right;
    const auto id = [&](std::string_view spelling) {
      const auto found = id_of_.find(spelling);
      if (found == id_of_.end() || spec_.IsSpecial(found->second)) {
        Fail(fmt::format("the merge \"{} {}\" uses a token that is not in the vocabulary", left,
                         right));
      }
      return found->second;
    };
    spec_.merges.push_back({id(left), id(right), id(joined)});
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

void Parser::ParsePostProcessor(dom::element post_processor) {
  std::vector<dom::element> parts;
  Flatten(post_processor, "processors", parts);
  for (const dom::element part : parts) {
    const std::string type = TypeOf(part);
    if (type == "TemplateProcessing") {
      ParseTemplate(part);
    } else if (type != "ByteLevel") {  // which changes offsets alone
      Fail(fmt::format("the post_processor \"{}\" is not supported", type),
           "null, ByteLevel or TemplateProcessing");
    }
  }
}

void Parser::ParseTemplate(dom::element post_processor) {
  dom::array items;
  if (Get(post_processor, "single").get(items) != simdjson::SUCCESS) {
    Fail("the post_processor TemplateProcessing has no list \"single\"");
  }
  std::vector<TokenId>* side = &spec_.begin;
  for (const dom::element item : items) {
    const dom::element special = Get(item, "SpecialToken");
    if (special.is_null()) {
      if (Text(Get(Get(item, "Sequence"), "id")) != "A" || side == &spec_.end) {
        Fail("the post_processor's template is not one text with special tokens around it");
      }
      side = &spec_.end;
      continue;
    }
    const std::string_view name = Text(Get(special, "id"));
    dom::array ids;
    if (Get(Get(Get(post_processor, "special_tokens"), name), "ids").get(ids) !=
        simdjson::SUCCESS) {
      Fail(fmt::format("the post_processor does not say the ids of \"{}\"", name));
    }
    for (const dom::element element : ids) {
      int64_t id = -1;
      if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= std::ssize(spec_.tokens)) {
        Fail(fmt::format("the post_processor gives \"{}\" an id that is no token", name));
      }
      side->push_back(static_cast<TokenId>(id));
    }
  }
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

std::string SpellBytes(std::string_view bytes) { return Alphabet().Spell(bytes); }

std::optional<std::string> UnspellBytes(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const size_t length = static_cast<unsigned char>(spelling[i]) < 0x80 ? 1 : 2;
    const auto found = Alphabet().byte_of.find(spelling.substr(i, length));
    if (found == Alphabet().byte_of.end()) return std::nullopt;
    bytes += found->second;
    i += length;
  }
  return bytes;
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

namespace {

// Writes one spec in the canonical form.
class Formatter {
 public:
  explicit Formatter(const TokenizerSpec& spec) : spec_(spec) {
    if (spec_.symbols == Symbols::kBytes) return;
    byte_names_.resize(spec_.tokens.size());
    for (size_t byte = 0; byte < spec_.byte_fallback.size(); ++byte) {
      byte_names_[spec_.byte_fallback[byte]] = fmt::format("<0x{:02X}>", byte);
    }
  }
  std::string Format() const;

 private:
  // How `id` is called in the vocabulary.
  std::string Spelled(TokenId id) const {
    const std::string& token = spec_.tokens[id];
    if (spec_.IsAdded(id)) return Quoted(token);
    if (spec_.symbols == Symbols::kBytes) return Quoted(Alphabet().Spell(token));
    return Quoted(byte_names_[id].empty() ? MarksForSpaces(token) : byte_names_[id]);
  }
  std::string AddedTokens() const;
  std::string Normalizer() const;
  std::string PreTokenizer() const;
  std::string PostProcessor() const;
  std::string Decoder() const;
  static std::string Split(std::string_view regex) {
    return fmt::format(
        R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}})",
        Quoted(regex));
  }
  // One part, several as a Sequence, or null.
  static std::string Sequence(const char* key, const std::vector<std::string>& parts) {
    if (parts.empty()) return "null";
    if (parts.size() == 1) return parts[0];
    return fmt::format("{{\"type\": \"Sequence\", \"{}\": [\n{}\n]}}", key,
                       fmt::join(parts, ",\n"));
  }

  const TokenizerSpec& spec_;
  std::vector<std::string> byte_names_;  // of the tokens for single bytes, with kCharacters
};

std::string Formatter::AddedTokens() const {
  std::string out = "[";
  const char* separator = "\n";
  for (const AddedToken& token : spec_.added) {
    out += fmt::format(
        R"({}{{"id": {}, "content": {}, "single_word": {}, "lstrip": {}, "rstrip": {}, )"
        R"("normalized": {}, "special": {}}})",
        separator, token.id, Quoted(spec_.tokens[token.id]), token.single_word, token.strips_left,
        token.strips_right, token.normalized, token.special);
    separator = ",\n";
  }
  return out + "\n]";
}

std::string Formatter::Normalizer() const {
  std::vector<std::string> parts;
  if (spec_.normalization == Normalization::kNfc) parts.push_back(R"({"type": "NFC"})");
  if (spec_.normalization == Normalization::kNfkc) parts.push_back(R"({"type": "NFKC"})");
  if (spec_.symbols == Symbols::kCharacters) {
    if (spec_.leading_space == LeadingSpace::kAlways) {
      parts.push_back(fmt::format(R"({{"type": "Prepend", "prepend": "{}"}})", kSpaceMark));
    }
    if (spec_.leading_space == LeadingSpace::kAlways ||
        spec_.leading_space == LeadingSpace::kNone) {
      parts.push_back(fmt::format(
          R"({{"type": "Replace", "pattern": {{"String": " "}}, "content": "{}"}})", kSpaceMark));
    }
  }
  return Sequence("normalizers", parts);
}

std::string Formatter::PreTokenizer() const {
  std::vector<std::string> parts;
  if (spec_.symbols == Symbols::kBytes) {
    const bool gpt2 = !spec_.splits.empty() && spec_.splits.back() == kGpt2Regex;
    for (const std::string& regex : spec_.splits) {
      if (!gpt2 || &regex != &spec_.splits.back()) parts.push_back(Split(regex));
    }
    parts.push_back(ByteLevelPart(gpt2 ? "true" : "false"));
    return Sequence("pretokenizers", parts);
  }
  std::span<const std::string> splits = spec_.splits;
  if (spec_.leading_space == LeadingSpace::kUnlessSpace ||
      spec_.leading_space == LeadingSpace::kFirstUnlessSpace) {
    const bool each = !splits.empty() && splits[0] == kEachSpaceRegex;
    if (each) splits = splits.subspan(1);
    parts.push_back(fmt::format(
        R"({{"type": "Metaspace", "replacement": "{}", "prepend_scheme": "{}", "split": {}}})",
        kSpaceMark, spec_.leading_space == LeadingSpace::kUnlessSpace ? "always" : "first", each));
  }
  for (const std::string& regex : splits) parts.push_back(Split(MarksForSpaces(regex)));
  return Sequence("pretokenizers", parts);
}

std::string Formatter::PostProcessor() const {
  if (spec_.begin.empty() && spec_.end.empty()) return "null";
  const auto items = [&](const std::vector<TokenId>& ids) {
    std::vector<std::string> parts;
    for (const TokenId id : ids) {
      parts.push_back(fmt::format(R"({{"SpecialToken": {{"id": {}, "type_id": 0}}}})",
                                  Quoted(spec_.tokens[id])));
    }
    return parts;
  };
  std::vector<std::string> single = items(spec_.begin);
  single.push_back(R"({"Sequence": {"id": "A", "type_id": 0}})");
  for (std::string& part : items(spec_.end)) single.push_back(std::move(part));
  std::vector<std::string> pair = single;
  for (std::string part : single) {
    pair.push_back(part.starts_with(R"({"Seq)") ? R"({"Sequence": {"id": "B", "type_id": 0}})"
                                                : std::move(part));
  }
  std::set<TokenId> ids(spec_.begin.begin(), spec_.begin.end());
  ids.insert(spec_.end.begin(), spec_.end.end());
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const std::string name = Quoted(spec_.tokens[id]);
    tokens.push_back(
        fmt::format(R"({}: {{"id": {}, "ids": [{}], "tokens": [{}]}})", name, name, id, name));
  }
  return fmt::format(
      "{{\"type\": \"TemplateProcessing\",\n\"single\": [{}],\n\"pair\": [{}],\n"
      "\"special_tokens\": {{{}}}}}",
      fmt::join(single, ", "), fmt::join(pair, ", "), fmt::join(tokens, ", "));
}

std::string Formatter::Decoder() const {
  if (spec_.symbols == Symbols::kBytes) return ByteLevelPart("true");
  std::vector<std::string> parts = {
      fmt::format(R"({{"type": "Replace", "pattern": {{"String": "{}"}}, "content": " "}})",
                  kSpaceMark),
      R"({"type": "ByteFallback"})", R"({"type": "Fuse"})"};
  if (spec_.leading_space != LeadingSpace::kNone) {
    parts.push_back(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})");
  }
  return Sequence("decoders", parts);
}

std::string Formatter::Format() const {
  std::string out = "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n";
  out += "\"added_tokens\": " + AddedTokens();
  out += ",\n\"normalizer\": " + Normalizer();
  out += ",\n\"pre_tokenizer\": " + PreTokenizer();
  out += ",\n\"post_processor\": " + PostProcessor();
  out += ",\n\"decoder\": " + Decoder();
  out += fmt::format(R"(,
"model": {{
"type": "BPE",
"dropout": null,
"unk_token": null,
"continuing_subword_prefix": null,
"end_of_word_suffix": null,
"fuse_unk": false,
"byte_fallback": {},
"ignore_merges": {},
"vocab": {{)",
                     spec_.symbols == Symbols::kCharacters,
                     spec_.whole_pieces == WholePieces::kLookUp);
  const char* separator = "\n";
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    if (spec_.tokens[id].empty()) continue;
    out += fmt::format("{}{}: {}", separator, Spelled(static_cast<TokenId>(id)), id);
    separator = ",\n";
  }
  out += "\n},\n\"merges\": [";
  separator = "\n";
  for (const Merge& merge : spec_.merges) {
    out += fmt::format("{}[{}, {}]", separator, Spelled(merge.left), Spelled(merge.right));
    separator = ",\n";
  }
  return out + "\n]\n}\n}\n";
}

}  // namespace

std::string FormatTokenizerJson(const TokenizerSpec& spec) { return Formatter(spec).Format(); }

}  // namespace sandglass
