#include "ops/cpu/blocked_products.h"

#include <algorithm>

#include "ops/cpu/element.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/workspace.h"

namespace sandglass::cpu {
namespace {

// Words of depth that are multiplied at a time. A tile's rows of A, 6 x 384 words, take 9 of the 32
// KiB of a first-level cache; 160 columns of B 240 of the 512 KiB of a second-level one.
constexpr int64_t kDepthBlock = 384;
// Words of depth of a block of B, and words of one (8 MiB): where B is that deep, still a thousand
// columns.
constexpr int64_t kRightDepth = 2048;
constexpr int64_t kRightWords = int64_t{1} << 21;
// Rows and columns of C that are added up in f32 before they are rounded: 4 MiB.
constexpr int64_t kSumRows = 2048;
constexpr int64_t kSumColumns = 512;
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

// Blocks of depth, in elements; each but the last is whole words.
Blocks DepthBlocks(int64_t depth, DType factors) {
  return {depth, kDepthBlock * WordDepth(factors), 8};
}
Blocks RightBlocks(int64_t depth, DType factors) {
  return {depth, kRightDepth * WordDepth(factors), 8};
}

// Rows or columns [begin, begin + count) of op(x), as they lie.
ConstView TakeRows(ConstView x, Transpose transpose, int64_t begin, int64_t count) {
  return transpose == Transpose::kYes ? x.Columns(begin, count) : x.Rows(begin, count);
}
ConstView TakeColumns(ConstView x, Transpose transpose, int64_t begin, int64_t count) {
  return transpose == Transpose::kYes ? x.Rows(begin, count) : x.Columns(begin, count);
}

}  // namespace

void BlockedProducts::Multiply(View c, ConstView a, ConstView b, const MatmulSpec& spec) {
  if (c.rows < kFewRows && spec.a == Transpose::kNo && spec.b == Transpose::kYes) {
    return MultiplyFew(c, a, b, spec.into);
  }
  const int64_t all = ColumnsOf(a, spec.a);
  const int64_t tile_columns = ProductTileColumns();
  const Blocks depth = RightBlocks(all, a.dtype);
  const int64_t words = DivideUp(depth.size, WordDepth(a.dtype));
  // A result in bf16 that is added up in several blocks is added up in f32.
  const bool wide = c.dtype == DType::kBF16 && DepthBlocks(all, a.dtype).blocks() > 1;
  if (wide && c.rows > kSumRows) {
    const Blocks rows(c.rows, kSumRows, 1);
    for (int64_t i = 0; i < rows.blocks(); ++i) {
      Multiply(c.Rows(rows.begin(i), rows.length(i)),
               TakeRows(a, spec.a, rows.begin(i), rows.length(i)), b, spec);
    }
    return;
  }
  const int64_t most = wide ? std::min(kSumColumns, kRightWords / words) : kRightWords / words;
  const Blocks columns(c.cols, std::max(tile_columns, most / tile_columns * tile_columns),
                       tile_columns);
  if (wide) Reserve(sums_, c.rows * columns.size);
  for (int64_t j = 0; j < columns.blocks(); ++j) {
    const View part = c.Columns(columns.begin(j), columns.length(j));
    const View sum = wide ? View{sums_.data(), DType::kF32, part.rows, part.cols, part.cols} : part;
    if (wide && spec.into == Into::kAccumulate) CopyAll(sum, part);
    for (int64_t i = 0; i < depth.blocks(); ++i) {
      const ConstView a_part = TakeColumns(a, spec.a, depth.begin(i), depth.length(i));
      const ConstView b_part = TakeRows(b, spec.b, depth.begin(i), depth.length(i));
      MultiplyColumns(sum, a_part, TakeColumns(b_part, spec.b, columns.begin(j), columns.length(j)),
                      {spec.a, spec.b, i == 0 ? spec.into : Into::kAccumulate});
    }
    if (wide) CopyAll(part, sum);
  }
}

void BlockedProducts::CopyAll(View y, ConstView x) const {
  team_.Ranges({.count = x.rows}, [&](int, int64_t begin, int64_t end) {
    Copy(y.Rows(begin, end - begin), x.Rows(begin, end - begin));
  });
}

void BlockedProducts::MultiplyFew(View c, ConstView a, ConstView b, Into into) const {
  // A thread is worth waking for 64 KiB of B.
  const int64_t minimum = (int64_t{1} << 16) / (a.cols * SizeOf(a.dtype)) + 1;
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
  const int64_t word_depth = WordDepth(a.dtype);
  const Blocks depth = DepthBlocks(ColumnsOf(a, spec.a), a.dtype);
  Reserve(right_, DivideUp(depth.count, word_depth) * panels * tile_columns);
  PackRight(b, spec.b);

  // Rows of C in parts of whole tiles, as many for each thread; where there are too few tiles to
  // share out evenly, its columns too.
  const int64_t threads = team_.threads();
  const int64_t tiles = DivideUp(c.rows, tile_rows);
  const int64_t row_parts = std::min(tiles, DivideUp(c.rows, kRowBlock * threads) * threads);
  const int64_t column_parts = tiles < 8 * threads ? std::min(threads, panels) : 1;
  const auto tiles_before = [&](int64_t part) { return tiles * part / row_parts; };
  const auto panels_before = [&](int64_t part) { return panels * part / column_parts; };
  const auto is_packed = [&](int64_t length) {
    return spec.a == Transpose::kYes || length % word_depth != 0;
  };
  if (is_packed(depth.count)) {
    const int64_t rows = (tiles / row_parts + 1) * tile_rows;
    for (AlignedBytes& bytes : left_) Reserve(bytes, rows * DivideUp(depth.size, word_depth));
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
    const ConstView a_rows = TakeRows(a, spec.a, row, rows);
    for (int64_t i = 0; i < depth.blocks(); ++i) {
      const int64_t length = depth.length(i);
      const int64_t words = DivideUp(length, word_depth);
      const ConstView a_block = TakeColumns(a_rows, spec.a, depth.begin(i), length);
      LeftBlock left = {a_block.data, a.dtype, a_block.stride, false};
      if (is_packed(length)) {
        float* const packed = reinterpret_cast<float*>(left_[thread].data());
        PackLeft(packed, a_block, spec.a);
        left = {packed, a.dtype, 0, true};
      }
      const int64_t words_before = depth.begin(i) / word_depth;
      MultiplyBlock(part, left,
                    Panels() + (words_before * panels + first_panel * words) * tile_columns, words,
                    i == 0 ? spec.into : Into::kAccumulate);
    }
  });
}

