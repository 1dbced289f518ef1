#include "interop/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing.h"
#include "data/testing.h"
#include "data/tokenizer_json.h"
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

}  // namespace
}  // namespace sandglass
