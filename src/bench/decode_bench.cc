#include "bench/decode_bench.h"

#include <algorithm>

#include "base/random.h"
#include "bench/measure.h"
#include "model/model.h"
#include "plan/count.h"

namespace sandglass {

DecodeBenchResult BenchDecode(const DecodeBenchOptions& options) {
  const auto ops = options.system.MakeBackend();
  const DType activations = ActivationType(options.precision);
  Model model(options.model, {.purpose = Purpose::kEvaluate,
                              .batch = 1,
                              .length = std::max(1, std::min(options.prompt, 256)),
                              .cache_length = options.prompt + options.tokens,
                              .activations = activations});
  model.Allocate(*ops);
  model.params().Initialize(1);
  RandomStream random(1, "bench");
  std::vector<int32_t> ids(options.prompt + options.tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(options.model.vocabulary));
  const Matrix logits(1, options.model.vocabulary, DType::kF32);

  DecodeBenchResult result{.shape = options.model.shape.ToString(),
                           .backend = ops->Description(),
                           .precision = EnumName(options.precision)};
  const std::span<const int32_t> all = ids;
  result.prompt_tokens_per_s =
      options.prompt / SecondsOf([&] { model.Decode(all.first(options.prompt), logits.view); });
  std::vector<double> seconds;
  for (int i = 0; i < options.tokens; ++i) {
    seconds.push_back(
        SecondsOf([&] { model.Decode(all.subspan(options.prompt + i, 1), logits.view); }));
  }
  result.token_min_s = std::ranges::min(seconds);
  result.token_max_s = std::ranges::max(seconds);
  const double token_s = Median(std::move(seconds));
  result.tokens_per_s = 1.0 / token_s;

  // Of the embedding one row is read, unless it is the head too.
  const ParamTable& params = model.params();
  const bool tied = options.model.embeddings == Embeddings::kTied;
  const int64_t read = params.elements() - (tied ? 0 : params.elements(ParamRole::kEmbedding));
  const double mean_position = options.prompt + 0.5 * options.tokens;
  result.bytes_per_token =
      read * SizeOf(activations) +
      static_cast<int64_t>(mean_position * static_cast<double>(KvCacheBytesPerToken(
                                               options.model.shape, activations)));
  result.bytes_per_s = static_cast<double>(result.bytes_per_token) / token_s;
  result.bandwidth_bytes_per_s = CopyBytesPerSecond(*ops);
  result.share_of_bandwidth = result.bytes_per_s / result.bandwidth_bytes_per_s;
  return result;
}

}  // namespace sandglass
