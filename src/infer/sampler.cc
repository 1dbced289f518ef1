#include "infer/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace sandglass {

void SamplingOptions::Validate() const {
  const auto require = [](bool condition, const char* name, auto value, const char* expected) {
    if (condition) return;
    throw Error({.what = fmt::format("{} = {} makes no sense", name, value), .expected = expected});
  };
  require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature,
          "0 (the most likely token) or a positive number");
  require(top_k >= 0, "top-k", top_k, "0 (no limit) or a positive number of tokens");
  require(top_p > 0 && top_p <= 1, "top-p", top_p, "more than 0 and at most 1");
}

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), random_(options.seed, "sampling") {
  options.Validate();
}

int32_t Sampler::Next(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options_.temperature == 0) return static_cast<int32_t>(best - logits.begin());

  // Most likely first; equal logits in the order of their ids.
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options_.top_k > 0) order_.resize(std::min<size_t>(order_.size(), options_.top_k));

  weights_.clear();
  double total = 0.0;
  for (const int32_t id : order_) {
    weights_.push_back(std::exp((double{logits[id]} - *best) / options_.temperature));
    total += weights_.back();
  }
  double kept = 0.0;
  size_t count = 0;
  while (count < weights_.size() && (count == 0 || kept < options_.top_p * total)) {
    kept += weights_[count++];
  }

  double point = random_.NextUniform() * kept;
  for (size_t i = 0; i < count; ++i) {
    point -= weights_[i];
    if (point < 0) return order_[i];
  }
  return order_[count - 1];
}

}  // namespace sandglass
