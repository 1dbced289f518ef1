// How the values of a tensor are distributed, in buckets that widen with the value: four to each
// power of two, mirrored for negative values.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/view.h"

namespace sandglass {

// counts[i] values lie between limits[i - 1] and limits[i] (an edge itself belongs to the bucket
// farther from zero). Buckets at both ends that hold nothing are left out, but for one before the
// first, so that the lower edge of every count is known. Empty if no value is finite.
struct Histogram {
  double min = 0.0;
  double max = 0.0;
  double sum = 0.0;
  double sum_squares = 0.0;
  int64_t count = 0;       // finite values
  int64_t not_finite = 0;  // NaN and infinities, which are in none of the figures above
  std::vector<double> limits;
  std::vector<int64_t> counts;
};

// Values nearer to zero than this share one bucket.
inline constexpr double kHistogramZero = 0x1p-40;

Histogram MakeHistogram(ConstView values);

}  // namespace sandglass
