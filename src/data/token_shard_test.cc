#include "data/token_shard.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "data/samples.h"
#include "data/testing.h"

namespace sandglass {
namespace {

// Writes one document with the ids given.
std::string WriteShard(const std::string& path, int64_t vocabulary, std::span<const TokenId> ids,
                       int64_t text_bytes = 0) {
  TokenShardWriter writer(path, {.vocabulary = vocabulary, .tokenizer_hash = "abc"});
  writer.AddDocument(ids, text_bytes);
  writer.Commit();
  return path;
}

// ids 0, 1, 2, ... count - 1
std::string WriteCounting(const TestDirectory& directory, int count) {
  std::vector<TokenId> ids(count);
  for (int i = 0; i < count; ++i) ids[i] = i;
  return WriteShard(directory / "train.bin", 65536, ids);
}

std::vector<TokenId> ReadAll(const TokenShard& shard) {
  std::vector<TokenId> ids(shard.tokens());
  shard.Read(0, ids);
  return ids;
}

TEST(TokenShard, KeepsIdsOfBothWidths) {
  const TestDirectory directory;
  const std::vector<TokenId> narrow = {0, 1, 255, 256, 65534, 65535};
  const TokenShard small(WriteShard(directory / "small.bin", 65536, narrow));
  EXPECT_EQ(small.info().dtype, TokenType::kUint16);
  EXPECT_EQ(ReadFile(small.path()), std::string("\0\0\1\0\xFF\0\0\1\xFE\xFF\xFF\xFF", 12));
  EXPECT_EQ(ReadAll(small), narrow);
  const std::vector<TokenId> wide = {65535, 65536, 100277};
  const TokenShard large(WriteShard(directory / "large.bin", 100278, wide));
  EXPECT_EQ(large.info().dtype, TokenType::kUint32);
  EXPECT_EQ(ReadAll(large), wide);
  const TokenShard edge(WriteShard(directory / "edge.bin", 65537, std::vector<TokenId>{65536}));
  EXPECT_EQ(ReadAll(edge), std::vector<TokenId>{65536});
}

TEST(TokenShard, SidecarDescribesTheFile) {
  const TestDirectory directory;
  TokenShardWriter writer(directory / "x.bin",
                          {.vocabulary = 300, .tokenizer_hash = "abc", .source = "test"});
  writer.AddDocument(std::vector<TokenId>{0, 5, 6}, 4);
  writer.AddDocument(std::vector<TokenId>{0, 7}, 2);
  EXPECT_FALSE(std::filesystem::exists(directory / "x.bin"));
  const ShardInfo info = writer.Commit();
  const TokenShard shard(directory / "x.bin");
  shard.Verify();
  EXPECT_EQ(shard.info().documents, 2);
  EXPECT_EQ(shard.tokens(), 5);
  EXPECT_EQ(shard.info().text_bytes, 6);
  EXPECT_EQ(shard.info().source, "test");
  EXPECT_EQ(shard.info().content_hash, info.content_hash);
  EXPECT_EQ(SidecarPath("a.b/train.bin"), "a.b/train.json");
}

TEST(TokenShard, RefusesFilesThatDoNotFitTheirSidecar) {
  const TestDirectory directory;
  const std::string path = WriteCounting(directory, 10);
  const std::string ids = ReadFile(path);
  const std::string sidecar = ReadFile(SidecarPath(path));
  const auto failure = [&] { return FailureOf([&] { TokenShard{path}; }); };

  directory.Write("train.bin", std::string_view(ids).substr(0, 19));
  EXPECT_TRUE(Contains(failure().what, "has 19 bytes"));
  EXPECT_TRUE(Contains(failure().expected, "20 bytes"));
  EXPECT_EQ(failure().where, path);
  directory.Write("train.bin", "");
  EXPECT_TRUE(Contains(failure().what, "has 0 bytes"));
  directory.Write("train.bin", ids + ids);
  EXPECT_TRUE(Contains(failure().what, "another width"));
  directory.Write("train.bin", ids);

  Json json = Json::parse(sidecar);
  json["dtype"] = "uint32";
  directory.Write("train.json", json.dump());
  EXPECT_TRUE(Contains(failure().what, "another width"));
  json = Json::parse(sidecar);
  json["version"] = 2;
  directory.Write("train.json", json.dump());
  EXPECT_TRUE(Contains(failure().what, "another version"));
  json["format"] = 5;
  directory.Write("train.json", json.dump());
  EXPECT_TRUE(Contains(failure().what, "not the sidecar"));
  directory.Write("train.json", "{");
  EXPECT_TRUE(Contains(failure().what, "not a JSON object"));
  json = Json::parse(sidecar);
  json["tokens"] = "ten";
  directory.Write("train.json", json.dump());
  EXPECT_TRUE(Contains(failure().where, "tokens"));
  json["tokens"] = -10;
  directory.Write("train.json", json.dump());
  EXPECT_TRUE(Contains(failure().what, "impossible"));
  std::filesystem::remove(directory / "train.json");
  EXPECT_TRUE(Contains(failure().what, "cannot open"));
}

TEST(TokenShard, IdsOutsideTheVocabularyAreFoundAndNamed) {
  const TestDirectory directory;
  for (const int64_t vocabulary : {int64_t{1000}, int64_t{100278}}) {
    const std::string path =
        WriteShard(directory / "x.bin", vocabulary, std::vector<TokenId>(100'000, 5));
    std::string bytes = ReadFile(path);
    const int64_t width = vocabulary > 65536 ? 4 : 2;
    const int64_t offset = 70'001 * width;
    for (int64_t i = 0; i < width; ++i) bytes[offset + i] = '\xFF';
    directory.Write("x.bin", bytes);
    const ErrorParts parts = FailureOf([&] { TokenShard{path}; });
    EXPECT_TRUE(Contains(parts.what, width == 2 ? "65535" : "4294967295")) << parts.what;
    EXPECT_EQ(parts.where, path + ", token 70001 (byte " + std::to_string(offset) + ")");
  }
}

TEST(TokenShard, AChangedIdIsFoundThoughItIsPossible) {
  const TestDirectory directory;
  const std::string path = WriteCounting(directory, 10);
  std::string bytes = ReadFile(path);
  bytes[4] = 9;
  directory.Write("train.bin", bytes);
  EXPECT_TRUE(Contains(FailureOf([&] { TokenShard{path}; }).what, "not the one"));
}

TEST(TokenShard, RequiresItsTokenizer) {
  const TestDirectory directory;
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  const TokenShard other(WriteCounting(directory, 10));
  EXPECT_TRUE(Contains(FailureOf([&] { other.RequireTokenizer(tokenizer); }).what, "belong"));
  TokenShardWriter writer(directory / "own.bin",
                          {.vocabulary = 700, .tokenizer_hash = tokenizer.hash()});
  writer.Commit();
  TokenShard(directory / "own.bin").RequireTokenizer(tokenizer);
}

TEST(TrainSamples, EveryEpochVisitsEverySampleOnceInAnOrderOfItsOwn) {
  const TestDirectory directory;
  const TokenShard shard(WriteCounting(directory, 1003));
  const TrainSamples samples(shard, 10, 42);
  ASSERT_EQ(samples.per_epoch(), 100);  // (1003 - 1) / 10
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t>& order = epochs.emplace_back();
    for (int i = 0; i < 100; ++i) order.push_back(samples.At(epoch * 100 + i).sample);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100u);
    EXPECT_EQ(*std::max_element(order.begin(), order.end()), 99);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  // Another object and another order of asking change nothing; another seed does.
  const TrainSamples again(shard, 10, 42);
  const TrainSamples other(shard, 10, 43);
  std::vector<int64_t> other_order;
  for (int i = 99; i >= 0; --i) EXPECT_EQ(again.At(200 + i).sample, epochs[2][i]);
  for (int i = 0; i < 100; ++i) other_order.push_back(other.At(i).sample);
  EXPECT_NE(other_order, epochs[0]);
}

TEST(TrainSamples, FillGivesInputsAndTheTokensAfterThem) {
  const TestDirectory directory;
  const TokenShard shard(WriteCounting(directory, 41));
  const TrainSamples samples(shard, 10, 1);
  ASSERT_EQ(samples.per_epoch(), 4);  // the last target is the last token
  std::vector<TokenId> ids(10), targets(10);
  for (int64_t position = 0; position < 8; ++position) {
    samples.Fill(position, ids, targets);
    for (int t = 0; t < 10; ++t) {
      EXPECT_EQ(ids[t], samples.At(position).sample * 10 + t);
      EXPECT_EQ(targets[t], ids[t] + 1);
    }
  }
}

TEST(TrainSamples, TooFewTokensNamesBothNumbers) {
  const TestDirectory directory;
  const TokenShard shard(WriteCounting(directory, 64));
  EXPECT_EQ(TrainSamples(shard, 63, 0).per_epoch(), 1);
  const ErrorParts parts = FailureOf([&] { TrainSamples(shard, 64, 0); });
  EXPECT_TRUE(Contains(parts.what, "64 tokens"));
  EXPECT_TRUE(Contains(parts.expected, "65"));
}

TEST(EvalWindows, ScoreEveryTokenButTheFirstOnce) {
  const TestDirectory directory;
  for (const int count : {2, 10, 11, 12, 25}) {
    const TokenShard shard(WriteCounting(directory, count));
    const EvalWindows windows(shard, 10);
    std::vector<TokenId> ids(10), targets(10), scored;
    for (int64_t window = 0; window < windows.count(); ++window) {
      windows.Fill(window, ids, targets);
      for (int t = 0; t < 10; ++t) {
        if (targets[t] == kIgnored) {
          EXPECT_EQ(ids[t], 0);
          continue;
        }
        EXPECT_EQ(targets[t], ids[t] + 1);
        scored.push_back(targets[t]);
      }
    }
    ASSERT_EQ(std::ssize(scored), count - 1);
    for (int i = 0; i < count - 1; ++i) EXPECT_EQ(scored[i], i + 1);
  }
  const TokenShard one(WriteCounting(directory, 1));
  EXPECT_TRUE(Contains(FailureOf([&] { EvalWindows(one, 10); }).what, "only 1 tokens"));
}

TEST(EvalWindows, ScoredBytesAreTheBytesOfTheText) {
  // Multi-byte characters that are split across tokens, special tokens, and an invalid byte.
  const TestDirectory directory;
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  Encoder encoder(tokenizer);
  TokenShardWriter writer(directory / "v.bin", {.vocabulary = tokenizer.vocabulary()});
  int64_t text_bytes = 0;
  for (const std::string text :
       {"In the beginning", "\U00010570\u6F22\U0001F600 \u00e9", "\xFF<|endoftext|>"}) {
    std::vector<TokenId> ids = {tokenizer.end_of_text()};
    encoder.Encode(text, ids);
    writer.AddDocument(ids, std::ssize(text));
    text_bytes += std::ssize(text);
  }
  writer.Commit();
  const TokenShard shard(directory / "v.bin");
  EXPECT_EQ(shard.info().text_bytes, text_bytes);
  const EvalWindows windows(shard, 7);
  int64_t scored = 0;
  std::vector<TokenId> ids(7), targets(7);
  for (int64_t window = 0; window < windows.count(); ++window) {
    windows.Fill(window, ids, targets);
    scored += ScoredTextBytes(ids, targets, tokenizer.byte_counts());
  }
  EXPECT_EQ(scored, text_bytes);
}

}  // namespace
}  // namespace sandglass
