#include "ops/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/cpu/row_kernels.h"
#include "ops/cpu/team.h"
#include "ops/cpu/workspace.h"
#include "tensor/memory_plan.h"

namespace sandglass::cpu {

// Room for the three matrices of a converted product; grows to the largest seen.
class Gemm::Workspace {
 public:
  explicit Workspace(int threads) : team_(threads) {}

  // An uninitialised f32 matrix of the view's shape in slot 0, 1 or 2.
  View Like(int slot, ConstView view) {
    AlignedBytes& bytes = slots_[slot];
    Reserve(bytes, view.elements());
    return {bytes.data(), DType::kF32, view.rows, view.cols, view.cols};
  }
  View Converted(int slot, ConstView view) {
    const View converted = Like(slot, view);
    CopyAll(converted, view);
    return converted;
  }
  void CopyAll(View y, ConstView x) const {
    team_.Ranges({.count = x.rows}, [&](int, int64_t begin, int64_t end) {
      Copy(y.Rows(begin, end - begin), x.Rows(begin, end - begin));
    });
  }

 private:
  Team team_;
  std::array<AlignedBytes, 3> slots_;
};

Gemm::Gemm(int threads, Products products)
    : library_(MakeGemmLibrary(threads)),
      has_bf16_(WhyNoBF16().empty()),
      workspace_(std::make_unique<Workspace>(threads)) {
  const bool own_is_untimed = std::string_view(TargetName()).starts_with("AVX3");
  if (products == Products::kAuto) {
    products = library_ != nullptr && own_is_untimed ? Products::kLibrary : Products::kOwn;
  }
  if (products == Products::kOwn) own_.emplace(threads);
  SANDGLASS_CHECK(own_ || library_ != nullptr, "no library of matrix products in this build");
}

Gemm::~Gemm() = default;

std::string Gemm::Description() const {
  if (!own_) return GemmLibraryName();
  return has_bf16_ ? "own products (bf16: " + GemmLibraryName() + ")" : "own products";
}

void Gemm::MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  own_ ? own_->Multiply(c, a, b, spec) : library_->MultiplyF32(c, a, b, spec);
}

void Gemm::Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  const int64_t inner = spec.a == Transpose::kYes ? a.rows : a.cols;
  SANDGLASS_CHECK(c.rows == (spec.a == Transpose::kYes ? a.cols : a.rows), "matmul rows");
  SANDGLASS_CHECK(c.cols == (spec.b == Transpose::kYes ? b.rows : b.cols), "matmul columns");
  SANDGLASS_CHECK(inner == (spec.b == Transpose::kYes ? b.cols : b.rows), "matmul inner size");
  SANDGLASS_CHECK(a.dtype == b.dtype, "factors of one type");
  if (c.elements() == 0) return;
  if (inner == 0) {
    if (spec.into == Into::kAccumulate) return;
    for (int64_t row = 0; row < c.rows; ++row) {
      std::fill_n(c.data + row * c.stride * SizeOf(c.dtype), c.cols * SizeOf(c.dtype),
                  std::byte{0});
    }
    return;
  }
  if (a.dtype == DType::kF32 && c.dtype == DType::kF32) {
    MultiplyF32(c, a, b, spec);
  } else if (a.dtype == DType::kBF16 && has_bf16_) {
    library_->MultiplyBF16(c, a, b, spec);
  } else {
    MultiplyConverted(c, a, b, spec);
  }
}

void Gemm::MultiplyConverted(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  const auto f32 = [&](int slot, ConstView view) {
    return view.dtype == DType::kF32 ? view : workspace_->Converted(slot, view);
  };
  if (c.dtype == DType::kF32) return MultiplyF32(c, f32(0, a), f32(1, b), spec);
  const View sum =
      spec.into == Into::kAccumulate ? workspace_->Converted(2, c) : workspace_->Like(2, c);
  MultiplyF32(sum, f32(0, a), f32(1, b), spec);
  workspace_->CopyAll(c, sum);
}

}  // namespace sandglass::cpu
