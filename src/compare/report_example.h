// A report as a real comparison would fill it, for tests: 4 variants, 2 seeds each.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "compare/report.h"

namespace sandglass {

// A run whose losses fall as a power of the tokens to the given figure, with noise on the way.
inline ReportRun ExampleRun(int64_t seed, double bits_per_byte, double tokens_per_s) {
  constexpr double kNatsPerBit = 1.8;  // ln 2 times 2.6 bytes per token
  constexpr int64_t kTokens = 4'000'000;
  constexpr int64_t kTokensPerStep = 4096;
  ReportRun run;
  run.seed = seed;
  run.bits_per_byte = bits_per_byte;
  run.validation_loss = bits_per_byte * kNatsPerBit;
  run.perplexity = std::exp(run.validation_loss);
  run.tokens = kTokens;
  run.tokens_per_s = tokens_per_s;
  run.wall_s = kTokens / tokens_per_s;
  run.peak_memory_bytes = 412'000'000 + seed * 1'000'000;
  RandomStream noise(seed, "example");
  const double initial = std::log(2048);
  const auto loss = [&](int64_t tokens) {
    const double progress = static_cast<double>(tokens) / kTokens;
    return run.validation_loss +
           (initial - run.validation_loss) * (1 - progress) / std::pow(1 + 60 * progress, 0.9);
  };
  for (int64_t tokens = 0; tokens <= kTokens; tokens += kTokensPerStep) {
    run.training_curve.push_back({tokens, loss(tokens) - 0.03 + 0.05 * noise.NextNormal()});
  }
  for (int i = 0; i <= 16; ++i) {
    run.validation_curve.push_back({kTokens / 16 * i, loss(kTokens / 16 * i)});
  }
  return run;
}

// What tells the example's variants apart; L = 4, d_model = 256 and heads of 64 are common to all.
struct ExampleShape {
  std::string name;
  std::string family;
  int heads;
  int sub_mlps;
  int sub_mlp_width;
  int64_t norms;
  std::array<double, 2> bits_per_byte;  // of the seeds 1 and 2
};

inline ReportVariant ExampleVariant(const ExampleShape& shape) {
  constexpr int kLayers = 4;
  constexpr int kModelWidth = 256;
  constexpr int kHeadWidth = 64;
  constexpr int kVocabulary = 2048;
  ReportVariant variant;
  variant.name = shape.name;
  variant.family = shape.family;
  variant.shape = fmt::format("L{}-d{}-a{}x{}-f{}x{}", kLayers, kModelWidth, shape.heads,
                              kHeadWidth, shape.sub_mlps, shape.sub_mlp_width);
  variant.layers = kLayers;
  variant.d_model = kModelWidth;
  variant.sub_mlps = shape.sub_mlps;
  variant.ffn_ratio = static_cast<double>(shape.sub_mlp_width) / kModelWidth;
  variant.counts.attention = 4 * kLayers * kModelWidth * shape.heads * kHeadWidth;
  variant.counts.ffn = 3 * kLayers * kModelWidth * shape.sub_mlps * shape.sub_mlp_width;
  variant.counts.norms = shape.norms;
  variant.counts.embeddings = 2 * kVocabulary * kModelWidth;
  const double matrices = static_cast<double>(variant.counts.matrices());
  variant.train_flops_per_token = 6 * matrices + 9.4e6;
  variant.decode_flops_per_token = 2 * matrices + 3.1e6;
  variant.kv_cache_bytes_per_token = 2 * 4 * kLayers * shape.heads * kHeadWidth;
  const double tokens_per_s = 21'000 - 900.0 * shape.sub_mlps;
  variant.runs = {ExampleRun(1, shape.bits_per_byte[0], tokens_per_s),
                  ExampleRun(2, shape.bits_per_byte[1], tokens_per_s + 350)};
  return variant;
}

inline ReportData ExampleReport() {
  ReportData data;
  data.title = "Hourglass FFNs at 3.2M matrix parameters";
  data.question =
      "At equal matrices, is an hourglass FFN better than the usual one on the King James Bible, "
      "and what does it cost?";
  data.baseline = "conventional";
  data.matched = "matrices";
  data.tolerance = 1e-5;
  data.text.source = "King James Bible (bible-kjv-text), 66 books";
  data.text.tokenizer_hash = "9f86d081884c7d65";
  data.text.vocabulary = 2048;
  data.text.training_tokens = 1'482'113;
  data.text.training_bytes = 3'921'402;
  data.text.training_documents = 1'130;
  data.text.validation_tokens = 165'004;
  data.text.validation_bytes = 436'911;
  data.text.validation_documents = 59;
  data.text.compressors = {{"gzip -9", 2.4871}, {"xz -9", 2.2136}};
  data.settings = {{"tokens", "4,000,000 per run"},
                   {"batch", "16 sequences of 256 tokens"},
                   {"optimizer", "AdamW, beta 0.9 / 0.95, weight decay 0.1"},
                   {"learning rate", "0.002, warm-up 50 steps, cosine to 0.0002"},
                   {"gradient clipping", "1.0"},
                   {"seeds", "1, 2"}};
  data.recipe =
      "title = \"Hourglass FFNs at 3.2M matrix parameters\"\n"
      "baseline = \"conventional\"\nmatch = \"matrices\"\ntolerance = 1e-5\nseeds = [1, 2]\n\n"
      "[train]\ntokens = 4e6\nbatch = 16\nlength = 256\nlearning_rate = 2e-3\n\n"
      "[[variant]]\nname = \"conventional\"\nfamily = \"llama\"\nshape = \"L4-d256-a4x64-f1x704\"\n"
      "\n[[variant]]\nname = \"hourglass-k4\"\nfamily = \"hourglass\"\nsub_mlps = 4\n";
  data.command = "sandglass compare recipes/kjv-demo.toml";
  data.version = "0.1.0";
  data.date = "2026-11-29 12:40 UTC";
  data.host = {"AMD EPYC 7763 64-Core Processor", 2, "cpu: AVX2, own products, 2 threads"};

  for (const ExampleShape& shape : std::vector<ExampleShape>{
           {"conventional", "llama", 4, 1, 704, 2'304, {2.0412, 2.0352}},
           {"hourglass-k4", "hourglass", 4, 4, 176, 5'376, {2.0198, 2.0126}},
           {"attention-heavy", "hourglass", 7, 4, 112, 5'376, {2.0339, 2.0249}},
           {"olmo2", "olmo2", 4, 1, 704, 4'352, {2.0571, 2.0503}}}) {
    data.variants.push_back(ExampleVariant(shape));
  }
  return data;
}

}  // namespace sandglass
