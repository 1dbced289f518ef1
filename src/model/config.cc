#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace sandglass {
namespace {

void Require(bool holds, const char* field, const std::string& value, const char* expected) {
  if (holds) return;
  throw Error({.what = fmt::format("the model's {} is {}", field, value), .expected = expected});
}

}  // namespace

void RopeScaling::Validate() const {
  const auto require = [](bool holds, const char* field, double value, const char* expected) {
    Require(holds && std::isfinite(value), field, fmt::format("{}", value), expected);
  };
  require(factor >= 1, "rope_scaling.factor", factor, "a number of at least 1");
  if (kind == RopeScalingKind::kLinear) return;
  require(low_freq_factor > 0, "rope_scaling.low_freq_factor", low_freq_factor,
          "a positive number, such as 1");
  require(high_freq_factor > low_freq_factor, "rope_scaling.high_freq_factor", high_freq_factor,
          "a number above low_freq_factor, such as 4");
  Require(original_max_position >= 1, "rope_scaling.original_max_position",
          std::to_string(original_max_position), "a number of positions, such as 8192");
}

int64_t ModelConfig::padded_vocabulary() const {
  const int64_t multiple = vocabulary_multiple;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

void ModelConfig::Validate() const {
  shape.Validate();
  const auto require_number = [](bool holds, const char* field, double value,
                                 const char* expected) {
    Require(holds && std::isfinite(value), field, fmt::format("{}", value), expected);
  };
  require_number(rope_theta > 1.0, "rope_theta", rope_theta, "a number above 1, such as 10000");
  if (rope_scaling) rope_scaling->Validate();
  require_number(norm_epsilon > 0.0, "norm_epsilon", norm_epsilon,
                 "a small positive number, such as 1e-5");
  require_number(init_std > 0.0, "init_std", init_std, "a positive number, such as 0.02");
  require_number(z_loss >= 0.0, "z_loss", z_loss, "zero (off) or a small positive number");
  // Token ids are 32-bit; the bound leaves room for any count of elements.
  constexpr int kMaxVocabulary = 1 << 28;
  Require(vocabulary >= 1 && vocabulary <= kMaxVocabulary, "vocabulary", std::to_string(vocabulary),
          "the number of token ids, such as 50304");
  Require(vocabulary_multiple >= 1 && vocabulary_multiple <= kMaxVocabulary, "vocabulary_multiple",
          std::to_string(vocabulary_multiple), "1 (no padding) or a multiple such as 64 or 128");
  if (depth_scaled_norm && norm == NormPlacement::kPost) {
    throw Error({.what = "depth_scaled_norm is on, but the model has no pre-norms to scale",
                 .expected = "norm = \"pre\" with depth_scaled_norm",
                 .remedy = "switch one of the two"});
  }
}

ModelConfig FamilyConfig(Family family, const Shape& shape, int vocabulary) {
  ModelConfig config{.shape = shape, .vocabulary = vocabulary};
  if (family == Family::kOlmo2) {
    config.norm = NormPlacement::kPost;
    config.qk_norm = QkNorm::kFullWidth;
    config.rope_theta = 500000.0;
  }
  return config;
}

}  // namespace sandglass
