// What training and evaluation read from token streams: fixed-length samples in an order that
// depends on nothing but the seed, and windows that score every token once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/documents.h"
#include "data/mixture.h"
#include "data/token_stream.h"

namespace sandglass {

// The target of a position that is not scored; the value of kIgnoredTarget in ops/backend.h.
inline constexpr TokenId kIgnored = -1;

// A stream as a part of the training or validation data.
struct SampleSource {
  const TokenStream* stream = nullptr;  // must outlive its users
  uint64_t share = 1;                   // of the samples, relative to the other sources
  // Attention, positions and targets stay within documents; nothing: plain packing.
  std::optional<DocumentSeparator> documents;
};

// One training sample: what the order of a run has at a position.
struct SampleRef {
  int64_t position = 0;     // in the run, counted in samples from 0
  int source = 0;           // index
  int64_t epoch = 0;        // of the source, from 0
  int64_t sample = 0;       // of the source, in [0, per_epoch)
  int64_t first_token = 0;  // of the source: sample * T
};

// Training samples of T tokens. Sample i of a stream has the T inputs from i*T on and as targets
// the T tokens from i*T + 1 on, so neighbouring samples share no input and no target.
//
// Positions count samples over the whole run. The sources take turns by their shares; each visits
// all its samples once per epoch, in an order of its own that needs no memory. So a position alone
// says which sample it is, however the run is cut into batches, workers and restarts.
class TrainSamples {
 public:
  // Throws Error if a source has fewer than length + 1 tokens.
  TrainSamples(std::vector<SampleSource> sources, int length, uint64_t seed);
  TrainSamples(const TokenStream& stream, int length, uint64_t seed);

  int length() const { return length_; }  // T
  // Whether starts say anything.
  bool within_documents() const;
  // Samples of a source: (tokens - 1) / T.
  int64_t per_epoch(int source = 0) const {
    return (sources_[static_cast<size_t>(source)].stream->tokens() - 1) / length_;
  }

  // The sample at `position` >= 0.
  SampleRef At(int64_t position) const;
  // Inputs and targets of the sample at `position`: ids [T], targets [T], and starts [T], where the
  // document of each token begins in the sample (all 0 with plain packing; may be empty then).
  void Fill(int64_t position, std::span<TokenId> ids, std::span<TokenId> targets,
            std::span<int32_t> starts = {}) const;

 private:
  std::vector<SampleSource> sources_;
  MixtureOrder order_;
  int length_;
  uint64_t seed_;
};

// Consecutive windows of T tokens, stream after stream, in which every token but the very first of
// each stream is a target exactly once; within documents, every token but the first of each
// document.
class EvalWindows {
 public:
  // Shares do not matter. Throws Error if a source has fewer than 2 tokens.
  EvalWindows(std::vector<SampleSource> sources, int length);
  EvalWindows(const TokenStream& stream, int length);

  int length() const { return length_; }    // T
  int64_t count() const { return count_; }  // the sum of ceil((tokens - 1) / T)
  // Whether starts say anything.
  bool within_documents() const;

  // ids [T], targets [T], starts [T] as in TrainSamples. The last window of a stream is filled up
  // with id 0 and target kIgnored.
  void Fill(int64_t window, std::span<TokenId> ids, std::span<TokenId> targets,
            std::span<int32_t> starts = {}) const;

 private:
  std::vector<SampleSource> sources_;
  int length_;
  int64_t count_ = 0;
};

// Bytes of text that `targets`, each behind the token of `ids` in its place, stand for: what bits
// per byte divides by. Ignored targets and special tokens count 0; so do all if the text is not
// known.
int64_t ScoredTextBytes(std::span<const TokenId> ids, std::span<const TokenId> targets,
                        const TokenByteCounts& token_bytes);

}  // namespace sandglass
