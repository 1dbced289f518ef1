// Matrix products: Backend::Matmul, by products of our own (blocked_products.h) or, to compare, by
// a library that is chosen when the program is built.
#pragma once

#include <memory>
#include <string>

#include "ops/backend.h"
#include "ops/cpu/blocked_products.h"
#include "ops/cpu/team.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// A library of matrix products, used from one thread at a time. gemm_onednn.cc and gemm_cblas.cc
// implement it, gemm_none.cc stands for none; the build takes one of them.
class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;

  // c (+)= op(a) op(b), all f32, no dimension zero.
  virtual void MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;
  // The same for a and b in bf16 and c in f32 or bf16, accumulated in f32. Only if
  // LibraryHasBF16.
  virtual void MultiplyBF16(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;
};
// Null if there is none.
std::unique_ptr<GemmLibrary> MakeGemmLibrary(int threads);
// "oneDNN 2.6.3"; empty if there is none.
std::string GemmLibraryName();
// Whether it has bf16 products that are faster than f32 on this processor.
bool LibraryHasBF16();
// Whether it multiplies bf16 with AMX, whose tiles our kernels do not use.
bool LibraryHasBF16Tiles();

class Gemm {
 public:
  Gemm(const Team& team, Products products);

  // Who multiplies: "own products" or "oneDNN 2.6.3"; where one leaves bf16 to the other, "OpenBLAS
  // 0.3.21 (bf16: own products)" or the like.
  std::string Description() const;

  // Backend::Matmul; checks the sizes.
  void Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec);

 private:
  BlockedProducts own_;
  std::unique_ptr<GemmLibrary> library_;  // null if it takes nothing
  bool library_takes_f32_ = false;
  bool library_takes_bf16_ = false;
};

}  // namespace sandglass::cpu
