#include "ops/cpu/gemm.h"

#include <algorithm>

namespace sandglass::cpu {

Gemm::Gemm(const Team& team, Products products) : own_(team) {
  if (products == Products::kOwn) return;
  const bool asked = products == Products::kLibrary;
  if (!asked && !LibraryHasBF16Tiles()) return;
  library_ = MakeGemmLibrary(team.threads());
  SANDGLASS_CHECK(library_ != nullptr, "no library of matrix products in this build");
  library_takes_f32_ = asked;
  library_takes_bf16_ = LibraryHasBF16();
}

std::string Gemm::Description() const {
  if (library_ == nullptr) return "own products";
  if (!library_takes_f32_) return "own products (bf16: " + GemmLibraryName() + ")";
  return library_takes_bf16_ ? GemmLibraryName() : GemmLibraryName() + " (bf16: own products)";
}

void Gemm::Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  const int64_t inner = ColumnsOf(a, spec.a);
  SANDGLASS_CHECK(c.rows == RowsOf(a, spec.a), "matmul rows");
  SANDGLASS_CHECK(c.cols == ColumnsOf(b, spec.b), "matmul columns");
  SANDGLASS_CHECK(inner == RowsOf(b, spec.b), "matmul inner size");
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
  if (a.dtype == DType::kF32 && library_takes_f32_) return library_->MultiplyF32(c, a, b, spec);
  if (a.dtype == DType::kBF16 && library_takes_bf16_) return library_->MultiplyBF16(c, a, b, spec);
  own_.Multiply(c, a, b, spec);
}

}  // namespace sandglass::cpu
