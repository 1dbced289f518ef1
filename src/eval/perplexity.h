// Loss, perplexity and bits per byte of a model on a token stream.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/samples.h"
#include "model/model.h"

namespace sandglass {

struct Score {
  double nats = 0.0;   // sum of cross-entropies
  int64_t tokens = 0;  // scored
  int64_t bytes = 0;   // of the text that the scored tokens spell; special tokens spell none

  double loss() const { return nats / static_cast<double>(tokens); }  // nats per token
  double perplexity() const;
  // Total bits over the bytes of the text. Predicting an end-of-text token costs bits and spells no
  // byte, so the figure counts against the model, as a compressor's framing does. 0 where the text
  // is not known (ids without a tokenizer).
  double bits_per_byte() const;
};

struct ScoreOptions {
  int batch = 1;           // windows at a time
  int64_t max_tokens = 0;  // score only the first so many (rounded to whole windows); 0: all
};

// Scores each token of a stream but the first (of each document, where windows keep to documents)
// exactly once, in windows that follow each other. The result does not depend on options.batch but
// for rounding.
// `token_bytes`: of the tokenizer that made the ids. `progress` (may be empty) gets tokens done.
// The model's capacity must hold the batch. Throws Interrupted if that is requested.
Score ScoreStream(Model& model, const EvalWindows& windows, const TokenByteCounts& token_bytes,
                  const ScoreOptions& options, const std::function<void(int64_t)>& progress = {});

}  // namespace sandglass
