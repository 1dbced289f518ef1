// Matrix products: Backend::Matmul over a library that is chosen when the program is built.
//
// Products of f32 go to the library. For products of bf16 there is a list of ways, tried in order;
// each says why it declines: the library's own, where the processor has instructions for them, and
// conversion to f32, which is as exact but no faster than f32.
#pragma once

#include <memory>
#include <string>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// A library of matrix products, used from one thread at a time. gemm_onednn.cc and gemm_cblas.cc
// implement it; the build takes one of them.
class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;

  // c (+)= op(a) op(b), all f32, no dimension zero.
  virtual void MultiplyF32(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;
  // The same for a and b in bf16 and c in f32 or bf16, accumulated in f32. Only if
  // WhyNoBF16 is empty.
  virtual void MultiplyBF16(View c, ConstView a, ConstView b, const MatmulSpec& spec) = 0;
};
std::unique_ptr<GemmLibrary> MakeGemmLibrary(int threads);
// "oneDNN 2.6.3"
std::string GemmLibraryName();
// Why this library on this processor has no bf16 products that are faster than f32; empty if it
// has.
std::string WhyNoBF16();

class Gemm {
 public:
  explicit Gemm(int threads);
  ~Gemm();

  // Backend::Matmul; checks the sizes.
  void Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec);

 private:
  void MultiplyConverted(View c, ConstView a, ConstView b, const MatmulSpec& spec);

  class Workspace;
  std::unique_ptr<GemmLibrary> library_;
  bool has_bf16_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace sandglass::cpu
