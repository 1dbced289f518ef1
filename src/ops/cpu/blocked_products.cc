#include "ops/cpu/blocked_products.h"

#include <algorithm>

#include "ops/cpu/product_kernels.h"
#include "ops/cpu/workspace.h"

namespace sandglass::cpu {
namespace {

// Depth of what is multiplied at a time. A tile's rows of A, 6 x 384 floats, take 9 of the 32 KiB
// of a first-level cache; 160 columns of B 240 of the 512 KiB of a second-level one.
constexpr int64_t kDepthBlock = 384;
// Depth of a block of B, and floats of one (8 MiB): where B is that deep, still a thousand columns.
constexpr int64_t kRightDepth = 2048;
constexpr int64_t kRightFloats = int64_t{1} << 21;
// Rows of C that a thread takes at a time, at most. More would not fit the second-level cache
// beside B where A is packed.
constexpr int64_t kRowBlock = 512;
// Products of fewer rows do not pack B: up to here that costs more than slower kernels.
constexpr int64_t kFewRows = 64;

// [0, count) in equal blocks of at most `most`, each but the last a multiple of `multiple`.
struct Blocks {
  int64_t count;
  int64_t size;

  Blocks(int64_t all, int64_t most, int64_t multiple)
      : count(all), size(RoundUp(DivideUp(all, DivideUp(all, most)), multiple)) {}
  int64_t blocks() const { return DivideUp(count, size); }
  int64_t begin(int64_t block) const { return block * size; }
  int64_t length(int64_t block) const { return std::min(size, count - begin(block)); }
};

Blocks DepthBlocks(int64_t depth) { return {depth, kDepthBlock, 8}; }

// Rows [begin, begin + count) of op(x).
ConstView RowsOf(ConstView x, Transpose transpose, int64_t begin, int64_t count) {
  return transpose == Transpose::kYes ? x.Columns(begin, count) : x.Rows(begin, count);
}
ConstView ColumnsOf(ConstView x, Transpose transpose, int64_t begin, int64_t count) {
  return transpose == Transpose::kYes ? x.Rows(begin, count) : x.Columns(begin, count);
}

}  // namespace

void BlockedProducts::Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  if (c.rows < kFewRows && spec.a == Transpose::kNo && spec.b == Transpose::kYes) {
    return MultiplyFew(c, a, b, spec.into);
  }
  const int64_t all = spec.a == Transpose::kYes ? a.rows : a.cols;
  const int64_t tile_columns = ProductTileColumns();
  const Blocks depth(all, kRightDepth, 8);
  const Blocks columns(
      c.cols, std::max(tile_columns, kRightFloats / depth.size / tile_columns * tile_columns),
      tile_columns);
  for (int64_t i = 0; i < depth.blocks(); ++i) {
    const ConstView a_part = ColumnsOf(a, spec.a, depth.begin(i), depth.length(i));
    const ConstView b_part = RowsOf(b, spec.b, depth.begin(i), depth.length(i));
    const Into into = i == 0 ? spec.into : Into::kAccumulate;
    for (int64_t j = 0; j < columns.blocks(); ++j) {
      MultiplyColumns(c.Columns(columns.begin(j), columns.length(j)), a_part,
                      ColumnsOf(b_part, spec.b, columns.begin(j), columns.length(j)),
                      {spec.a, spec.b, into});
    }
  }
}

void BlockedProducts::MultiplyFew(View c, ConstView a, ConstView b, Into into) const {
  // A thread is worth waking for 64 KiB of B.
  const int64_t minimum = (int64_t{1} << 14) / a.cols + 1;
  team_.Ranges(
      {.count = c.cols, .minimum = minimum, .multiple = 16}, [&](int, int64_t begin, int64_t end) {
        MultiplyFewRows(c.Columns(begin, end - begin), a, b.Rows(begin, end - begin), into);
      });
}

