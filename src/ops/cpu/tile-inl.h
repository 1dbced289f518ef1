// The register tile behind matrix products and attention, and what turns tiles over; compiled once
// for every instruction set.
#if defined(SANDGLASS_OPS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SANDGLASS_OPS_CPU_TILE_INL_H_
#undef SANDGLASS_OPS_CPU_TILE_INL_H_
#else
#define SANDGLASS_OPS_CPU_TILE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ops/backend.h"
#include "ops/cpu/element.h"
#include "ops/cpu/simd-inl.h"

// AVX-512, and whatever targets with more of it other versions of Highway have.
#undef SANDGLASS_AVX512
#define SANDGLASS_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

inline constexpr int64_t kLanes = hn::MaxLanes(FullTag());
// Vectors side by side in a register tile, and its rows: kTileRows * kTileVectors sums, the
// vectors of B and one broadcast fit 16 registers (32 with AVX-512 and on Arm), of floats.
inline constexpr int64_t kTileVectors = 2;
#if SANDGLASS_AVX512 || HWY_TARGET == HWY_NEON
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

// What is multiplied: 32-bit words of the two factors, one step of depth in each. Words lie in
// float vectors and float arrays, whatever they hold. Of rows below one another, a kind of words
// has Rows: as many as a word is deep, whose elements above one another are words. Join makes words
// of numbers.
//
// The first kind is a float:
struct Floats {
  using Element = float;
  static constexpr int64_t kDepth = WordDepth(DType::kF32);
  using V = hn::Vec<FullTag>;

  struct Rows {
    const float* row = nullptr;

    template <class D>
    HWY_INLINE hn::Vec<D> Load(D d, int64_t column) const {
      return hn::LoadU(d, row + column);
    }
  };

  static HWY_INLINE V Join(const V (&numbers)[1]) { return numbers[0]; }
  static HWY_INLINE V MulAdd(V a, V b, V sum) { return hn::MulAdd(a, b, sum); }
};
// Two neighbours in bf16, the earlier one in the lower half.
struct Pairs {
  using Element = BF16;
  static constexpr int64_t kDepth = WordDepth(DType::kBF16);
  using V = hn::Vec<FullTag>;

  struct Rows {
    const BF16* earlier = nullptr;
    const BF16* later = nullptr;  // null below the last row: zeros

    template <class D>
    HWY_INLINE hn::Vec<D> Load(D d, int64_t column) const {
      const hn::Rebind<uint32_t, D> bits;
      const hn::Rebind<uint16_t, D> halves;
      const auto widened = [&](const BF16* row) HWY_ATTR {
        const auto* const numbers = reinterpret_cast<const uint16_t*>(row + column);
        return hn::PromoteTo(bits, hn::LoadU(halves, numbers));
      };
      auto word = widened(earlier);
      if (later != nullptr) word = hn::Or(word, hn::ShiftLeft<16>(widened(later)));
      return hn::BitCast(d, word);
    }
  };

  static HWY_INLINE V Join(const V (&numbers)[2]) {
    const auto earlier = RoundedBF16(FullTag(), numbers[0]);
    const auto later = RoundedBF16(FullTag(), numbers[1]);
    return hn::BitCast(FullTag(), hn::Or(earlier, hn::ShiftLeft<16>(later)));
  }
  static HWY_INLINE V MulAdd(V a, V b, V sum) {
    return hn::MulAdd(Later(a), Later(b), hn::MulAdd(Earlier(a), Earlier(b), sum));
  }