// The blocks of depth one after the other, of each all panels.
void BlockedProducts::PackRight(ConstView b, Transpose transpose) const {
  const int64_t tile_columns = ProductTileColumns();
  const int64_t word_depth = WordDepth(b.dtype);
  const Blocks depth = DepthBlocks(RowsOf(b, transpose), b.dtype);
  const int64_t columns = ColumnsOf(b, transpose);
  const int64_t panels = DivideUp(columns, tile_columns);
  const auto words_of = [&](int64_t block) { return DivideUp(depth.length(block), word_depth); };
  const auto panels_of = [&](int64_t block) {
    return Panels() + depth.begin(block) / word_depth * panels * tile_columns;
  };
  if (transpose == Transpose::kYes) {
    team_.Items(depth.blocks() * panels, [&](int, int64_t item) {
      const int64_t block = item / panels;
      const int64_t panel = item % panels;
      const int64_t column = panel * tile_columns;
      const ConstView part = b.Rows(column, std::min(tile_columns, columns - column))
                                 .Columns(depth.begin(block), depth.length(block));
      PackRightPanel(panels_of(block) + panel * words_of(block) * tile_columns, part);
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
    PackRightRows(panels_of(block), words_of(block), first,
                  b.Rows(depth.begin(block) + first, rows));
  });
}

}  // namespace sandglass::cpu
