// What training and evaluation read from a token shard: fixed-length samples in an order that
// depends on nothing but the seed, and windows that score every token once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_shard.h"

namespace sandglass {

// The target of a position that is not scored; the value of kIgnoredTarget in ops/backend.h.
inline constexpr TokenId kIgnored = -1;

// One training sample: what the order of a run has at a position.
struct SampleRef {
  int64_t position = 0;     // in the run, counted in samples from 0
  int64_t epoch = 0;        // from 0
  int64_t sample = 0;       // of the stream, in [0, per_epoch)
  int64_t first_token = 0;  // of the stream: sample * T
};

// Training samples of T tokens. Sample i of the stream has the T inputs from i*T on and as targets
// the T tokens from i*T + 1 on, so neighbouring samples share no input and no target.
//
// Positions count samples over the whole run. Each epoch visits all samples once, in an order of
// its own that needs no memory; so a position alone says which sample it is, however the run is cut
// into batches, workers and restarts.
class TrainSamples {
 public:
  // `shard` must outlive the object. Throws Error if it has fewer than length + 1 tokens.
  TrainSamples(const TokenShard& shard, int length, uint64_t seed);

  int length() const { return length_; }            // T
  int64_t per_epoch() const { return per_epoch_; }  // (tokens - 1) / T

  // The sample at `position` >= 0.
  SampleRef At(int64_t position) const;
  // Inputs and targets of the sample at `position`: ids [T], targets [T].
  void Fill(int64_t position, std::span<TokenId> ids, std::span<TokenId> targets) const;

 private:
  const TokenShard& shard_;
  int length_;
  uint64_t seed_;
  int64_t per_epoch_;
};

// Consecutive windows of T tokens in which every token but the very first of the stream is a target
// exactly once.
class EvalWindows {
 public:
  // `shard` must outlive the object. Throws Error if it has fewer than 2 tokens.
  EvalWindows(const TokenShard& shard, int length);

  int length() const { return length_; }    // T
  int64_t count() const { return count_; }  // ceil((tokens - 1) / T)

  // ids [T], targets [T]. The last window is filled up with id 0 and target kIgnored.
  void Fill(int64_t window, std::span<TokenId> ids, std::span<TokenId> targets) const;

 private:
  const TokenShard& shard_;
  int length_;
  int64_t count_;
};

// Bytes of text that `targets`, each behind the token of `ids` in its place, stand for: what bits
// per byte divides by. Ignored targets and special tokens count 0.
int64_t ScoredTextBytes(std::span<const TokenId> ids, std::span<const TokenId> targets,
                        const TokenByteCounts& token_bytes);

}  // namespace sandglass
