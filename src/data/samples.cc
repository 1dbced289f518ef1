#include "data/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/random.h"

namespace sandglass {
namespace {

void RequireTokens(const TokenShard& shard, int64_t needed, const char* purpose) {
  if (shard.tokens() >= needed) return;
  throw Error({.what = fmt::format("the data has only {} tokens", WithThousands(shard.tokens())),
               .where = shard.path(),
               .expected = fmt::format("at least {} for {}", WithThousands(needed), purpose),
               .remedy = "use more text or a shorter sequence length"});
}

// ids = stream[begin ...], targets = the tokens that follow them.
void FillFrom(const TokenShard& shard, int64_t begin, std::span<TokenId> ids,
              std::span<TokenId> targets) {
  shard.Read(begin, ids);
  shard.Read(begin + 1, targets);
}

}  // namespace

TrainSamples::TrainSamples(const TokenShard& shard, int length, uint64_t seed)
    : shard_(shard),
      length_(length),
      seed_(seed),
      per_epoch_((shard.tokens() - 1) / std::max(length, 1)) {
  SANDGLASS_CHECK(length >= 1, "a sample needs at least one token");
  RequireTokens(shard, int64_t{length} + 1, "one training sample and the token after it");
}

SampleRef TrainSamples::At(int64_t position) const {
  SANDGLASS_CHECK(position >= 0, "negative training position");
  const int64_t epoch = position / per_epoch_;
  const Permutation order(per_epoch_, seed_, fmt::format("epoch/{}", epoch));
  const auto sample = static_cast<int64_t>(order(position % per_epoch_));
  return {position, epoch, sample, sample * length_};
}

void TrainSamples::Fill(int64_t position, std::span<TokenId> ids,
                        std::span<TokenId> targets) const {
  SANDGLASS_CHECK(std::ssize(ids) == length_ && std::ssize(targets) == length_, "sample length");
  FillFrom(shard_, At(position).first_token, ids, targets);
}

EvalWindows::EvalWindows(const TokenShard& shard, int length)
    : shard_(shard),
      length_(length),
      count_((shard.tokens() - 1 + length - 1) / std::max(length, 1)) {
  SANDGLASS_CHECK(length >= 1, "a window needs at least one token");
  RequireTokens(shard, 2, "anything to be scored");
}

void EvalWindows::Fill(int64_t window, std::span<TokenId> ids, std::span<TokenId> targets) const {
  SANDGLASS_CHECK(std::ssize(ids) == length_ && std::ssize(targets) == length_, "window length");
  SANDGLASS_CHECK(window >= 0 && window < count_, "no such window");
  const int64_t begin = window * length_;
  const auto scored = static_cast<size_t>(std::min<int64_t>(length_, shard_.tokens() - 1 - begin));
  FillFrom(shard_, begin, ids.first(scored), targets.first(scored));
  std::ranges::fill(ids.subspan(scored), 0);
  std::ranges::fill(targets.subspan(scored), kIgnored);
}

int64_t ScoredTextBytes(std::span<const TokenId> ids, std::span<const TokenId> targets,
                        const TokenByteCounts& token_bytes) {
  int64_t bytes = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != kIgnored) bytes += token_bytes(ids[i], targets[i]);
  }
  return bytes;
}

}  // namespace sandglass
