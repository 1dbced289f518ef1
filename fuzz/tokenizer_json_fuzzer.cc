// A tokenizer.json: an Error, or a tokenizer that loses nothing and can be written and read again.
// The input is such a file if it begins with "{". Any other input is taken as the choices by which
// one is put together, most of them sound, so that what lies behind the outer checks is reached:
// normalizers, pre-tokenizers, added tokens, merges, decoders, templates.
#include <fmt/format.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "data/unicode.h"

namespace sandglass {
namespace {

constexpr std::string_view kText =
    "In the beginning\r\n  12345 \xE6\xBC\xA2\xFF\xE2\x96\x81 don't <x> a_<y>\xC2\xA0 e\xCC\x81";

void Require(bool condition) {
  if (!condition) std::abort();
}

// Whether decoding must give every text back.
bool KeepsText(const TokenizerSpec& spec) {
  if (spec.normalization != Normalization::kNone || spec.symbols != Symbols::kBytes) return false;
  for (const AddedToken& token : spec.added) {
    if (token.strips_left || token.strips_right) return false;
  }
  return true;
}

class Maker {
 public:
  Maker(const uint8_t* data, size_t size) : choices_(data, size) {}

  Json Make() {
    characters_ = choices_.ConsumeBool();
    Json json = {{"added_tokens", Json::array()}, {"model", Model()}};
    for (int i = Below(5); i > 0; --i) json["added_tokens"].push_back(AddedToken());
    json["normalizer"] = Part("normalizers", [&] { return Normalizer(); });
    json["pre_tokenizer"] = Part("pretokenizers", [&] { return PreTokenizer(); });
    if (!characters_ && !Odd()) {
      json["pre_tokenizer"] = {
          {"type", "Sequence"},
          {"pretokenizers", {json["pre_tokenizer"], ByteLevel()}},
      };
      if (json["pre_tokenizer"]["pretokenizers"][0].is_null()) json["pre_tokenizer"] = ByteLevel();
    }
    if (characters_ && !Odd()) json["normalizer"] = Marks();
    json["decoder"] = characters_ ? Part("decoders", [&] { return Decoder(); }) : ByteLevel();
    if (Odd()) json["decoder"] = Decoder();
    json["post_processor"] = Part("processors", [&] { return Template(); });
    if (Odd()) json[Word()] = Scalar();
    return json;
  }

  std::string Rest() { return choices_.ConsumeRemainingBytesAsString(); }

 private:
  int Below(int end) { return choices_.ConsumeIntegralInRange(0, end - 1); }
  // True once in a while: something is to be unlike what it should be.
  bool Odd() { return Below(16) == 15; }
  template <class T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }
  std::string Word() {
    return OneOf<const char*>({"a", "the", " ", "  ", "\xE2\x96\x81", "<x>", "<y>", "x>", "_", "1",
                               "\xC3\xA9", "e\xCC\x81", "\xE2\x84\xAB", "<0x41>", "\xC4\xA0", ""});
  }
  Json Scalar() {
    return OneOf<Json>(
        {nullptr, true, false, 0, -1, 1 << 30, 0.5, "", "a", Json::array(), Json::object()});
  }
  Json Flag() { return Odd() ? Scalar() : Json(choices_.ConsumeBool()); }
  Json Id() { return Odd() ? Scalar() : Json(Below(320)); }

  // Nothing, one part, or a sequence of them.
  template <class MakePart>
  Json Part(const char* key, const MakePart& make) {
    const int count = Below(4);
    if (count == 0) return nullptr;
    if (count == 1) return make();
    Json parts = Json::array();
    for (int i = 1; i < count; ++i) parts.push_back(make());
    return {{"type", "Sequence"}, {Odd() ? "parts" : key, parts}};
  }

