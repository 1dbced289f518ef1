// Vector kernels of matrix products: C [rows, columns] (+)= A [rows, depth] B [depth, columns], all
// f32, or A and B in bf16 with C in f32 or bf16 and sums in f32. blocked_products.h says how they
// work together. Each runs on the calling thread.
//
// Factors are multiplied word by word: a word is a float or two neighbours along the depth in bf16,
// and packed factors hold words, whatever lies in them, as floats. An odd depth of bf16 ends with
// half a word; its other half is packed as zero.
#pragma once

#include <cstdint>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// The register tile of the instruction set in use.
int64_t ProductTileRows();
int64_t ProductTileColumns();

// B is packed in panels as wide as a tile, [words, tile columns] each, one after the other; columns
// past the end of B are zero. These write rows [first, first + b.rows) of B to every panel, from B
// as it lies (`first` begins a word, and b ends with one or with B):
void PackRightRows(float* panels, int64_t words, int64_t first, ConstView b);
// and one whole panel, from at most a tile's columns that lie as rows of b [columns, depth]:
void PackRightPanel(float* panel, ConstView b);

// Packs A tile by tile, of each the words of its rows side by side; a is A or its transpose.
void PackLeft(float* packed, ConstView a, Transpose transpose);

// A of MultiplyBlock: as PackLeft left it, or as it lies.
struct LeftBlock {
  const void* data;
  DType dtype;
  int64_t stride;  // from row to row, in elements; unused if packed
  bool packed;
};
// c (+)= a b, with all panels of b that c's columns need.
void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t words, Into into);

// c (+)= a b^T for b [columns, depth] as it lies: for few rows, where packing b would cost more
// than it saves.
void MultiplyFewRows(View c, ConstView a, ConstView b, Into into);

}  // namespace sandglass::cpu
