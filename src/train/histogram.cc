#include "train/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace sandglass {
namespace {

// The upper bits of a float - sign, exponent and two of the mantissa - are the number of its
// bucket: counting needs a shift and no logarithm.
constexpr int kDroppedBits = 21;
constexpr int kMagnitudes = 1 << 10;  // buckets without the sign
constexpr int kZeroMagnitude = std::bit_cast<uint32_t>(float{kHistogramZero}) >> kDroppedBits;
constexpr int kNotFinite = std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity()) >>
                           kDroppedBits;  // and all above

// The smallest magnitude of a bucket.
double LowerEdge(int magnitude) {
  return std::bit_cast<float>(static_cast<uint32_t>(magnitude) << kDroppedBits);
}

struct Sums {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0.0;
  double sum_squares = 0.0;
};

using Counts = std::array<int64_t, 2 * kMagnitudes>;

// Adds one row. Neighbours are counted in tables of their own: they often fall into one bucket, and
// one increment of a cell would wait for the other.
template <class T>
void AddRow(const T* row, int64_t cols, std::array<Counts, 2>& counts, std::array<Sums, 2>& sums) {
  const auto add = [&](int64_t i, int lane) {
    const float value = static_cast<float>(row[i]);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    ++counts[lane][bits >> kDroppedBits];
    const bool finite = static_cast<int>((bits & 0x7FFFFFFF) >> kDroppedBits) < kNotFinite;
    const float counted = finite ? value : 0.0f;
    Sums& s = sums[lane];
    s.min = finite ? std::min(s.min, value) : s.min;
    s.max = finite ? std::max(s.max, value) : s.max;
    s.sum += counted;
    s.sum_squares += double{counted} * counted;
  };
  int64_t i = 0;
  for (; i + 1 < cols; i += 2) {
    add(i, 0);
    add(i + 1, 1);
  }
  if (i < cols) add(i, 0);
}

}  // namespace

Histogram MakeHistogram(ConstView values) {
  std::array<Counts, 2> lanes{};
  std::array<Sums, 2> sums;
  for (int64_t row = 0; row < values.rows; ++row) {
    if (values.dtype == DType::kF64) {
      AddRow(values.Row<double>(row), values.cols, lanes, sums);
    } else {
      AddRow(values.Row<float>(row), values.cols, lanes, sums);
    }
  }
  const auto counted = [&](int sign, int magnitude) {
    return lanes[0][sign * kMagnitudes + magnitude] + lanes[1][sign * kMagnitudes + magnitude];
  };

  // From the most negative bucket over the one around zero to the largest.
  std::vector<double> limits;
  std::vector<int64_t> counts;
  for (int m = kNotFinite - 1; m >= kZeroMagnitude; --m) {
    limits.push_back(-LowerEdge(m));
    counts.push_back(counted(1, m));
  }
  limits.push_back(kHistogramZero);
  counts.push_back(0);
  for (int m = 0; m < kZeroMagnitude; ++m) counts.back() += counted(0, m) + counted(1, m);
  for (int m = kZeroMagnitude; m < kNotFinite; ++m) {
    limits.push_back(m + 1 < kNotFinite ? LowerEdge(m + 1)
                                        : double{std::numeric_limits<float>::max()});
    counts.push_back(counted(0, m));
  }

  Histogram histogram;
  for (int sign = 0; sign < 2; ++sign) {
    for (int m = kNotFinite; m < kMagnitudes; ++m) histogram.not_finite += counted(sign, m);
  }
  histogram.count = values.elements() - histogram.not_finite;
  if (histogram.count == 0) return histogram;
  histogram.min = std::min(sums[0].min, sums[1].min);
  histogram.max = std::max(sums[0].max, sums[1].max);
  histogram.sum = sums[0].sum + sums[1].sum;
  histogram.sum_squares = sums[0].sum_squares + sums[1].sum_squares;
  const auto filled = [](int64_t count) { return count > 0; };
  const auto last = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  auto first = std::find_if(counts.begin(), counts.end(), filled);
  if (first != counts.begin()) --first;
  histogram.counts.assign(first, last);
  histogram.limits.assign(limits.begin() + (first - counts.begin()),
                          limits.begin() + (last - counts.begin()));
  return histogram;
}

}  // namespace sandglass
