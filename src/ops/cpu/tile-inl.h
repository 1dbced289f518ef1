// The register tile behind matrix products and attention, and what turns tiles over; compiled once
// for every instruction set.
#if defined(SANDGLASS_OPS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SANDGLASS_OPS_CPU_TILE_INL_H_
#undef SANDGLASS_OPS_CPU_TILE_INL_H_
#else
#define SANDGLASS_OPS_CPU_TILE_INL_H_
#endif

#include <cstdint>

#include "ops/backend.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

inline constexpr int64_t kLanes = hn::MaxLanes(FullTag());
// Vectors side by side in a register tile, and its rows: kTileRows * kTileVectors sums, the
// vectors of B and one broadcast fit 16 registers (32 with AVX-512 and on Arm).
inline constexpr int64_t kTileVectors = 2;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int64_t kTileRows = 8;
#else
inline constexpr int64_t kTileRows = 6;
#endif
inline constexpr int64_t kPanel = kTileVectors * kLanes;

// How A lies in memory: element (row, n) at [row * stride + n] or at [n * stride + row].
enum class Left { kRowMajor, kColumnMajor };

template <class T>
struct Operand {
  T* data;
  int64_t stride;
};

// C [kRows, kVectors * kLanes] (+)= A [kRows, inner] B [inner, kVectors * kLanes], with the lanes
// of B and C in vectors and the elements of A broadcast. Rows of B start on vector boundaries. The
// sum over `inner` starts from zero and is added to C once: so the rounding error of a long sum is
// that of its blocks and of their number, not of its length.
template <Left kLeft, int kRows, int kVectors>
HWY_INLINE void MultiplyTile(Operand<float> c, Operand<const float> a, Operand<const float> b,
                             int64_t inner, Into into) {
  const FullTag d;
  hn::Vec<FullTag> sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      sums[row][i] = hn::Zero(d);
    }
  }
  const float* a_row[kRows];
  for (int row = 0; row < kRows; ++row) {
    a_row[row] = a.data + (kLeft == Left::kRowMajor ? row * a.stride : row);
  }
  const int64_t a_step = kLeft == Left::kRowMajor ? 1 : a.stride;
  const float* b_row = b.data;
  int64_t a_offset = 0;
  for (int64_t n = 0; n < inner; ++n) {
    hn::Vec<FullTag> right[kVectors];
    for (int i = 0; i < kVectors; ++i) right[i] = hn::Load(d, b_row + i * kLanes);
    for (int row = 0; row < kRows; ++row) {
      const auto left = hn::Set(d, a_row[row][a_offset]);
      for (int i = 0; i < kVectors; ++i) sums[row][i] = hn::MulAdd(left, right[i], sums[row][i]);
    }
    b_row += b.stride;
    a_offset += a_step;
  }
  if (into == Into::kAccumulate) {
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kVectors; ++i) {
        const float* const before = c.data + row * c.stride + i * kLanes;
        sums[row][i] = hn::Add(sums[row][i], hn::LoadU(d, before));
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(sums[row][i], d, c.data + row * c.stride + i * kLanes);
    }
  }
}

// Rows of the next tile when `left` remain: the last two tiles share what is left evenly, because
// a tile of one or two rows would wait for its own sums.
constexpr int64_t NextTileRows(int64_t left) {
  if (left <= kTileRows) return left;
  return left < 2 * kTileRows ? (left + 1) / 2 : kTileRows;
}

// One number, rounded if need be.
template <class To, class From>
HWY_INLINE void CopyOne(To* to, const From* from) {
  StoreF32(LoadF32(OneTag(), from), OneTag(), to);
}

#if HWY_TARGET != HWY_SCALAR
// Four rows of four become four columns of four.
template <class From, class To>
HWY_INLINE void Transpose4x4(const From* const from[4], To* const to[4]) {
  const hn::FixedTag<float, 4> d;
  const auto row0 = LoadF32(d, from[0]);
  const auto row1 = LoadF32(d, from[1]);
  const auto row2 = LoadF32(d, from[2]);
  const auto row3 = LoadF32(d, from[3]);
  const auto low02 = hn::InterleaveLower(d, row0, row2);
  const auto low13 = hn::InterleaveLower(d, row1, row3);
  const auto high02 = hn::InterleaveUpper(d, row0, row2);
  const auto high13 = hn::InterleaveUpper(d, row1, row3);
  StoreF32(hn::InterleaveLower(d, low02, low13), d, to[0]);
  StoreF32(hn::InterleaveUpper(d, low02, low13), d, to[1]);
  StoreF32(hn::InterleaveLower(d, high02, high13), d, to[2]);
  StoreF32(hn::InterleaveUpper(d, high02, high13), d, to[3]);
}
#else
template <class From, class To>
HWY_INLINE void Transpose4x4(const From* const from[4], To* const to[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) CopyOne(to[j] + i, from[i] + j);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#endif  // SANDGLASS_OPS_CPU_TILE_INL_H_
