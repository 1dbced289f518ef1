#include "ops/cpu/product_kernels.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/product_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

int64_t ProductTileRows() { return kTileRows; }
int64_t ProductTileColumns() { return kPanel; }

void PackRightRows(float* panels, int64_t depth, int64_t first, ConstView b) {
  const FullTag d;
  const int64_t whole = b.cols / kPanel;
  const int64_t rest = b.cols % kPanel;
  for (int64_t row = 0; row < b.rows; ++row) {
    const float* from = b.Row<float>(row);
    float* to = panels + (first + row) * kPanel;
    for (int64_t panel = 0; panel < whole; ++panel) {
      for (int i = 0; i < kTileVectors; ++i) {
        hn::Store(hn::LoadU(d, from + i * kLanes), d, to + i * kLanes);
      }
      from += kPanel;
      to += depth * kPanel;
    }
    if (rest > 0) std::fill(std::copy_n(from, rest, to), to + kPanel, 0.0f);
  }
}

void PackRightPanel(float* panel, ConstView b) {
  const int64_t depth = b.cols;
  if (b.rows < kPanel) std::fill_n(panel, depth * kPanel, 0.0f);
  const int64_t whole_columns = b.rows / 4 * 4;
  const int64_t whole_depth = depth / 4 * 4;
  for (int64_t n = 0; n < whole_depth; n += 4) {
    for (int64_t column = 0; column < whole_columns; column += 4) {
      const float* const from[4] = {b.Row<float>(column) + n, b.Row<float>(column + 1) + n,
                                    b.Row<float>(column + 2) + n, b.Row<float>(column + 3) + n};
      float* const to = panel + n * kPanel + column;
      float* const rows[4] = {to, to + kPanel, to + 2 * kPanel, to + 3 * kPanel};
      Transpose4x4(from, rows);
    }
  }
  for (int64_t column = 0; column < b.rows; ++column) {
    const float* const from = b.Row<float>(column);
    for (int64_t n = column < whole_columns ? whole_depth : 0; n < depth; ++n) {
      panel[n * kPanel + column] = from[n];
    }
  }
}

// A few rows of A at a time: each tile's share of them is a few whole cache lines, and no more
// lines are open than the first-level cache holds ways for, whatever the stride of A.
void PackLeft(float* packed, ConstView a) {
  constexpr int64_t kStep = 8;
  for (int64_t begin = 0; begin < a.rows; begin += kStep) {
    const int64_t end = std::min(a.rows, begin + kStep);
    for (int64_t row = 0; row < a.cols;) {
      const int64_t rows = NextTileRows(a.cols - row);
      const float* from = a.Row<float>(begin) + row;
      float* to = packed + row * a.rows + begin * rows;
      if (rows == kTileRows) {
        for (int64_t n = begin; n < end; ++n, from += a.stride, to += kTileRows) {
          std::memcpy(to, from, kTileRows * sizeof(float));
        }
      } else {
        for (int64_t n = begin; n < end; ++n, from += a.stride, to += rows) {
          std::copy_n(from, rows, to);
        }
      }
      row += rows;
    }
  }
}

// One tile's rows of A times neighbouring panels of B: A stays in the first-level cache while B
// streams past from the second.
template <Left kLeft, int kRows>
HWY_NOINLINE void MultiplyPanels(Operand<float> c, Operand<const float> a, const float* panels,
                                 int64_t depth, int64_t count, Into into) {
  for (int64_t panel = 0; panel < count; ++panel) {
    MultiplyTile<kLeft, kRows, kTileVectors>(c, a, {panels, kPanel}, depth, into);
    c.data += kPanel;
    panels += depth * kPanel;
  }
}

using PanelsFunction = void (*)(Operand<float>, Operand<const float>, const float*, int64_t,
                                int64_t, Into);
// By rows of the tile, less one.
template <Left kLeft>
constexpr PanelsFunction kMultiplyPanels[] = {
    MultiplyPanels<kLeft, 1>, MultiplyPanels<kLeft, 2>, MultiplyPanels<kLeft, 3>,
    MultiplyPanels<kLeft, 4>, MultiplyPanels<kLeft, 5>, MultiplyPanels<kLeft, 6>,
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
    MultiplyPanels<kLeft, 7>, MultiplyPanels<kLeft, 8>,
#endif
};
static_assert(std::size(kMultiplyPanels<Left::kRowMajor>) == kTileRows);

// The last panel, of which c has only some columns.
void MultiplyPartialPanel(PanelsFunction multiply, View c, Operand<const float> a,
                          const float* panel, int64_t depth, Into into) {
  HWY_ALIGN float tile[kTileRows * kPanel];
  multiply({tile, kPanel}, a, panel, depth, 1, Into::kOverwrite);
  for (int64_t row = 0; row < c.rows; ++row) {
    float* const to = c.Row<float>(row);
    for (int64_t column = 0; column < c.cols; ++column) {
      const float sum = tile[row * kPanel + column];
      to[column] = into == Into::kAccumulate ? to[column] + sum : sum;
    }
  }
}

