// Matrix products: Backend::Matmul, by products of our own (blocked_products.h) or a library that
// is chosen when the program is built.
//
// For products of bf16 there is a list of ways, tried in order; each says why it declines: the
// library's, where the processor has instructions for them, and conversion to f32, which is as
// exact but no faster than f32.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ops/backend.h"
#include "ops/cpu/blocked_products.h"
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
  // WhyNoBF16 is empty.
  virtual void MultiplyBF16(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;
};
// Null if there is none.
std::unique_ptr<GemmLibrary> MakeGemmLibrary(int threads);
// "oneDNN 2.6.3"; empty if there is none.
std::string GemmLibraryName();
// Why this library on this processor has no bf16 products that are faster than f32; empty if it
// has.
std::string WhyNoBF16();

class Gemm {
 public:
  Gemm(int threads, Products products);
  ~Gemm();

  // Who multiplies: "own products" or "oneDNN 2.6.3"; with the library of bf16 where that is
  // another, "own products (bf16: oneDNN 2.6.3)".
  std::string Description() const;

  // Backend::Matmul; checks the sizes.
  void Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec);

 private:
  void MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec);
  void MultiplyConverted(View c, ConstView a, ConstView b, const MatmulSpec& spec);

  class Workspace;
  std::unique_ptr<GemmLibrary> library_;
  std::optional<BlockedProducts> own_;  // unless the library multiplies f32
  bool has_bf16_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace sandglass::cpu
