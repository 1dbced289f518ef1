// Tells a jump of the loss from its usual noise.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "train/options.h"

namespace sandglass {

class SpikeDetector {
 public:
  explicit SpikeDetector(const SpikeOptions& options) : options_(options) {}

  // Takes in the loss of the next step. Once `window` losses have been seen: how many standard
  // deviations of the last `window` the loss lies above their mean, if that is more than the limit.
  std::optional<double> Add(double loss);

  // The losses that decide, oldest first; they belong to a checkpoint.
  std::vector<double> losses() const { return {losses_.begin(), losses_.end()}; }
  void Restore(const std::vector<double>& losses) { losses_.assign(losses.begin(), losses.end()); }

 private:
  SpikeOptions options_;
  std::deque<double> losses_;
};

}  // namespace sandglass