template <Left kLeft>
void MultiplyBlockOf(View c, const LeftBlock& a, const float* panels, int64_t depth, Into into) {
  // Half of the smallest second-level cache in use (512 KiB).
  constexpr int64_t kGroupFloats = int64_t{1} << 16;
  const int64_t group = std::max<int64_t>(1, kGroupFloats / (depth * kPanel));
  const int64_t whole = c.cols / kPanel;
  const auto for_each_tile = [&](const auto& action) {
    for (int64_t row = 0; row < c.rows;) {
      const int64_t rows = NextTileRows(c.rows - row);
      const Operand<const float> left =
          kLeft == Left::kRowMajor ? Operand<const float>{a.data + row * a.stride, a.stride}
                                   : Operand<const float>{a.data + row * depth, rows};
      action(kMultiplyPanels<kLeft>[rows - 1], row, rows, left);
      row += rows;
    }
  };
  for (int64_t first = 0; first < whole; first += group) {
    const int64_t count = std::min(group, whole - first);
    for_each_tile([&](PanelsFunction multiply, int64_t row, int64_t, Operand<const float> left) {
      multiply({c.Row<float>(row) + first * kPanel, c.stride}, left,
               panels + first * depth * kPanel, depth, count, into);
    });
  }
  const int64_t rest = c.cols - whole * kPanel;
  if (rest == 0) return;
  for_each_tile([&](PanelsFunction multiply, int64_t row, int64_t rows, Operand<const float> left) {
    MultiplyPartialPanel(multiply, c.Rows(row, rows).Columns(whole * kPanel, rest), left,
                         panels + whole * depth * kPanel, depth, into);
  });
}

void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t depth, Into into) {
  a.packed ? MultiplyBlockOf<Left::kColumnMajor>(c, a, panels, depth, into)
           : MultiplyBlockOf<Left::kRowMajor>(c, a, panels, depth, into);
}

// Dot products of kRows rows of a with kColumns rows of b, vectors along the depth.
template <int kRows, int kColumns>
HWY_NOINLINE void DotTile(Operand<float> c, Operand<const float> a, Operand<const float> b,
                          int64_t depth, Into into) {
  const FullTag d;
  hn::Vec<FullTag> sums[kRows][kColumns];
  for (auto& row : sums) std::fill_n(row, kColumns, hn::Zero(d));
  int64_t n = 0;
  for (; n + kLanes <= depth; n += kLanes) {
    hn::Vec<FullTag> left[kRows];
    for (int row = 0; row < kRows; ++row) left[row] = hn::LoadU(d, a.data + row * a.stride + n);
    for (int column = 0; column < kColumns; ++column) {
      const auto right = hn::LoadU(d, b.data + column * b.stride + n);
      for (int row = 0; row < kRows; ++row) {
        sums[row][column] = hn::MulAdd(left[row], right, sums[row][column]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[row][column]));
      for (int64_t i = n; i < depth; ++i) {
        sum += a.data[row * a.stride + i] * b.data[column * b.stride + i];
      }
      float& to = c.data[row * c.stride + column];
      to = into == Into::kAccumulate ? to + sum : sum;
    }
  }
}

// All rows of a with kColumns rows of b, which are read from memory once.
template <int kColumns>
HWY_INLINE void DotColumns(Operand<float> c, ConstView a, Operand<const float> b, Into into) {
  constexpr int64_t kRows = 3;
  for (int64_t row = 0; row < a.rows; row += kRows) {
    const Operand<float> to = {c.data + row * c.stride, c.stride};
    const Operand<const float> left = {a.Row<float>(row), a.stride};
    const int64_t rows = std::min(kRows, a.rows - row);
    if (rows == 3) DotTile<3, kColumns>(to, left, b, a.cols, into);
    if (rows == 2) DotTile<2, kColumns>(to, left, b, a.cols, into);
    if (rows == 1) DotTile<1, kColumns>(to, left, b, a.cols, into);
  }
}

void MultiplyFewRows(View c, ConstView a, ConstView b, Into into) {
  constexpr int64_t kColumns = 4;
  int64_t column = 0;
  for (; column + kColumns <= c.cols; column += kColumns) {
    DotColumns<kColumns>({c.Row<float>() + column, c.stride}, a, {b.Row<float>(column), b.stride},
                         into);
  }
  for (; column < c.cols; ++column) {
    DotColumns<1>({c.Row<float>() + column, c.stride}, a, {b.Row<float>(column), b.stride}, into);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sandglass::cpu {

HWY_EXPORT(ProductTileRows);
HWY_EXPORT(ProductTileColumns);
HWY_EXPORT(PackRightRows);
HWY_EXPORT(PackRightPanel);
HWY_EXPORT(PackLeft);
HWY_EXPORT(MultiplyBlock);
HWY_EXPORT(MultiplyFewRows);

int64_t ProductTileRows() { return HWY_DYNAMIC_DISPATCH(ProductTileRows)(); }
int64_t ProductTileColumns() { return HWY_DYNAMIC_DISPATCH(ProductTileColumns)(); }

void PackRightRows(float* panels, int64_t depth, int64_t first, ConstView b) {
  HWY_DYNAMIC_DISPATCH(PackRightRows)(panels, depth, first, b);
}
void PackRightPanel(float* panel, ConstView b) { HWY_DYNAMIC_DISPATCH(PackRightPanel)(panel, b); }
void PackLeft(float* packed, ConstView a) { HWY_DYNAMIC_DISPATCH(PackLeft)(packed, a); }

void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t depth, Into into) {
  HWY_DYNAMIC_DISPATCH(MultiplyBlock)(c, a, panels, depth, into);
}

void MultiplyFewRows(View c, ConstView a, ConstView b, Into into) {
  HWY_DYNAMIC_DISPATCH(MultiplyFewRows)(c, a, b, into);
}

}  // namespace sandglass::cpu
#endif  // HWY_ONCE
