#include "interop/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing.h"
#include "data/split_patterns.h"
#include "data/testing.h"
#include "data/tokenizer_json.h"
#include "interop/gguf_tokenizer_writer.h"
#include "io/gguf_writer.h"

namespace sandglass {
namespace {

// Ids of llama.cpp for the files that this test writes (testdata/make_gguf_tokenizers.py).
Json Golden() {
  return Json::parse(
      ReadFile(std::string(SANDGLASS_SOURCE_DIR) + "/src/interop/testdata/gguf_tokenizers.json"));
}

// The byte-level vocabulary of the tests as a GGUF; `edit` may change it before it is written.
struct ByteLevelFile {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;

  ByteLevelFile() {
    const Json model = Json::parse(ReadFile(TestData("cl100k.json")))["model"];
    tokens.resize(model["vocab"].size());
    for (const auto& [token, id] : model["vocab"].items()) tokens[id.get<size_t>()] = token;
    types.assign(tokens.size(), 1);
    types[0] = 3;
    for (const Json& merge : model["merges"]) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
  }
  GgufWriter Writer() const {
    GgufWriter writer;
    writer.Add("general.architecture", "llama");
    writer.Add("tokenizer.ggml.model", "gpt2");
    writer.Add("tokenizer.ggml.tokens", std::span(tokens));
    writer.Add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
    writer.Add("tokenizer.ggml.merges", std::span(merges));
    writer.Add("tokenizer.ggml.bos_token_id", uint32_t{0});
    return writer;
  }
};

TokenizerSpec Read(const TestDirectory& directory, const GgufWriter& writer) {
  writer.Write(directory / "t.gguf");
  return ReadGgufTokenizer(GgufFile(directory / "t.gguf"));
}

void ExpectIds(const Tokenizer& tokenizer, const Json& golden, const std::string& name) {
  Encoder encoder(tokenizer);
  for (size_t i = 0; i < golden["strings"].size(); ++i) {
    const auto text = golden["strings"][i].get<std::string>();
    EXPECT_EQ(encoder.Encode(text), golden["ids"][name][i].get<std::vector<TokenId>>())
        << name << ": " << text;
  }
}

TEST(GgufTokenizer, IdsEqualLlamaCppForEveryPreTokenizer) {
  const TestDirectory directory;
  const Json golden = Golden();
  for (const auto& [name, ids] : golden["ids"].items()) {
    if (name == "llama") continue;
    GgufWriter writer = ByteLevelFile().Writer();
    writer.Add("tokenizer.ggml.pre", name);
    ExpectIds(Tokenizer(Read(directory, writer)), golden, name);
  }
}

TEST(GgufTokenizer, IdsEqualLlamaCppForScoredPieces) {
  const TestDirectory directory;
  const Tokenizer source = Tokenizer::Load(TestData("sentencepiece.model"));
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  const Json vocabulary = Json::parse(source.ToJson())["model"]["vocab"];
  tokens.resize(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) tokens[id.get<size_t>()] = token;
  for (size_t id = 0; id < tokens.size(); ++id) {
    // Scores fall with the ids, as in every such model.
    scores.push_back(-static_cast<float>(id));
    const bool user = tokens[id].size() > 1 && tokens[id][0] == '[';
    types.push_back(id == 0 ? 2 : id < 3 ? 3 : tokens[id].starts_with("<0x") ? 6 : user ? 4 : 1);
  }
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("tokenizer.ggml.model", "llama");
  writer.Add("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
  writer.Add("tokenizer.ggml.scores", std::span<const float>(scores));
  writer.Add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
  const Tokenizer tokenizer(Read(directory, writer));
  ExpectIds(tokenizer, Golden(), "llama");
  EXPECT_EQ(tokenizer.spec().begin, std::vector<TokenId>{1});
}

TEST(GgufTokenizer, BosIsAsTheFileSays) {
  const TestDirectory directory;
  GgufWriter silent = ByteLevelFile().Writer();
  silent.Add("tokenizer.ggml.pre", "llama-bpe");
  EXPECT_EQ(Read(directory, silent).begin, std::vector<TokenId>{0});
  silent.Add("tokenizer.ggml.add_bos_token", false);
  EXPECT_TRUE(Read(directory, silent).begin.empty());
  GgufWriter asked = ByteLevelFile().Writer();
  asked.Add("tokenizer.ggml.pre", "gpt-2");
  asked.Add("tokenizer.ggml.add_bos_token", true);
  EXPECT_EQ(Read(directory, asked).begin, std::vector<TokenId>{0});
}

TEST(GgufTokenizer, UnknownAndMissingPreTokenizersAreErrorsThatListTheKnownOnes) {
  const TestDirectory directory;
  const ErrorParts missing = FailureOf([&] { Read(directory, ByteLevelFile().Writer()); });
  EXPECT_TRUE(Contains(missing.what, "does not say how text is cut"));
  EXPECT_TRUE(Contains(missing.expected, "llama-bpe"));
  GgufWriter writer = ByteLevelFile().Writer();
  writer.Add("tokenizer.ggml.pre", "qwen3");
  const ErrorParts unknown = FailureOf([&] { Read(directory, writer); });
  EXPECT_TRUE(Contains(unknown.what, "unknown pre-tokenizer \"qwen3\""));
  EXPECT_TRUE(Contains(unknown.expected, "smollm"));
  EXPECT_TRUE(Contains(unknown.remedy, "qwen2") || Contains(unknown.remedy, "qwen35"));
  EXPECT_TRUE(Contains(unknown.where, "tokenizer.ggml.pre"));
}

TEST(GgufTokenizer, DamagedListsAreNamed) {
  const TestDirectory directory;
  const auto what = [&](auto&& edit) {
    ByteLevelFile file;
    edit(file);
    GgufWriter writer = file.Writer();
    writer.Add("tokenizer.ggml.pre", "gpt-2");
    return FailureOf([&] { Tokenizer(Read(directory, writer)); }).what;
  };
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.types.pop_back(); }), "types"));
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.types[5] = 9; }), "unknown type 9"));
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.tokens[5] = ""; }), "token 5 is empty"));
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.tokens[5] = "\xFF"; }), "not valid UTF-8"));
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.tokens[699] = f.tokens[5]; }), "twice"));
  EXPECT_TRUE(
      Contains(what([](ByteLevelFile& f) { f.merges[0] = "zz yy"; }), "not in the vocabulary"));
  EXPECT_TRUE(Contains(what([](ByteLevelFile& f) { f.merges[0] = "ab"; }), "not a pair"));
}

