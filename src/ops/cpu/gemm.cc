#include "ops/cpu/gemm.h"

#include <algorithm>

namespace sandglass::cpu {

Gemm::Gemm(const Team& team, Products products) : own_(team) {
  if (products != Products::kLibrary) return;
  library_ = MakeGemmLibrary(team.threads());
  SANDGLASS_CHECK(library_ != nullptr, "no library of matrix products in this build");
}

std::string Gemm::Description() const {
  if (library_ == nullptr) return "own products";
  return LibraryHasBF16() ? GemmLibraryName() : GemmLibraryName() + " (bf16: own products)";
}

void Gemm::Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  const int64_t inner = spec.a == Transpose::kYes ? a.rows : a.cols;
  SANDGLASS_CHECK(c.rows == (spec.a == Transpose::kYes ? a.cols : a.rows), "matmul rows");
  SANDGLASS_CHECK(c.cols == (spec.b == Transpose::kYes ? b.rows : b.cols), "matmul columns");
  SANDGLASS_CHECK(inner == (spec.b == Transpose::kYes ? b.cols : b.rows), "matmul inner size");
  SANDGLASS_CHECK(a.dtype == b.dtype, "factors of one type");
  SANDGLASS_CHECK(c.dtype == DType::kF32 || a.dtype == DType::kBF16, "products of f32 are f32");
  if (c.elements() == 0) return;
  if (inner == 0) {
    if (spec.into == Into::kAccumulate) return;
    for (int64_t row = 0; row < c.rows; ++row) {
      std::fill_n(c.data + row * c.stride * SizeOf(c.dtype), c.cols * SizeOf(c.dtype),
                  std::byte{0});
    }
    return;
  }
  if (library_ == nullptr) return own_.Multiply(c, a, b, spec);
  if (a.dtype == DType::kF32) return library_->MultiplyF32(c, a, b, spec);
  LibraryHasBF16() ? library_->MultiplyBF16(c, a, b, spec) : own_.Multiply(c, a, b, spec);
}

}  // namespace sandglass::cpu
