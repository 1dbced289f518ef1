// What training will cost, before anything is trained: tokens, FLOPs, memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compare/recipe.h"
#include "plan/count.h"
#include "train/options.h"

namespace sandglass {

// One training run.
struct TrainingPrice {
  std::string name;
  ModelConfig config;
  ParameterCounts parameters;
  int64_t steps = 0;
  int64_t sequences = 0;  // of `length` tokens
  int64_t length = 0;
  double flops_per_token = 0.0;
  TrainingMemory memory;       // its optimizer part is that of the configured optimizer
  int64_t average_bytes = 0;   // of averaged weights
  int64_t snapshot_bytes = 0;  // the copy that a checkpoint is written from

  double tokens() const { return static_cast<double>(sequences) * static_cast<double>(length); }
  double flops() const { return tokens() * flops_per_token; }
  double days(double flop_per_s) const { return flops() / flop_per_s / 86400.0; }
  int64_t memory_bytes() const { return memory.total() + average_bytes + snapshot_bytes; }
};

// Throws Error if the configuration is impossible. config.model must have a vocabulary.
TrainingPrice PriceOf(const RunConfig& config);

// A run of each variant of a recipe, with the vocabulary that it names or trains.
std::vector<TrainingPrice> PricesOf(const Recipe& recipe);

}  // namespace sandglass
