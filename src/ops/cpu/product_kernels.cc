#include "ops/cpu/product_kernels.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "ops/cpu/element.h"
#include "ops/cpu/workspace.h"

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

template <class Words>
void PackRightRowsOf(float* panels, int64_t words, int64_t first, ConstView b) {
  constexpr int64_t kDepth = Words::kDepth;
  const FullTag d;
  const int64_t whole = b.cols / kPanel * kPanel;
  const int64_t rest = b.cols - whole;
  for (int64_t row = 0; row < b.rows; row += kDepth) {
    const auto rows = WordRowsOf<Words>(b, row);
    float* to = panels + (first + row) / kDepth * kPanel;
    for (int64_t column = 0; column < whole; column += kPanel) {
      for (int i = 0; i < kTileVectors; ++i) {
        hn::Store(rows.Load(d, column + i * kLanes), d, to + i * kLanes);
      }
      to += words * kPanel;
    }
    if (rest > 0) {
      CopyWords(to, rows, whole, rest);
      std::fill(to + rest, to + kPanel, 0.0f);
    }
  }
}

void PackRightRows(float* panels, int64_t words, int64_t first, ConstView b) {
  b.dtype == DType::kF32 ? PackRightRowsOf<Floats>(panels, words, first, b)
                         : PackRightRowsOf<Pairs>(panels, words, first, b);
}

// Rows of words become columns of words.
template <class Words>
void PackRightPanelOf(float* panel, ConstView b) {
  using Element = typename Words::Element;
  constexpr int64_t kDepth = Words::kDepth;
  const int64_t words = DivideUp(b.cols, kDepth);
  if (b.rows < kPanel) std::fill_n(panel, words * kPanel, 0.0f);
  const int64_t whole_columns = b.rows / 4 * 4;
  const int64_t whole_words = b.cols / (4 * kDepth) * 4;
  for (int64_t n = 0; n < whole_words; n += 4) {
    for (int64_t column = 0; column < whole_columns; column += 4) {
      const int64_t at = n * kDepth;
      const Element* const from[4] = {b.Row<Element>(column) + at, b.Row<Element>(column + 1) + at,
                                      b.Row<Element>(column + 2) + at,
                                      b.Row<Element>(column + 3) + at};
      TransposeWords4x4(from, panel + n * kPanel + column, kPanel);
    }
  }
  for (int64_t column = 0; column < b.rows; ++column) {
    const Element* const from = b.Row<Element>(column);
    for (int64_t n = column < whole_columns ? whole_words : 0; n < words; ++n) {
      panel[n * kPanel + column] = WordAt(from + n * kDepth, b.cols - n * kDepth);
    }
  }
}

void PackRightPanel(float* panel, ConstView b) {
  b.dtype == DType::kF32 ? PackRightPanelOf<Floats>(panel, b) : PackRightPanelOf<Pairs>(panel, b);
}

// A few rows of A at a time: each tile's share of them is a few whole cache lines, and no more
// lines are open than the first-level cache holds ways for, whatever the stride of A.
template <class Words>
void PackLeftTurned(float* packed, ConstView a) {
  constexpr int64_t kDepth = Words::kDepth;
  constexpr int64_t kStep = 8;
  const int64_t words = DivideUp(a.rows, kDepth);
  for (int64_t begin = 0; begin < words; begin += kStep) {
    const int64_t count = std::min(kStep, words - begin);
    std::array<typename Words::Rows, kStep> from;
    for (int64_t n = 0; n < count; ++n) from[n] = WordRowsOf<Words>(a, (begin + n) * kDepth);
    for (int64_t row = 0; row < a.cols;) {
      const int64_t rows = NextTileRows(a.cols - row);
      float* to = packed + row * words + begin * rows;
      for (int64_t n = 0; n < count; ++n, to += rows) {
        if (rows == kTileRows) {
          CopyWords<kTileRows>(to, from[n], row);
        } else {
          CopyWords(to, from[n], row, rows);
        }
      }
      row += rows;
    }
  }
}

// A that lies as it is multiplied is packed only where its rows end with half a word.
template <class Words>
void PackLeftRowsOf(float* packed, ConstView a) {
  using Element = typename Words::Element;
  constexpr int64_t kDepth = Words::kDepth;
  const int64_t words = DivideUp(a.cols, kDepth);
  for (int64_t row = 0; row < a.rows;) {
    const int64_t rows = NextTileRows(a.rows - row);
    float* const tile = packed + row * words;
    for (int64_t i = 0; i < rows; ++i) {
      const Element* const from = a.Row<Element>(row + i);
      for (int64_t n = 0; n < words; ++n) {
        tile[n * rows + i] = WordAt(from + n * kDepth, a.cols - n * kDepth);
      }
    }
    row += rows;
  }
}