// Of B one block, of C its columns.
void BlockedProducts::MultiplyColumns(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  const int64_t tile_rows = ProductTileRows();
  const int64_t tile_columns = ProductTileColumns();
  const int64_t panels = DivideUp(c.cols, tile_columns);
  const Blocks depth = DepthBlocks(spec.a == Transpose::kYes ? a.rows : a.cols);
  Reserve(right_, depth.count * panels * tile_columns);
  PackRight(b, spec.b);

  // Rows of C in parts of whole tiles, as many for each thread; where there are too few tiles to
  // share out evenly, its columns too.
  const int64_t threads = team_.threads();
  const int64_t tiles = DivideUp(c.rows, tile_rows);
  const int64_t row_parts = std::min(tiles, DivideUp(c.rows, kRowBlock * threads) * threads);
  const int64_t column_parts = tiles < 8 * threads ? std::min(threads, panels) : 1;
  const auto tiles_before = [&](int64_t part) { return tiles * part / row_parts; };
  const auto panels_before = [&](int64_t part) { return panels * part / column_parts; };
  if (spec.a == Transpose::kYes) {
    const int64_t rows = (tiles / row_parts + 1) * tile_rows;
    for (AlignedBytes& bytes : left_) Reserve(bytes, rows * depth.size);
  }
  team_.Items(row_parts * column_parts, [&](int thread, int64_t item) {
    const int64_t row_part = item / column_parts;
    const int64_t column_part = item % column_parts;
    const int64_t row = tiles_before(row_part) * tile_rows;
    const int64_t rows = std::min(c.rows, tiles_before(row_part + 1) * tile_rows) - row;
    const int64_t first_panel = panels_before(column_part);
    const int64_t column = first_panel * tile_columns;
    const int64_t columns =
        std::min(c.cols, panels_before(column_part + 1) * tile_columns) - column;
    const View part = c.Rows(row, rows).Columns(column, columns);
    const ConstView a_rows = RowsOf(a, spec.a, row, rows);
    for (int64_t i = 0; i < depth.blocks(); ++i) {
      const int64_t length = depth.length(i);
      const ConstView a_block = ColumnsOf(a_rows, spec.a, depth.begin(i), length);
      LeftBlock left = {a_block.Row<float>(), a_block.stride, false};
      if (spec.a == Transpose::kYes) {
        float* const packed = reinterpret_cast<float*>(left_[thread].data());
        PackLeft(packed, a_block);
        left = {packed, 0, true};
      }
      MultiplyBlock(part, left,
                    Panels() + (depth.begin(i) * panels + first_panel * length) * tile_columns,
                    length, i == 0 ? spec.into : Into::kAccumulate);
    }
  });
}

// The blocks of depth one after the other, of each all panels.
void BlockedProducts::PackRight(ConstView b, Transpose transpose) const {
  const int64_t tile_columns = ProductTileColumns();
  const bool transposed = transpose == Transpose::kYes;
  const Blocks depth = DepthBlocks(transposed ? b.cols : b.rows);
  const int64_t columns = transposed ? b.rows : b.cols;
  const int64_t panels = DivideUp(columns, tile_columns);
  const auto block_of = [&](int64_t block) {
    return Panels() + depth.begin(block) * panels * tile_columns;
  };
  if (transposed) {
    team_.Items(depth.blocks() * panels, [&](int, int64_t item) {
      const int64_t block = item / panels;
      const int64_t panel = item % panels;
      const int64_t column = panel * tile_columns;
      const ConstView part = b.Rows(column, std::min(tile_columns, columns - column))
                                 .Columns(depth.begin(block), depth.length(block));
      PackRightPanel(block_of(block) + panel * depth.length(block) * tile_columns, part);
    });
    return;
  }
  constexpr int64_t kRows = 32;
  const int64_t pieces = DivideUp(depth.size, kRows);
  team_.Items(depth.blocks() * pieces, [&](int, int64_t item) {
    const int64_t block = item / pieces;
    const int64_t first = item % pieces * kRows;
    const int64_t rows = std::min(kRows, depth.length(block) - first);
    if (rows <= 0) return;
    PackRightRows(block_of(block), depth.length(block), first,
                  b.Rows(depth.begin(block) + first, rows));
  });
}

}  // namespace sandglass::cpu
