#include "data/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/random.h"

namespace sandglass {
namespace {

void RequireTokens(const TokenStream& stream, int64_t needed, const char* purpose) {
  if (stream.tokens() >= needed) return;
  throw Error({.what = fmt::format("the data has only {} tokens", WithThousands(stream.tokens())),
               .where = stream.path(),
               .expected = fmt::format("at least {} for {}", WithThousands(needed), purpose),
               .remedy = "use more text or a shorter sequence length"});
}

MixtureOrder OrderOf(std::span<const SampleSource> sources) {
  std::vector<uint64_t> shares;
  for (const SampleSource& source : sources) shares.push_back(source.share);
  return MixtureOrder(std::move(shares));
}

bool AnyDocuments(std::span<const SampleSource> sources) {
  return std::ranges::any_of(sources,
                             [](const auto& source) { return source.documents.has_value(); });
}

// ids = stream[begin ...] and targets = the tokens that follow them; the rest of both is padding.
void FillFrom(const SampleSource& source, int64_t begin, std::span<TokenId> ids,
              std::span<TokenId> targets, std::span<int32_t> starts) {
  SANDGLASS_CHECK(ids.size() == targets.size() && (starts.empty() || starts.size() == ids.size()),
                  "spans of one sample");
  SANDGLASS_CHECK(!source.documents || !starts.empty(), "documents need starts");
  const TokenStream& stream = *source.stream;
  const auto scored =
      static_cast<size_t>(std::min<int64_t>(std::ssize(ids), stream.tokens() - 1 - begin));
  stream.Read(begin, ids.first(scored));
  std::copy(ids.begin() + 1, ids.begin() + static_cast<std::ptrdiff_t>(scored), targets.begin());
  stream.Read(begin + static_cast<int64_t>(scored), targets.subspan(scored - 1, 1));
  std::ranges::fill(ids.subspan(scored), 0);
  std::ranges::fill(targets.subspan(scored), kIgnored);
  if (source.documents) {
    SeparateDocuments(*source.documents, ids, targets, starts);
  } else {
    std::ranges::fill(starts, 0);
  }
}

}  // namespace

TrainSamples::TrainSamples(std::vector<SampleSource> sources, int length, uint64_t seed)
    : sources_(std::move(sources)), order_(OrderOf(sources_)), length_(length), seed_(seed) {
  SANDGLASS_CHECK(length >= 1, "a sample needs at least one token");
  for (const SampleSource& source : sources_) {
    RequireTokens(*source.stream, int64_t{length} + 1,
                  "one training sample and the token after it");
  }
}

TrainSamples::TrainSamples(const TokenStream& stream, int length, uint64_t seed)
    : TrainSamples(std::vector<SampleSource>{{.stream = &stream}}, length, seed) {}

bool TrainSamples::within_documents() const { return AnyDocuments(sources_); }

SampleRef TrainSamples::At(int64_t position) const {
  const auto [source, turn] = order_.At(position);
  const int64_t samples = per_epoch(source);
  const int64_t epoch = turn / samples;
  // Sources of the same size must not be shuffled alike.
  const uint64_t seed = source == 0 ? seed_ : HashBytes(fmt::format("source/{}", source), seed_);
  const Permutation order(static_cast<uint64_t>(samples), seed, fmt::format("epoch/{}", epoch));
  const auto sample = static_cast<int64_t>(order(static_cast<uint64_t>(turn % samples)));
  return {position, source, epoch, sample, sample * length_};
}

void TrainSamples::Fill(int64_t position, std::span<TokenId> ids, std::span<TokenId> targets,
                        std::span<int32_t> starts) const {
  SANDGLASS_CHECK(std::ssize(ids) == length_, "sample length");
  const SampleRef ref = At(position);
  FillFrom(sources_[static_cast<size_t>(ref.source)], ref.first_token, ids, targets, starts);
}

EvalWindows::EvalWindows(std::vector<SampleSource> sources, int length)
    : sources_(std::move(sources)), length_(length) {
  SANDGLASS_CHECK(length >= 1, "a window needs at least one token");
  for (const SampleSource& source : sources_) {
    RequireTokens(*source.stream, 2, "anything to be scored");
    count_ += (source.stream->tokens() - 2) / length_ + 1;
  }
}

EvalWindows::EvalWindows(const TokenStream& stream, int length)
    : EvalWindows(std::vector<SampleSource>{{.stream = &stream}}, length) {}

bool EvalWindows::within_documents() const { return AnyDocuments(sources_); }

void EvalWindows::Fill(int64_t window, std::span<TokenId> ids, std::span<TokenId> targets,
                       std::span<int32_t> starts) const {
  SANDGLASS_CHECK(std::ssize(ids) == length_, "window length");
  SANDGLASS_CHECK(window >= 0 && window < count_, "no such window");
  const SampleSource* source = sources_.data();
  for (;; ++source) {
    const int64_t windows = (source->stream->tokens() - 2) / length_ + 1;
    if (window < windows) break;
    window -= windows;
  }
  FillFrom(*source, window * length_, ids, targets, starts);
}

int64_t ScoredTextBytes(std::span<const TokenId> ids, std::span<const TokenId> targets,
                        const TokenByteCounts& token_bytes) {
  if (!token_bytes.known()) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != kIgnored) bytes += token_bytes(ids[i], targets[i]);
  }
  return bytes;
}

}  // namespace sandglass