void PackLeft(float* packed, ConstView a, Transpose transpose) {
  const bool floats = a.dtype == DType::kF32;
  if (transpose == Transpose::kYes) {
    floats ? PackLeftTurned<Floats>(packed, a) : PackLeftTurned<Pairs>(packed, a);
  } else {
    floats ? PackLeftRowsOf<Floats>(packed, a) : PackLeftRowsOf<Pairs>(packed, a);
  }
}

// One tile's rows of A times neighbouring panels of B: A stays in the first-level cache while B
// streams past from the second.
template <class Words, Left kLeft, int kRows, class Result>
HWY_NOINLINE void MultiplyPanels(Operand<Result> c, Operand<const typename Words::Element> a,
                                 const typename Words::Element* panels, int64_t words,
                                 int64_t count, Into into) {
  for (int64_t panel = 0; panel < count; ++panel) {
    MultiplyTile<Words, kLeft, kRows, kTileVectors>(c, a, {panels, kPanel * Words::kDepth}, words,
                                                    into);
    c.data += kPanel;
    panels += words * kPanel * Words::kDepth;
  }
}

// By rows of the tile, less one.
template <class Words, Left kLeft, class Result>
constexpr auto kMultiplyPanels = []<int... kLess>(std::integer_sequence<int, kLess...>) {
  return std::array{&MultiplyPanels<Words, kLeft, kLess + 1, Result>...};
}
(kTileRowsLessOne);

// The last panel, of which c has only some columns.
template <class Words, class Multiply, class Result>
void MultiplyPartialPanel(Multiply multiply, Operand<Result> c, int64_t rows, int64_t columns,
                          Operand<const typename Words::Element> a,
                          const typename Words::Element* panel, int64_t words, Into into) {
  HWY_ALIGN Result tile[kTileRows * kPanel];
  if (into == Into::kAccumulate) {
    std::fill_n(tile, kTileRows * kPanel, Result());
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(c.data + row * c.stride, columns, tile + row * kPanel);
    }
  }
  multiply({tile, kPanel}, a, panel, words, 1, into);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(tile + row * kPanel, columns, c.data + row * c.stride);
  }
}

template <class Words, Left kLeft, class Result>
void MultiplyBlockOf(View c, const LeftBlock& a, const float* packed, int64_t words, Into into) {
  using Element = typename Words::Element;
  constexpr int64_t kDepth = Words::kDepth;
  // Half of the smallest second-level cache in use (512 KiB).
  constexpr int64_t kGroupWords = int64_t{1} << 16;
  const int64_t group = std::max<int64_t>(1, kGroupWords / (words * kPanel));
  const int64_t whole = c.cols / kPanel;
  const auto* const panels = reinterpret_cast<const Element*>(packed);
  const auto* const a_data = static_cast<const Element*>(a.data);
  const auto for_each_tile = [&](const auto& action) {
    for (int64_t row = 0; row < c.rows;) {
      const int64_t rows = NextTileRows(c.rows - row);
      const Operand<const Element> left =
          kLeft == Left::kRowMajor
              ? Operand<const Element>{a_data + row * a.stride, a.stride}
              : Operand<const Element>{a_data + row * words * kDepth, rows * kDepth};
      action(kMultiplyPanels<Words, kLeft, Result>[rows - 1], row, rows, left);
      row += rows;
    }
  };
  for (int64_t first = 0; first < whole; first += group) {
    const int64_t count = std::min(group, whole - first);
    for_each_tile([&](auto multiply, int64_t row, int64_t, Operand<const Element> left) {
      multiply({c.Row<Result>(row) + first * kPanel, c.stride}, left,
               panels + first * words * kPanel * kDepth, words, count, into);
    });
  }
  const int64_t rest = c.cols - whole * kPanel;
  if (rest == 0) return;
  for_each_tile([&](auto multiply, int64_t row, int64_t rows, Operand<const Element> left) {
    MultiplyPartialPanel<Words>(
        multiply, Operand<Result>{c.Row<Result>(row) + whole * kPanel, c.stride}, rows, rest, left,
        panels + whole * words * kPanel * kDepth, words, into);
  });
}

// Calls action with the words of a product and with a value of its result's type. Products of
// floats are floats.
template <class Action>
HWY_INLINE void WithKinds(DType factors, DType result, const Action& action) {
  WithWords(factors, [&](auto words) {
    if constexpr (std::is_same_v<decltype(words), Floats>) {
      action(words, float());
    } else {
      WithElement(result, [&](auto element) { action(words, element); });
    }
  });
}

