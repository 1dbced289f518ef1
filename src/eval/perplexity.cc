#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "data/samples.h"

namespace sandglass {

double Score::perplexity() const { return std::exp(loss()); }

double Score::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

Score ScoreStream(Model& model, const TokenShard& shard, std::span<const int32_t> token_bytes,
                  const ScoreOptions& options, const std::function<void(int64_t)>& progress) {
  const EvalWindows windows(shard, options.length);
  int64_t count = windows.count();
  if (options.max_tokens > 0) {
    count = std::min(count, (options.max_tokens + options.length - 1) / options.length);
  }
  std::vector<int32_t> ids(int64_t{options.batch} * options.length);
  std::vector<int32_t> targets(ids.size());
  Score score;
  for (int64_t first = 0; first < count; first += options.batch) {
    const int batch = static_cast<int>(std::min<int64_t>(options.batch, count - first));
    for (int b = 0; b < batch; ++b) {
      windows.Fill(first + b, std::span(ids).subspan(size_t(b) * options.length, options.length),
                   std::span(targets).subspan(size_t(b) * options.length, options.length));
    }
    const auto scored = std::span(targets).first(size_t(batch) * options.length);
    const LossSums sums =
        model.Loss({batch, options.length, std::span(ids).first(scored.size()), scored});
    score.nats += sums.cross_entropy;
    score.tokens += sums.tokens;
    score.bytes += ScoredTextBytes(scored, token_bytes);
    if (progress) progress(score.tokens);
  }
  return score;
}

}  // namespace sandglass
