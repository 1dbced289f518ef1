// Every kind of tokenizer against the library that defines its ids (testdata/make_kinds.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "data/rank_file.h"
#include "data/sentencepiece_model.h"
#include "data/split_patterns.h"
#include "data/testing.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"

namespace sandglass {
namespace {

const Json& Golden() {
  static const Json golden = Json::parse(ReadFile(TestData("kinds.json")));
  return golden;
}

std::vector<std::string> Strings() { return Golden()["strings"]; }

// A kind of kinds.json: another tokenizer.json with some parts changed.
Json KindJson(const Json& kind) {
  Json json = Json::parse(ReadFile(TestData(kind["base"].get<std::string>() + ".json")));
  for (const auto& [key, value] : kind["changes"].items()) {
    if (key == "model") {
      json[key].update(value);
    } else {
      json[key] = value;
    }
  }
  return json;
}

Tokenizer KindOf(const std::string& name) {
  return Tokenizer(ParseTokenizerJson(KindJson(Golden()["kinds"][name]).dump(), name), name);
}

TokenizerSpec SmallRankFile() {
  const RankFileKind kind{
      .name = "small", .regex = std::string(kCl100kRegex), .special = {{"<|endoftext|>", 720}}};
  return ParseRankFile(ReadFile(TestData("small.tiktoken")), kind, "small.tiktoken");
}

void ExpectIds(const Tokenizer& tokenizer, const Json& ids, const std::string& name) {
  const std::vector<std::string> strings = Strings();
  ASSERT_EQ(ids.size(), strings.size());
  Encoder encoder(tokenizer);
  for (size_t i = 0; i < strings.size(); ++i) {
    EXPECT_EQ(encoder.Encode(strings[i]), ids[i].get<std::vector<TokenId>>())
        << name << ": " << strings[i];
  }
}

// Every tokenizer of the golden files.
std::vector<std::pair<std::string, Tokenizer>> AllKinds() {
  std::vector<std::pair<std::string, Tokenizer>> kinds;
  for (const auto& [name, kind] : Golden()["kinds"].items()) kinds.emplace_back(name, KindOf(name));
  kinds.emplace_back("sentencepiece", Tokenizer::Load(TestData("sentencepiece.model")));
  kinds.emplace_back("rank file", Tokenizer(SmallRankFile()));
  return kinds;
}

TEST(TokenizerKinds, IdsEqualTheReference) {
  ASSERT_EQ(Golden()["kinds"].size(), 18u);
  for (const auto& [name, kind] : Golden()["kinds"].items()) {
    ExpectIds(KindOf(name), kind["ids"], name);
  }
  ExpectIds(Tokenizer::Load(TestData("sentencepiece.model")), Golden()["sentencepiece"],
            "sentencepiece");
  ExpectIds(Tokenizer(SmallRankFile()), Golden()["tiktoken"], "tiktoken");
}

TEST(TokenizerKinds, NamesOfSpecialTokensBecomeIdsOnRequest) {
  for (const auto& [name, kind] : Golden()["kinds"].items()) {
    const Tokenizer tokenizer = KindOf(name);
    const std::vector<std::string> all = Strings();
    const bool flags = name.starts_with("flags");  // those have the ids of every string
    for (size_t i = flags ? 0 : all.size() - 1; i < all.size(); ++i) {
      EXPECT_EQ(Encoder(tokenizer).EncodeWithEnds(all[i], SpecialNames::kIds),
                (flags ? kind["parsed"][i] : kind["parsed"]).get<std::vector<TokenId>>())
          << name << ": " << all[i];
    }
  }
  const Tokenizer ranks(SmallRankFile());
  EXPECT_EQ(Encoder(ranks).Encode("a<|endoftext|>b", SpecialNames::kIds),
            Golden()["tiktoken_parsed"].get<std::vector<TokenId>>());
}

TEST(TokenizerKinds, BosIsAddedOnceAsConfigured) {
  const Tokenizer tokenizer = KindOf("llama2");
  Encoder encoder(tokenizer);
  EXPECT_EQ(tokenizer.spec().begin, std::vector<TokenId>{1});
  const std::vector<TokenId> plain = encoder.Encode("the waters");
  std::vector<TokenId> with_bos = {1};
  with_bos.insert(with_bos.end(), plain.begin(), plain.end());
  EXPECT_EQ(encoder.EncodeWithEnds("the waters"), with_bos);
  EXPECT_EQ(encoder.EncodeWithEnds("<s>the waters", SpecialNames::kIds), with_bos);
  // As text the name is text.
  EXPECT_EQ(encoder.EncodeWithEnds("<s>the waters").front(), 1);
  EXPECT_EQ(tokenizer.Decode(encoder.EncodeWithEnds("<s>the waters")), "<s>the waters");
  EXPECT_EQ(tokenizer.end_of_text(), 1);
}

TEST(TokenizerKinds, CanonicalFilesCarryEveryKind) {
  for (const auto& [name, tokenizer] : AllKinds()) {
    const Tokenizer copy(ParseTokenizerJson(tokenizer.ToJson(), name), name);
    EXPECT_EQ(copy.hash(), tokenizer.hash()) << name;
    EXPECT_EQ(copy.ToJson(), tokenizer.ToJson()) << name;
    Encoder encoder(tokenizer);
    Encoder copied(copy);
    for (const std::string& text : Strings()) {
      EXPECT_EQ(copied.Encode(text), encoder.Encode(text)) << name << ": " << text;
    }
  }
}

TEST(TokenizerKinds, DecodingGivesTheTextBack) {
  RandomStream random(9, "kinds");
  for (const auto& [name, tokenizer] : AllKinds()) {
    // Those change text before they encode it: normal forms, and spaces for U+2581.
    const bool changes = tokenizer.spec().normalization != Normalization::kNone;
    Encoder encoder(tokenizer);
    for (int i = 0; i < 500; ++i) {
      const std::string text = RandomBytes(random, 30);
      if (changes) continue;
      // A space that such a tokenizer finds at the beginning counts as the one that it adds.
      const LeadingSpace leading = tokenizer.spec().leading_space;
      const bool loses_space =
          text.starts_with(' ') &&
          (leading == LeadingSpace::kUnlessSpace || leading == LeadingSpace::kFirstUnlessSpace);
      EXPECT_EQ(tokenizer.Decode(encoder.Encode(text)), loses_space ? text.substr(1) : text)
          << name;
    }
  }
}

TEST(TokenizerKinds, ScoredBytesAreTheBytesOfTheTextOfEveryKind) {
  const TestDirectory directory;
  for (const auto& [name, tokenizer] : AllKinds()) {
    Encoder encoder(tokenizer);
    TokenShardWriter writer(directory / "v.bin", {.vocabulary = tokenizer.vocabulary()});
    int64_t text_bytes = 0;
    for (const std::string& text : Strings()) {
      std::vector<TokenId> ids = {tokenizer.end_of_text()};
      encoder.Encode(text, ids);
      // What the tokens say; the text itself unless the tokenizer changes text (flagged tokens
      // swallow white space).
      const std::string decoded = tokenizer.Decode(ids);
      if (!name.starts_with("flags") && tokenizer.spec().normalization == Normalization::kNone &&
          tokenizer.spec().leading_space == LeadingSpace::kNone && !Contains(text, "\u2581")) {
        EXPECT_EQ(decoded, text) << name;
      }
      writer.AddDocument(ids, std::ssize(decoded));
      text_bytes += std::ssize(decoded);
    }
    writer.Commit();
    const TokenShard shard(directory / "v.bin");
    std::vector<TokenId> stream(shard.tokens());
    shard.Read(0, stream);
    int64_t scored = 0;
    for (size_t i = 1; i < stream.size(); ++i) {
      scored += tokenizer.byte_counts()(stream[i - 1], stream[i]);
    }
    EXPECT_EQ(scored, text_bytes) << name;
  }
}

TEST(TokenizerKinds, LeadingSpaceIsNoByteOfTheText) {
  const Tokenizer tokenizer = Tokenizer::Load(TestData("sentencepiece.model"));
  Encoder encoder(tokenizer);
  for (const std::string text : {"the", " the", "  the", "\u6F22 \xFF the", "a"}) {
    const std::vector<TokenId> ids = encoder.Encode(text);
    EXPECT_EQ(tokenizer.Decode(ids), text);
    int64_t bytes = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      bytes += tokenizer.byte_counts()(i > 0 ? ids[i - 1] : tokenizer.end_of_text(), ids[i]);
    }
    EXPECT_EQ(bytes, std::ssize(text));
  }
}

TEST(TokenizerKinds, RefusesWhatItCannotRepresent) {
  const auto refused = [](const std::string& kind, const char* pointer, const Json& value,
                          const char* message) {
    Json json = KindJson(Golden()["kinds"][kind]);
    json[Json::json_pointer(pointer)] = value;
    const ErrorParts parts =
        FailureOf([&] { Tokenizer(ParseTokenizerJson(json.dump(), "t.json"), "t.json"); });
    EXPECT_TRUE(Contains(parts.what, message)) << parts.what;
    EXPECT_EQ(parts.where, "t.json");
  };
  refused("llama2", "/model/byte_fallback", false, "neither byte-level");
  refused("llama2", "/normalizer/normalizers/0/prepend", "x", "Prepend");
  refused("llama2", "/decoder/decoders/0/type", "WordPiece", "\"WordPiece\"");
  refused("llama2", "/post_processor/special_tokens/<s>/ids/0", 99999, "no token");
  refused("llama2", "/post_processor/single/1/Sequence/id", "B", "template");
  refused("metaspace-first", "/pre_tokenizer/prepend_scheme", "x", "prepend_scheme");
  refused("metaspace-first", "/pre_tokenizer/replacement", "_", "replacement");
  refused("metaspace-never", "/added_tokens/3",
          Json::parse(R"({"id": 600, "content": "a b", "normalized": true})"),
          "before Metaspace turns spaces into marks");
  refused("olmo2", "/added_tokens/1/id", 0, "two tokens have the id 0");
  refused("smollm2", "/pre_tokenizer/pretokenizers/0/type", "Whitespace", "\"Whitespace\"");
}

TEST(RankFile, DamagedFilesAreNamed) {
  const auto what = [](const std::string& contents) {
    const ErrorParts parts = FailureOf([&] { ParseRankFile(contents, "r.tiktoken"); });
    EXPECT_TRUE(Contains(parts.where, "r.tiktoken"));
    return parts.what + parts.where;
  };
  EXPECT_TRUE(Contains(what("IQ== 0\nIg==\n"), ":2"));
  EXPECT_TRUE(Contains(what("IQ== 0\nIg== x\n"), "not a line"));
  EXPECT_TRUE(Contains(what("IQ= 0\n"), "not a line"));
  EXPECT_TRUE(Contains(what("IQ== 0\nIg== 0\n"), "two tokens have the rank 0"));
  EXPECT_TRUE(Contains(what("IQ== 99999999999\n"), "out of range"));
  EXPECT_TRUE(Contains(what("IQ== 0\nIg== 1\n"), "2 ranks are those of no known tokenizer"));
  const ErrorParts twice = FailureOf([] {
    ParseRankFile("IQ== 0\nIQ== 1\n", RankFileKind{.name = "x", .regex = "a"}, "r.tiktoken");
  });
  EXPECT_TRUE(Contains(twice.what, "same token"));
}

TEST(Tekken, IsRead) {
  // The bytes, then "ab"; two special tokens before them.
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string three(3, static_cast<char>(byte));
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    vocabulary += std::string(R"({"rank": )") + std::to_string(byte) + R"(, "token_bytes": ")" +
                  kDigits[byte >> 2] + kDigits[(byte & 3) << 4] + R"(=="},)";
  }
  vocabulary += R"({"rank": 256, "token_bytes": "YWI="}, {"rank": 257, "token_bytes": "YWJj"})";
  const auto file = [&](int size, int special) {
    return R"({"config": {"pattern": "\\p{L}+", "default_vocab_size": )" + std::to_string(size) +
           R"(, "default_num_special_tokens": )" + std::to_string(special) + R"(}, "vocab": [)" +
           vocabulary + "]}";
  };
  EXPECT_TRUE(LooksLikeTekken(file(259, 2)));
  const Tokenizer tokenizer(ParseTekken(file(259, 2), "t.json"));
  EXPECT_EQ(tokenizer.vocabulary(), 259);  // rank 257 is beyond the size
  EXPECT_EQ(Encoder(tokenizer).Encode("abc"), (std::vector<TokenId>{258, 'c' + 2}));
  EXPECT_EQ(Encoder(tokenizer).EncodeWithEnds("a"), (std::vector<TokenId>{1, 'a' + 2}));
  EXPECT_TRUE(
      Contains(FailureOf([&] { ParseTekken(file(2, 2), "t.json"); }).what, "no vocabulary"));
  EXPECT_TRUE(Contains(FailureOf([&] { ParseTekken("{}", "t.json"); }).what, "lacks"));
}

