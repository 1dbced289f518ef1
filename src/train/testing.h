// What the tests of this folder share: small data, small runs.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "base/testing.h"
#include "train/trainer.h"

namespace sandglass {

// Every byte a token, and end-of-text.
inline Tokenizer ByteTokenizer(SplitPattern pattern = SplitPattern::kGpt2) {
  TokenizerSpec spec;
  spec.splits = {std::string(SplitRegex(pattern))};
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(std::string(1, char(byte)));
  spec.tokens.push_back(std::string(kEndOfText));
  spec.added = {{.id = 256}};
  return Tokenizer(spec);
}

inline void WriteShard(const std::string& path, const Tokenizer& tokenizer, int documents,
                       const char* stream_name) {
  TokenShardWriter writer(
      path,
      {.vocabulary = tokenizer.vocabulary(), .tokenizer_hash = tokenizer.hash(), .source = "test"});
  RandomStream random(1, stream_name);
  for (int i = 0; i < documents; ++i) {
    std::vector<TokenId> tokens = {tokenizer.end_of_text()};
    for (int t = 0; t < 40; ++t) tokens.push_back('a' + (i + t + int(random.NextBelow(3))) % 20);
    writer.AddDocument(tokens, 40);
  }
  writer.Commit();
}

class TrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CreateDirectories(root_ + "/data");
    const Tokenizer tokenizer = ByteTokenizer();
    tokenizer.Save(root_ + "/data/tokenizer.json");
    WriteShard(root_ + "/data/train.bin", tokenizer, 20, "train");
    WriteShard(root_ + "/data/validation.bin", tokenizer, 3, "validation");
    config_.name = "test";
    config_.model.config = FamilyConfig(Family::kHourglass, Shape::Parse("L1-d8-a2x4-f2x6"), 0);
    config_.data.path = root_ + "/data";
    config_.train = {.tokens = 8 * 4 * 16, .batch = 4, .length = 16, .eval_every = 3};
    config_.optimizer.learning_rate = 0.01;
    config_.system.threads = 2;
  }
  void TearDown() override { SetInterruptRequested(false); }

  std::optional<RunResult> Run(const std::string& name, const RunConfig& config,
                               ExistingRun existing = ExistingRun::kContinue) {
    return Train(config, root_ + "/" + name, existing, callbacks_);
  }
  // Trains until the step is done, then interrupts as Ctrl-C would.
  void RunUntil(int64_t step, const std::string& name, const RunConfig& config) {
    TrainCallbacks callbacks = callbacks_;
    callbacks.step = [step](const StepMetrics& metrics) {
      if (metrics.step == step) SetInterruptRequested(true);
    };
    EXPECT_FALSE(Train(config, root_ + "/" + name, ExistingRun::kContinue, callbacks).has_value());
    SetInterruptRequested(false);
  }
  ErrorParts FailureOf(const std::string& name, const RunConfig& config) {
    return sandglass::FailureOf([&] { Run(name, config); });
  }
  bool Noted(const std::string& text) const {
    for (const std::string& note : notes_) {
      if (note.find(text) != std::string::npos) return true;
    }
    return false;
  }

  const TestDirectory directory_;
  std::string root_ = directory_.path();
  RunConfig config_;
  std::vector<std::string> notes_;
  TrainCallbacks callbacks_{.progress = ProgressMode::kSilent,
                            .note = [this](std::string_view note) { notes_.emplace_back(note); }};
};

}  // namespace sandglass
