#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/interrupt.h"

namespace sandglass {

double Score::perplexity() const { return std::exp(loss()); }

double Score::bits_per_byte() const {
  return bytes > 0 ? nats / std::numbers::ln2 / static_cast<double>(bytes) : 0.0;
}

Score ScoreStream(Model& model, const EvalWindows& windows, const TokenByteCounts& token_bytes,
                  const ScoreOptions& options, const std::function<void(int64_t)>& progress) {
  const int64_t length = windows.length();
  int64_t count = windows.count();
  if (options.max_tokens > 0) count = std::min(count, (options.max_tokens + length - 1) / length);
  std::vector<int32_t> ids(options.batch * length);
  std::vector<int32_t> targets(ids.size());
  std::vector<int32_t> starts(windows.within_documents() ? ids.size() : 0);
  Score score;
  for (int64_t first = 0; first < count; first += options.batch) {
    if (InterruptRequested()) throw Interrupted{"nothing was written; start it again"};
    const int64_t batch = std::min<int64_t>(options.batch, count - first);
    for (int64_t b = 0; b < batch; ++b) {
      windows.Fill(
          first + b, std::span(ids).subspan(b * length, length),
          std::span(targets).subspan(b * length, length),
          starts.empty() ? std::span<int32_t>() : std::span(starts).subspan(b * length, length));
    }
    const auto scored = std::span(targets).first(batch * length);
    const LossSums sums = model.Loss({static_cast<int>(batch), static_cast<int>(length),
                                      std::span(ids).first(scored.size()), scored,
                                      std::span(starts).first(starts.empty() ? 0 : scored.size())});
    score.nats += sums.cross_entropy;
    score.tokens += sums.tokens;
    score.bytes += ScoredTextBytes(std::span(ids).first(scored.size()), scored, token_bytes);
    if (progress) progress(score.tokens);
  }
  return score;
}

}  // namespace sandglass
