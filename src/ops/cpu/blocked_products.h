// Matrix products of our own: C (+)= op(A) op(B), all f32, or A and B in bf16 and C in f32 or bf16,
// on the kernels of product_kernels.h.
//
// The scheme is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication",
// ACM TOMS 34(3), 2008) with its two inner loops exchanged. B is packed in blocks that fit the
// third-level cache, [kDepthBlock, a few hundred columns] of it at a time fit the second. Each
// thread takes rows of C; a tile's rows of A stay in the first-level cache while B streams past.
// A is read as it lies, or packed where it is transposed or its rows end with half a word of bf16.
// So no stride makes a product slow.
//
// Each element of C is a sum in an order that the sizes of the product fix: results have the same
// bits for any number of threads, and do not depend on the other rows (few rows apart, below).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/cpu/team.h"
#include "tensor/memory_plan.h"
#include "tensor/view.h"

namespace sandglass::cpu {

class BlockedProducts {
 public:
  explicit BlockedProducts(Team team) : team_(std::move(team)), left_(team_.threads()) {}

  // Backend::Matmul for sizes that match, none of them zero. Takes memory only when a product needs
  // more than any before: 8 MiB and 800 KiB a thread at most, and 4 MiB for a result in bf16 of a
  // depth above 768.
  void Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec);

 private:
  void CopyAll(View y, ConstView x) const;
  void MultiplyFew(View c, ConstView a, ConstView b, Into into) const;
  void MultiplyColumns(View c, ConstView a, ConstView b, const MatmulSpec& spec);
  void PackRight(ConstView b, Transpose transpose) const;

  float* Panels() const { return reinterpret_cast<float*>(right_.data()); }

  Team team_;
  AlignedBytes right_;              // a block of B
  AlignedBytes sums_;               // of columns of C
  std::vector<AlignedBytes> left_;  // of each thread, a block of A
};

}  // namespace sandglass::cpu