  Json Marks() {
    Json parts = Json::array();
    if (choices_.ConsumeBool()) {
      parts.push_back({{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}});
    }
    parts.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}});
    return {{"type", "Sequence"}, {"normalizers", parts}};
  }
  Json Normalizer() {
    return OneOf<Json>(
        {{{"type", "NFC"}},
         {{"type", "NFKC"}},
         {{"type", "Prepend"}, {"prepend", Word()}},
         {{"type", "Replace"}, {"pattern", {{"String", Word()}}}, {"content", Word()}},
         {{"type", Word()}}});
  }
  Json ByteLevel() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", Odd()}, {"use_regex", Flag()}};
  }
  Json PreTokenizer() {
    const Json regex = OneOf<const char*>(
        {R"(\p{N})", R"(\p{N}{1,3})", R"(\s+(?!\S)|\s+|\S+)", "[a-c]+", "(?:a|b)?", "(a*)*b", "[",
         R"([^\r\n\p{L}\p{N}]?\p{L}+)", R"(\w)", "^a", " ?[^(\\s|.,!?)]+"});
    return OneOf<Json>(
        {{{"type", "Split"},
          {"pattern", {{OneOf<const char*>({"Regex", "String"}), regex}}},
          {"behavior", OneOf<const char*>({"Isolated", "Removed", "MergedWithNext"})},
          {"invert", Flag()}},
         {{"type", "Digits"}, {"individual_digits", Flag()}},
         {{"type", "Metaspace"},
          {"replacement", Odd() ? Word() : "\xE2\x96\x81"},
          {"prepend_scheme", OneOf<const char*>({"always", "first", "never", "x"})},
          {"split", Flag()}},
         ByteLevel()});
  }
  Json Decoder() {
    return {{"type", OneOf<const char*>({"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace",
                                         "ByteLevel", "WordPiece"})}};
  }
  Json Template() {
    Json items = Json::array();
    Json special = Json::object();
    for (int i = Below(4); i > 0; --i) {
      if (choices_.ConsumeBool()) {
        items.push_back({{"Sequence", {{"id", Odd() ? "B" : "A"}}}});
      } else {
        const std::string name = Word();
        items.push_back({{"SpecialToken", {{"id", name}}}});
        if (!Odd()) special[name] = {{"id", name}, {"ids", {Id()}}};
      }
    }
    return {{"type", Odd() ? Word() : "TemplateProcessing"},
            {"single", items},
            {"special_tokens", special}};
  }
  Json AddedToken() {
    return {{"id", Id()},           {"content", Word()},     {"special", Flag()},
            {"normalized", Flag()}, {"single_word", Flag()}, {"lstrip", Flag()},
            {"rstrip", Flag()}};
  }

  // A token for every byte, then what merges give.
  Json Model() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string raw(1, static_cast<char>(byte));
      tokens.push_back(characters_ ? fmt::format("<0x{:02X}>", byte) : SpellBytes(raw));
    }
    if (characters_) {
      for (const char* text : {"a", "b", "t", "h", "e", "\xE2\x96\x81", "1"})
        tokens.push_back(text);
    }
    Json merges = Json::array();
    for (int i = Below(24); i > 0; --i) {
      const int first = characters_ ? 256 : 0;
      const auto any = [&] {
        return tokens[first + Below(static_cast<int>(tokens.size()) - first)];
      };
      const std::string left = any();
      const std::string right = any();
      if (!Odd()) tokens.push_back(left + right);
      merges.push_back(choices_.ConsumeBool() ? Json({left, right}) : Json(left + " " + right));
    }
    Json vocabulary = Json::object();
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (!vocabulary.contains(tokens[id])) vocabulary[tokens[id]] = id;
    }
    if (Odd()) vocabulary[Word()] = Id();
    Json model = {{"type", "BPE"},
                  {"byte_fallback", Odd() ? Scalar() : Json(characters_)},
                  {"ignore_merges", Flag()},
                  {"vocab", vocabulary},
                  {"merges", merges}};
    if (Odd()) model[OneOf<const char*>({"type", "dropout", "vocab", "merges"})] = Scalar();
    return model;
  }

  FuzzedDataProvider choices_;
  bool characters_ = false;
};

void Check(std::string_view json, std::string_view text) {
  const Tokenizer tokenizer(ParseTokenizerJson(json, "input"), "input");
  const Tokenizer copy(ParseTokenizerJson(tokenizer.ToJson(), "copy"), "copy");
  Require(copy.hash() == tokenizer.hash());
  Encoder encoder(tokenizer);
  Encoder copied(copy);
  for (const SpecialNames names : {SpecialNames::kText, SpecialNames::kIds}) {
    const std::vector<TokenId> ids = encoder.Encode(text, names);
    Require(copied.Encode(text, names) == ids);
    const std::string decoded = tokenizer.Decode(ids);
    if (names == SpecialNames::kText && KeepsText(tokenizer.spec())) Require(decoded == text);
  }
}

}  // namespace
}  // namespace sandglass

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandglass;
  try {
    if (size > 0 && data[0] == '{') {
      Check(std::string_view(reinterpret_cast<const char*>(data), size), kText);
    } else {
      Maker maker(data, size);
      const std::string json = maker.Make().dump(-1, ' ', false, Json::error_handler_t::replace);
      Check(json, maker.Rest() + std::string(kText));
    }
  } catch (const Error&) {
  }
  return 0;
}
