// Vector kernels of matrix products in f32: C [rows, columns] (+)= A [rows, depth] B [depth,
// columns]. blocked_products.h says how they work together. Each runs on the calling thread.
#pragma once

#include <cstdint>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// The register tile of the instruction set in use.
int64_t ProductTileRows();
int64_t ProductTileColumns();

// B is packed in panels as wide as a tile, [depth, tile columns] each, one after the other; columns
// past the end of B are zero. These write rows [first, first + b.rows) of every panel, from B as it
// lies:
void PackRightRows(float* panels, int64_t depth, int64_t first, ConstView b);
// and one whole panel, from at most a tile's columns that lie as rows of b [columns, depth]:
void PackRightPanel(float* panel, ConstView b);

// Packs A that lies transposed, a [depth, rows]: tile by tile, of each its rows side by side.
void PackLeft(float* packed, ConstView a);

// A of MultiplyBlock: as PackLeft left it, or as it lies.
struct LeftBlock {
  const float* data;
  int64_t stride;  // from row to row; unused if packed
  bool packed;
};
// c (+)= a b, with all panels of b that c's columns need.
void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t depth, Into into);

// c (+)= a b^T for b [columns, depth] as it lies: for few rows, where packing b would cost more
// than it saves.
void MultiplyFewRows(View c, ConstView a, ConstView b, Into into);

}  // namespace sandglass::cpu
