// How speed is measured: medians of repeated calls, and the two roofs of the machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "tensor/memory_plan.h"
#include "tensor/view.h"

namespace sandglass {

inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Action>
double SecondsOf(const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Median time of an action after one call that warms up: at least five calls and 50 ms, so that
// short ones are repeated often.
template <class Action>
double TimeAlone(const Action& action) {
  action();
  std::vector<double> seconds;
  double total = 0.0;
  while (seconds.size() < 5 || total < 0.05) {
    seconds.push_back(SecondsOf(action));
    total += seconds.back();
  }
  return Median(std::move(seconds));
}

// A packed matrix of its own.
struct Matrix {
  AlignedBytes bytes;
  View view;
  Matrix(int64_t rows, int64_t cols, DType dtype)
      : bytes(rows * cols * SizeOf(dtype)), view{bytes.data(), dtype, rows, cols, cols} {}
};

// A matrix product by what its time depends on.
struct MatmulShape {
  int64_t rows = 0;  // of c
  int64_t cols = 0;  // of c
  int64_t inner = 0;
  MatmulSpec spec;
  DType factors = DType::kF32;
  DType result = DType::kF32;

  friend bool operator<(const MatmulShape& a, const MatmulShape& b);
};

// Seconds of one product, with its factors in the cache as far as they fit.
double TimeMatmul(Backend& ops, const MatmulShape& shape);
// FLOP/s of a product of 1536 x 1536 x 1536.
double PeakFlopsPerSecond(Backend& ops, DType factors);
// Bytes/s, read and written, of copying 64 MiB.
double CopyBytesPerSecond(Backend& ops);

}  // namespace sandglass