void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t words, Into into) {
  WithKinds(a.dtype, c.dtype, [&](auto kind, auto element) {
    using Words = decltype(kind);
    using Result = decltype(element);
    a.packed ? MultiplyBlockOf<Words, Left::kColumnMajor, Result>(c, a, panels, words, into)
             : MultiplyBlockOf<Words, Left::kRowMajor, Result>(c, a, panels, words, into);
  });
}

HWY_INLINE float Number(float x) { return x; }
HWY_INLINE float Number(BF16 x) { return ToFloat(x); }

// Dot products of kRows rows of a with kColumns rows of b, vectors along the depth.
template <class Words, class Result, int kRows, int kColumns>
HWY_NOINLINE void DotTile(Operand<Result> c, Operand<const typename Words::Element> a,
                          Operand<const typename Words::Element> b, int64_t depth, Into into) {
  const FullTag d;
  constexpr int64_t kStep = kLanes * Words::kDepth;
  hn::Vec<FullTag> sums[kRows][kColumns];
  for (auto& row : sums) std::fill_n(row, kColumns, hn::Zero(d));
  int64_t n = 0;
  for (; n + kStep <= depth; n += kStep) {
    hn::Vec<FullTag> left[kRows];
    for (int row = 0; row < kRows; ++row) left[row] = LoadWords(d, a.data + row * a.stride + n);
    for (int column = 0; column < kColumns; ++column) {
      const auto right = LoadWords(d, b.data + column * b.stride + n);
      for (int row = 0; row < kRows; ++row) {
        sums[row][column] = Words::MulAdd(left[row], right, sums[row][column]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[row][column]));
      for (int64_t i = n; i < depth; ++i) {
        sum += Number(a.data[row * a.stride + i]) * Number(b.data[column * b.stride + i]);
      }
      Result* const to = c.data + row * c.stride + column;
      if (into == Into::kAccumulate) sum += Number(*to);
      CopyOne(to, &sum);
    }
  }
}

// All rows of a with kColumns rows of b, which are read from memory once.
template <class Words, class Result, int kColumns>
HWY_INLINE void DotColumns(Operand<Result> c, ConstView a, Operand<const typename Words::Element> b,
                           Into into) {
  using Element = typename Words::Element;
  constexpr int64_t kRows = 3;
  for (int64_t row = 0; row < a.rows; row += kRows) {
    const Operand<Result> to = {c.data + row * c.stride, c.stride};
    const Operand<const Element> left = {a.Row<Element>(row), a.stride};
    const int64_t rows = std::min(kRows, a.rows - row);
    if (rows == 3) DotTile<Words, Result, 3, kColumns>(to, left, b, a.cols, into);
    if (rows == 2) DotTile<Words, Result, 2, kColumns>(to, left, b, a.cols, into);
    if (rows == 1) DotTile<Words, Result, 1, kColumns>(to, left, b, a.cols, into);
  }
}

template <class Words, class Result>
void MultiplyFewRowsOf(View c, ConstView a, ConstView b, Into into) {
  using Element = typename Words::Element;
  constexpr int64_t kColumns = 4;
  int64_t column = 0;
  for (; column + kColumns <= c.cols; column += kColumns) {
    DotColumns<Words, Result, kColumns>({c.Row<Result>() + column, c.stride}, a,
                                        {b.Row<Element>(column), b.stride}, into);
  }
  for (; column < c.cols; ++column) {
    DotColumns<Words, Result, 1>({c.Row<Result>() + column, c.stride}, a,
                                 {b.Row<Element>(column), b.stride}, into);
  }
}

void MultiplyFewRows(View c, ConstView a, ConstView b, Into into) {
  WithKinds(a.dtype, c.dtype, [&](auto words, auto result) {
    MultiplyFewRowsOf<decltype(words), decltype(result)>(c, a, b, into);
  });
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

void PackRightRows(float* panels, int64_t words, int64_t first, ConstView b) {
  HWY_DYNAMIC_DISPATCH(PackRightRows)(panels, words, first, b);
}
void PackRightPanel(float* panel, ConstView b) { HWY_DYNAMIC_DISPATCH(PackRightPanel)(panel, b); }
void PackLeft(float* packed, ConstView a, Transpose transpose) {
  HWY_DYNAMIC_DISPATCH(PackLeft)(packed, a, transpose);
}

void MultiplyBlock(View c, const LeftBlock& a, const float* panels, int64_t words, Into into) {
  HWY_DYNAMIC_DISPATCH(MultiplyBlock)(c, a, panels, words, into);
}

void MultiplyFewRows(View c, ConstView a, ConstView b, Into into) {
  HWY_DYNAMIC_DISPATCH(MultiplyFewRows)(c, a, b, into);
}

}  // namespace sandglass::cpu
#endif  // HWY_ONCE