TEST(SentencePiece, DamagedModelsAreRefused) {
  const std::string model = ReadFile(TestData("sentencepiece.model"));
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, model.size() / 2, model.size() - 3}) {
    EXPECT_FALSE(FailureOf([&] {
                   Tokenizer(ParseSentencePieceModel(model.substr(0, size), "m"));
                 }).what.empty());
  }
  std::vector<ScoredPiece> pieces = {{"a", -1}, {"a\xFF", -2}};
  const auto what = [&] {
    return FailureOf([&] {
             SpecOfScoredPieces(pieces, LeadingSpace::kAlways, UserDefined::kInPlace, "m");
           })
        .what;
  };
  EXPECT_TRUE(Contains(what(), "not valid UTF-8"));
  pieces = {{"a", -1}};
  EXPECT_TRUE(Contains(what(), "0 of 256 bytes"));
  pieces = {{"a", -1, PieceType::kByte}};
  EXPECT_TRUE(Contains(what(), "no byte"));
  pieces = {{"a", -1, PieceType::kUnused}};
  EXPECT_TRUE(Contains(what(), "unused"));
  pieces = {{"a", -1, static_cast<PieceType>(9)}};
  EXPECT_TRUE(Contains(what(), "type 9"));
}

}  // namespace
}  // namespace sandglass
