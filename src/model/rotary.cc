#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sandglass {
namespace {

double Scaled(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::kLinear) return frequency / scaling.factor;
  const double waves =  // in the context that the model was first trained on
      static_cast<double>(scaling.original_max_position) * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp(
      (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return kept * frequency + (1 - kept) * frequency / scaling.factor;
}

}  // namespace

std::vector<double> RotaryFrequencies(const ModelConfig& config) {
  const int half = config.shape.head_width / 2;
  std::vector<double> frequencies(half);
  for (int i = 0; i < half; ++i) {
    const double frequency =
        std::pow(config.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    frequencies[i] = config.rope_scaling ? Scaled(frequency, *config.rope_scaling) : frequency;
  }
  return frequencies;
}

void FillRotaryTables(View cosines, View sines, const ModelConfig& config) {
  const auto put = [](View view, int64_t row, int64_t col, double value) {
    if (view.dtype == DType::kF64) {
      view.Row<double>(row)[col] = value;
    } else {
      view.Row<float>(row)[col] = static_cast<float>(value);
    }
  };
  const std::vector<double> frequencies = RotaryFrequencies(config);
  for (int64_t i = 0; i < cosines.cols; ++i) {
    for (int64_t position = 0; position < cosines.rows; ++position) {
      const double angle = static_cast<double>(position) * frequencies[i];
      put(cosines, position, i, std::cos(angle));
      put(sines, position, i, std::sin(angle));
    }
  }
}

}  // namespace sandglass