 private:
  static HWY_INLINE V Earlier(V word) {
    const hn::Repartition<uint32_t, FullTag> bits;
    return hn::BitCast(FullTag(), hn::ShiftLeft<16>(hn::BitCast(bits, word)));
  }
  static HWY_INLINE V Later(V word) {
    const hn::Repartition<uint32_t, FullTag> bits;
    return hn::BitCast(FullTag(), hn::And(hn::BitCast(bits, word), hn::Set(bits, 0xffff0000u)));
  }
};
#if SANDGLASS_AVX512
// The same on processors with AVX512_BF16, which Highway 1.0 has no target for.
struct DotPairs : Pairs {
  static HWY_INLINE V MulAdd(V a, V b, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Calls action with the kind of words that factors of a type are multiplied in.
template <class Action>
HWY_INLINE void WithWords(DType factors, const Action& action) {
  SANDGLASS_CHECK(factors == DType::kF32 || factors == DType::kBF16,
                  "cpu kernels are for f32 and bf16");
  if (factors == DType::kF32) return action(Floats());
#if SANDGLASS_AVX512
  if (HasDotBF16()) return action(DotPairs());
#endif
  action(Pairs());
}

// The rows of a word that begins with row `row` of x.
template <class Words>
HWY_INLINE typename Words::Rows WordRowsOf(ConstView x, int64_t row) {
  using Element = typename Words::Element;
  if constexpr (Words::kDepth == 1) {
    return {x.Row<Element>(row)};
  } else {
    return {x.Row<Element>(row), row + 1 < x.rows ? x.Row<Element>(row + 1) : nullptr};
  }
}

// Words [begin, begin + count) of such rows, side by side.
template <class Rows>
HWY_INLINE void CopyWords(float* to, const Rows& rows, int64_t begin, int64_t count) {
  ForEachVector(
      count, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(rows.Load(d, begin + i), d, to + i); });
}
template <int kCount, class Rows>
HWY_INLINE void CopyWords(float* to, const Rows& rows, int64_t begin) {
  constexpr int kStep = std::min<int>(kLanes, std::bit_floor(unsigned{kCount}));
  const hn::CappedTag<float, kStep> d;
  hn::StoreU(rows.Load(d, begin), d, to);
  if constexpr (kCount > kStep) CopyWords<kCount - kStep>(to + kStep, rows, begin + kStep);
}

// The word that starts at `from`, where `left` elements remain.
HWY_INLINE float WordAt(const float* from, int64_t /*left*/) { return *from; }
HWY_INLINE float WordAt(const BF16* from, int64_t left) {
  const BF16 pair[2] = {from[0], left > 1 ? from[1] : BF16()};
  return std::bit_cast<float>(pair);
}

// The words at `from`, and one word in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> LoadWords(D d, const float* from) {
  return hn::LoadU(d, from);
}
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE hn::Vec<FullTag> LoadWords(FullTag d, const BF16* from) {
  float word;
  std::memcpy(&word, from, sizeof(word));
  return hn::Set(d, word);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> LoadWords(D d, const BF16* from) {
  const hn::Repartition<uint16_t, D> halves;
  return hn::BitCast(d, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
}
#endif
HWY_INLINE hn::Vec<FullTag> SetWord(const float* from) { return hn::Set(FullTag(), *from); }
HWY_INLINE hn::Vec<FullTag> SetWord(const BF16* from) {
  const hn::Repartition<uint32_t, FullTag> bits;
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return hn::BitCast(FullTag(), hn::Set(bits, word));
}

// C [kRows, kVectors * kLanes] (+)= A [kRows, words] B [words, kVectors * kLanes], with the lanes
// of B and C in vectors and the words of A broadcast. Strides count elements. The sum over `words`
// starts from zero and is added to C once: so the rounding error of a long sum is that of its
// blocks and of their number, not of its length.
template <class Words, Left kLeft, int kRows, int kVectors, class Result>
HWY_INLINE void MultiplyTile(Operand<Result> c, Operand<const typename Words::Element> a,
                             Operand<const typename Words::Element> b, int64_t words, Into into) {
  const FullTag d;
  hn::Vec<FullTag> sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      sums[row][i] = hn::Zero(d);
    }
  }
  const typename Words::Element* a_row[kRows];
  for (int row = 0; row < kRows; ++row) {
    a_row[row] = a.data + row * (kLeft == Left::kRowMajor ? a.stride : Words::kDepth);
  }
  const int64_t a_step = kLeft == Left::kRowMajor ? Words::kDepth : a.stride;
  const typename Words::Element* b_row = b.data;
  int64_t a_offset = 0;
  for (int64_t n = 0; n < words; ++n) {
    hn::Vec<FullTag> right[kVectors];
    for (int i = 0; i < kVectors; ++i) right[i] = LoadWords(d, b_row + i * kLanes * Words::kDepth);
    for (int row = 0; row < kRows; ++row) {
      const auto left = SetWord(a_row[row] + a_offset);
      for (int i = 0; i < kVectors; ++i) {
        sums[row][i] = Words::MulAdd(left, right[i], sums[row][i]);
      }
    }
    b_row += b.stride;
    a_offset += a_step;
  }
  if (into == Into::kAccumulate) {
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kVectors; ++i) {
        const Result* const before = c.data + row * c.stride + i * kLanes;
        sums[row][i] = hn::Add(sums[row][i], LoadF32(d, before));
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      StoreF32(sums[row][i], d, c.data + row * c.stride + i * kLanes);
    }
  }
}

// For tables of functions by the rows of a tile.
inline constexpr std::make_integer_sequence<int, kTileRows> kTileRowsLessOne;

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
using FourTag = hn::FixedTag<float, 4>;

HWY_INLINE void TransposeRows(hn::Vec<FourTag> (&rows)[4]) {
  const FourTag d;
  const auto low02 = hn::InterleaveLower(d, rows[0], rows[2]);
  const auto low13 = hn::InterleaveLower(d, rows[1], rows[3]);
  const auto high02 = hn::InterleaveUpper(d, rows[0], rows[2]);
  const auto high13 = hn::InterleaveUpper(d, rows[1], rows[3]);
  rows[0] = hn::InterleaveLower(d, low02, low13);
  rows[1] = hn::InterleaveUpper(d, low02, low13);
  rows[2] = hn::InterleaveLower(d, high02, high13);
  rows[3] = hn::InterleaveUpper(d, high02, high13);
}

// Four rows of four numbers become four columns of four, rounded if need be.
template <class From, class To>
HWY_INLINE void Transpose4x4(const From* const from[4], To* const to[4]) {
  hn::Vec<FourTag> rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = LoadF32(FourTag(), from[i]);
  TransposeRows(rows);
  for (int i = 0; i < 4; ++i) StoreF32(rows[i], FourTag(), to[i]);
}
// The same for words.
template <class Element>
HWY_INLINE void TransposeWords4x4(const Element* const from[4], float* to, int64_t to_stride) {
  hn::Vec<FourTag> rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = LoadWords(FourTag(), from[i]);
  TransposeRows(rows);
  for (int i = 0; i < 4; ++i) hn::StoreU(rows[i], FourTag(), to + i * to_stride);
}
#else
template <class From, class To>
HWY_INLINE void Transpose4x4(const From* const from[4], To* const to[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) CopyOne(to[j] + i, from[i] + j);
  }
}
template <class Element>
HWY_INLINE void TransposeWords4x4(const Element* const from[4], float* to, int64_t to_stride) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      std::memcpy(to + j * to_stride + i, from[i] + j * 4 / sizeof(Element), 4);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#endif  // SANDGLASS_OPS_CPU_TILE_INL_H_
