#include "train/spike_detector.h"

#include <cmath>
#include <limits>

namespace sandglass {

std::optional<double> SpikeDetector::Add(double loss) {
  if (options_.z_score <= 0) return std::nullopt;
  std::optional<double> spike;
  const auto window = static_cast<size_t>(options_.window);
  if (losses_.size() >= window) {
    double mean = 0.0;
    for (const double seen : losses_) mean += seen;
    mean /= static_cast<double>(losses_.size());
    double variance = 0.0;
    for (const double seen : losses_) variance += (seen - mean) * (seen - mean);
    variance /= static_cast<double>(losses_.size() - 1);
    const double excess = loss - mean;
    // Among equal losses any other one is a spike.
    const double z = variance > 0 ? excess / std::sqrt(variance)
                     : excess > 0 ? std::numeric_limits<double>::infinity()
                                  : 0.0;
    if (z > options_.z_score) spike = z;
    losses_.pop_front();
  }
  losses_.push_back(loss);
  return spike;
}

}  // namespace sandglass