TEST(GgufTokenizer, NamesTheWayInWhichTextIsCut) {
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(SplitPattern::kGpt2))};
  EXPECT_EQ(GgufPreTokenizerName(spec), "gpt-2");
  spec.splits = {R"(\p{N})", std::string(SplitRegex(SplitPattern::kGpt2))};
  EXPECT_EQ(GgufPreTokenizerName(spec), "smollm");
  spec.splits = {std::string(SplitRegex(SplitPattern::kCl100k))};
  EXPECT_EQ(GgufPreTokenizerName(spec), "dbrx");
  spec.whole_pieces = WholePieces::kLookUp;
  EXPECT_EQ(GgufPreTokenizerName(spec), "llama-bpe");
  spec.splits = {"a+"};
  EXPECT_EQ(GgufPreTokenizerName(spec), std::nullopt);
}

// What the reader makes of what the writer wrote.
Tokenizer ThereAndBack(const Tokenizer& tokenizer, int vocabulary) {
  const TestDirectory directory;
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  AddGgufTokenizer(&tokenizer, vocabulary, writer);
  return Tokenizer(Read(directory, writer));
}

Tokenizer FileWith(const std::string& name, const Json& changes) {
  Json json = Json::parse(ReadFile(TestData(name)));
  json.merge_patch(changes);
  return Tokenizer(ParseTokenizerJson(json.dump(), name));
}

std::string RefusalOf(const Tokenizer& tokenizer) {
  return FailureOf([&] { GgufTokenizerCautions(tokenizer); }).what;
}

