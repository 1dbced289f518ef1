// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace sandglass {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int top_k = 0;             // only the k most likely tokens; 0: no limit
  double top_p = 1.0;        // only the fewest tokens whose probabilities reach p together
  uint64_t seed = 1;

  // Throws Error for values that make no sense.
  void Validate() const;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  // logits [V]; temperature first, then top-k, then top-p on what is left.
  int32_t Next(std::span<const float> logits);

 private:
  SamplingOptions options_;
  RandomStream random_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace sandglass
