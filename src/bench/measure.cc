#include "bench/measure.h"

#include <tuple>

namespace sandglass {
namespace {

// Values around one, so that no product runs into denormals.
Matrix Halves(int64_t rows, int64_t cols, DType dtype) {
  Matrix matrix(rows, cols, dtype);
  if (dtype == DType::kBF16) {
    std::fill_n(matrix.view.Row<BF16>(), rows * cols, ToBF16(0.5f));
  } else {
    std::fill_n(matrix.view.Row<float>(), rows * cols, 0.5f);
  }
  return matrix;
}

}  // namespace

bool operator<(const MatmulShape& a, const MatmulShape& b) {
  const auto key = [](const MatmulShape& shape) {
    return std::tuple(shape.rows, shape.cols, shape.inner, shape.spec.a, shape.spec.b,
                      shape.spec.into, shape.factors, shape.result);
  };
  return key(a) < key(b);
}

double TimeMatmul(Backend& ops, const MatmulShape& shape) {
  const bool a_turned = shape.spec.a == Transpose::kYes;
  const bool b_turned = shape.spec.b == Transpose::kYes;
  const Matrix a = Halves(a_turned ? shape.inner : shape.rows, a_turned ? shape.rows : shape.inner,
                          shape.factors);
  const Matrix b = Halves(b_turned ? shape.cols : shape.inner, b_turned ? shape.inner : shape.cols,
                          shape.factors);
  const Matrix c = Halves(shape.rows, shape.cols, shape.result);
  return TimeAlone([&] { ops.Matmul(c.view, a.view, b.view, shape.spec); });
}

double PeakFlopsPerSecond(Backend& ops, DType factors) {
  constexpr int64_t kSize = 1536;
  return 2.0 * kSize * kSize * kSize /
         TimeMatmul(ops, {.rows = kSize, .cols = kSize, .inner = kSize, .factors = factors});
}

double CopyBytesPerSecond(Backend& ops) {
  constexpr int64_t kElements = int64_t{16} << 20;
  const Matrix from = Halves(1, kElements, DType::kF32);
  const Matrix to = Halves(1, kElements, DType::kF32);
  return 2.0 * kElements * SizeOf(DType::kF32) / TimeAlone([&] { ops.Copy(to.view, from.view); });
}

}  // namespace sandglass