const Json kSplitsLikeQwen2 = {
    {"type", "Sequence"},
    {"pretokenizers",
     {{{"type", "Split"},
       {"pattern", {{"Regex", kQwen2Regex}}},
       {"behavior", "Isolated"},
       {"invert", false}},
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};

TEST(GgufTokenizerWriter, ByteFallbackComesBackWithEqualIds) {
  const Tokenizer tokenizer = FileWith("byte_fallback.json", Json::object());
  EXPECT_TRUE(GgufTokenizerCautions(tokenizer).empty());
  const Tokenizer back = ThereAndBack(tokenizer, tokenizer.vocabulary() + 3);
  EXPECT_EQ(back.vocabulary(), tokenizer.vocabulary() + 3);
  EXPECT_EQ(back.spec().leading_space, LeadingSpace::kAlways);
  Encoder theirs(back);
  Encoder ours(tokenizer);
  const Json golden = Golden();
  for (const Json& string : golden["strings"]) {
    const auto text = string.get<std::string>();
    EXPECT_EQ(theirs.Encode(text), ours.Encode(text)) << text;
    EXPECT_EQ(back.Decode(ours.Encode(text)), text);
  }
  EXPECT_EQ(theirs.Encode("<s>the", SpecialNames::kIds), ours.Encode("<s>the", SpecialNames::kIds));
  const Tokenizer unprefixed =
      FileWith("byte_fallback.json",
               {{"normalizer",
                 {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}});
  EXPECT_EQ(ThereAndBack(unprefixed, unprefixed.vocabulary()).spec().leading_space,
            LeadingSpace::kNone);
}

TEST(GgufTokenizerWriter, MergesThatScoresCannotSayAreRefused) {
  Json json = Json::parse(ReadFile(TestData("byte_fallback.json")));
  Json& merges = json["model"]["merges"];
  const auto made = [&] { return Tokenizer(ParseTokenizerJson(json.dump(), "t.json")); };
  // Without one of its merges a token may not come from that pair, which llama.cpp would join.
  const Json last = merges.back();
  merges.erase(merges.size() - 1);
  EXPECT_TRUE(Contains(RefusalOf(made()), "joins any two tokens"));
  // A token's merges before and behind those of others.
  merges.push_back(last);
  merges.push_back(merges[0]);
  EXPECT_TRUE(Contains(RefusalOf(made()), "are not together"));
}

TEST(GgufTokenizerWriter, WhatLlamaCppDoesNotKnowIsRefusedOrSaid) {
  EXPECT_TRUE(
      Contains(RefusalOf(FileWith("byte_fallback.json", {{"model", {{"ignore_merges", true}}}})),
               "whole pieces"));
  EXPECT_TRUE(
      Contains(RefusalOf(FileWith("cl100k.json", {{"normalizer", {{"type", "NFKC"}}}})), "NFKC"));
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", "\u2581"},
                          {"prepend_scheme", "first"},
                          {"split", false}};
  const auto first = GgufTokenizerCautions(
      FileWith("byte_fallback.json", {{"normalizer", nullptr}, {"pre_tokenizer", metaspace}}));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(Contains(first[0], "a space before every text"));

  const auto added = [](const char* flag, bool special) {
    Json json = Json::parse(ReadFile(TestData("cl100k.json")));
    json["added_tokens"].push_back(
        {{"id", 700}, {"content", "<x>"}, {"special", special}, {flag, true}});
    return Tokenizer(ParseTokenizerJson(json.dump(), "t.json"));
  };
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    EXPECT_TRUE(Contains(RefusalOf(added(flag, false)), "\"<x>\" wherever")) << flag;
    EXPECT_EQ(GgufTokenizerCautions(added(flag, true)).size(), 1u) << flag;
  }
  EXPECT_TRUE(GgufTokenizerCautions(added("normalized", false)).empty());

  Json json = Json::parse(ReadFile(TestData("cl100k.json")));
  json["added_tokens"].push_back({{"id", 700}, {"content", "<|fim_prefix|>"}, {"special", false}});
  const Tokenizer infilling(ParseTokenizerJson(json.dump(), "t.json"));
  const auto cautions = GgufTokenizerCautions(infilling);
  ASSERT_EQ(cautions.size(), 1u);
  EXPECT_TRUE(Contains(cautions[0], "on request: <|fim_prefix|>"));
  EXPECT_TRUE(ThereAndBack(infilling, 701).IsSpecial(700));
}

TEST(GgufTokenizer, SpecialTokensOfPhi3SwallowTheSpaceBehindThem) {
  const TestDirectory directory;
  for (const char* name : {"Phi-3 mini", "other"}) {
    GgufWriter writer;
    writer.Add("general.architecture", "phi3");
    writer.Add("general.name", name);
    const Tokenizer tokenizer = FileWith("byte_fallback.json", Json::object());
    AddGgufTokenizer(&tokenizer, tokenizer.vocabulary(), writer);
    const TokenizerSpec spec = Read(directory, writer);
    EXPECT_EQ(spec.FindAdded(2)->strips_right, std::string(name) == "Phi-3 mini");
    EXPECT_FALSE(spec.FindAdded(1)->strips_right);
  }
}

TEST(GgufTokenizerWriter, NfcIsLeftOutWithACaution) {
  const Tokenizer tokenizer = FileWith(
      "cl100k.json", {{"normalizer", {{"type", "NFC"}}}, {"pre_tokenizer", kSplitsLikeQwen2}});
  const auto cautions = GgufTokenizerCautions(tokenizer);
  ASSERT_EQ(cautions.size(), 1u);
  EXPECT_TRUE(Contains(cautions[0], "text in NFC"));
  const Tokenizer back = ThereAndBack(tokenizer, tokenizer.vocabulary());
  EXPECT_EQ(back.spec().normalization, Normalization::kNone);
  EXPECT_EQ(back.spec().splits, tokenizer.spec().splits);
  EXPECT_EQ(Encoder(back).Encode("\u00E9"), Encoder(tokenizer).Encode("e\u0301"));
}

TEST(GgufTokenizerWriter, LookingWholePiecesUpIsNoDifferenceWhereMergesReachEveryToken) {
  Json changes = {{"pre_tokenizer", kSplitsLikeQwen2}, {"model", {{"ignore_merges", true}}}};
  const Tokenizer reached = FileWith("cl100k.json", changes);
  EXPECT_EQ(ThereAndBack(reached, reached.vocabulary()).spec().whole_pieces, WholePieces::kMerge);
  changes["model"]["vocab"]["xyzzy"] = 700;
  EXPECT_TRUE(Contains(RefusalOf(FileWith("cl100k.json", changes)), "no pre-tokenizer"));
}

}  // namespace
}  // namespace sandglass
