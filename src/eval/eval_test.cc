#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/file.h"
#include "base/random.h"
#include "base/testing.h"
#include "data/token_shard.h"
#include "eval/perplexity.h"

namespace sandglass {
namespace {

// Tokens for single bytes, one for the two bytes of a character, and end-of-text.
Tokenizer SmallTokenizer() {
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(SplitPattern::kGpt2))};
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(std::string(1, char(byte)));
  spec.tokens.push_back("\xC3\xA9");  // é
  spec.merges.push_back({0xC3, 0xA9, 256});
  spec.tokens.push_back(std::string(kEndOfText));
  spec.added = {{.id = 257}};
  return Tokenizer(spec);
}

class ScoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TokenShardWriter writer(directory_ / "text.bin", {.vocabulary = tokenizer_.vocabulary(),
                                                      .tokenizer_hash = tokenizer_.hash(),
                                                      .source = "test"});
    Encoder encoder(tokenizer_);
    for (const std::string text : {"caf\xC3\xA9 au lait", "\xC3 broken \xE2\x82\xAC", "x"}) {
      std::vector<TokenId> ids = {tokenizer_.end_of_text()};
      encoder.Encode(text, ids);
      writer.AddDocument(ids, std::ssize(text));
      text_bytes_ += std::ssize(text);
    }
    info_ = writer.Commit();
  }

  Score ScoreWith(int length, const ScoreOptions& options) {
    const TokenShard shard(directory_ / "text.bin");
    const auto ops = MakeReferenceBackend(DType::kF64);
    Model model(FamilyConfig(Family::kLlama, Shape::Parse("L1-d8-a2x4-f1x8"), 258),
                {.purpose = Purpose::kEvaluate,
                 .batch = options.batch,
                 .length = length,
                 .dtype = DType::kF64});
    model.Allocate(*ops);
    model.params().Initialize(3);
    return ScoreStream(model, EvalWindows(shard, length), tokenizer_.byte_counts(), options);
  }

  Tokenizer tokenizer_ = SmallTokenizer();
  const TestDirectory directory_;
  ShardInfo info_;
  int64_t text_bytes_ = 0;
};

TEST_F(ScoreTest, EveryTokenOnceAndTheBytesOfTheText) {
  for (const int length : {1, 3, 7, 64}) {
    const Score score = ScoreWith(length, {.batch = 2});
    EXPECT_EQ(score.tokens, info_.tokens - 1) << length;
    EXPECT_EQ(score.bytes, text_bytes_) << length;
  }
}

TEST_F(ScoreTest, BatchSizeDoesNotMatter) {
  const Score one = ScoreWith(5, {.batch = 1});
  for (const int batch : {2, 3, 8}) {
    const Score score = ScoreWith(5, {.batch = batch});
    EXPECT_NEAR(score.nats, one.nats, 1e-12 * one.nats);
    EXPECT_EQ(score.tokens, one.tokens);
  }
}

TEST_F(ScoreTest, FirstTokensOnly) {
  EXPECT_EQ(ScoreWith(4, {.batch = 3, .max_tokens = 9}).tokens, 12);
}

TEST(Score, FiguresFollowFromTheSums) {
  // Two batches with (loss sum, tokens) of (2, 1) and (90, 9): 9.2 per token, not the mean of
  // means.
  const Score score{.nats = 2 + 90, .tokens = 1 + 9, .bytes = 20};
  EXPECT_DOUBLE_EQ(score.loss(), 9.2);
  EXPECT_DOUBLE_EQ(score.perplexity(), std::exp(9.2));
  EXPECT_DOUBLE_EQ(score.bits_per_byte(), 92 / std::numbers::ln2 / 20);
}

}  // namespace
}  // namespace sandglass
