#include "ops/cpu/attention_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/cpu/element.h"
#include "ops/cpu/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/tile-inl.h"

// Tiles. Every product below is C [rows, lanes] (+)= A [rows, words] B [words, lanes] with the
// lanes of B and C in vectors and the words of A broadcast. Scores are kept transposed, keys by
// queries: then softmax runs along vectors without ever summing across one, and only queries (and
// the output) have to be transposed. In f32 keys and values are used as they lie; in bf16 what is
// summed over keys needs words of two keys.
#ifndef SANDGLASS_OPS_CPU_ATTENTION_TILES_
#define SANDGLASS_OPS_CPU_ATTENTION_TILES_
namespace sandglass::cpu {

inline constexpr int64_t kRowBlock = 64;
inline constexpr int64_t kKeyBlock = 64;
// Floats between the rows of a transposed tile of kRowBlock lanes. Five cache lines: a column of
// the tile then falls on all sets of the first-level cache, where four lines would use every
// fourth.
inline constexpr int64_t kLaneStride = 80;
// Widest vector in floats; row-major tiles are padded to it.
inline constexpr int64_t kWidestVector = 16;

// Hands out parts of a workspace, or only measures it when there is none.
class Carver {
 public:
  explicit Carver(float* workspace) : workspace_(workspace) {}
  float* Take(int64_t floats) {
    float* const part = workspace_ == nullptr ? nullptr : workspace_ + taken_;
    taken_ += RoundUp(floats, kWidestVector);
    return part;
  }
  int64_t taken() const { return taken_; }

 private:
  float* workspace_;
  int64_t taken_ = 0;
};

// Keys or values of one head, by rows. T is float or BF16, here and below: the type of activations,
// which are multiplied in words of kDepth elements (see tile-inl.h).
template <class T>
struct KeyRows {
  const T* data;
  int64_t stride;
};
template <class T>
inline constexpr int64_t kDepth = WordDepth(DTypeOf<T>());

// Words lie in arrays of floats. Words in depth e are neighbours in a head, words in depth of keys
// or rows neighbours among those.
template <class T>
struct ForwardTiles {
  ForwardTiles(Carver& carver, const AttentionSpec& spec)
      : q(carver.Take(DivideUp(spec.head_width, kDepth<T>) * kLaneStride)),
        out(carver.Take(spec.head_width * kLaneStride)),
        scores(carver.Take(kKeyBlock * kLaneStride)),
        largest(carver.Take(kRowBlock)),
        sum(carver.Take(kRowBlock)),
        k(carver.Take(RoundUp(spec.kv_length, kDepth<T>) * DivideUp(spec.head_width, kDepth<T>))),
        v(carver.Take(DivideUp(spec.kv_length, kDepth<T>) * spec.head_width)) {}

  float* q;        // [E words, rows]
  float* out;      // [E, rows]
  float* scores;   // [keys, rows] scores, then probabilities as words [key words, rows]
  float* largest;  // [rows] largest scaled score so far
  float* sum;      // [rows] sum of e^(scaled score - largest)
  float* k;        // [Tk, E words]
  float* v;        // [Tk words, E]
};

// In f32 a matrix by rows and the same in words are one.
template <class T>
struct BackwardTiles {
  static constexpr bool kWords = (kDepth<T>) > 1;

  BackwardTiles(Carver& carver, const AttentionSpec& spec)
      : width_words(DivideUp(spec.head_width, kDepth<T>)),
        padded_width(RoundUp(spec.head_width, kWidestVector)),
        q(carver.Take(width_words * kLaneStride)),
        dout(carver.Take(width_words * kLaneStride)),
        dq(carver.Take(spec.head_width * kLaneStride)),
        p(carver.Take(kKeyBlock * kLaneStride)),
        ds(carver.Take(kKeyBlock * kLaneStride)),
        p_rows(kWords ? carver.Take(kKeyBlock * kLaneStride / kDepth<T>) : p),
        ds_rows(kWords ? carver.Take(kKeyBlock * kLaneStride / kDepth<T>) : ds),
        q_rows(carver.Take(kRowBlock / kDepth<T> * padded_width)),
        dout_rows(carver.Take(kRowBlock / kDepth<T> * padded_width)),
        log_sum_exp(carver.Take(kRowBlock)),
        delta(carver.Take(kRowBlock)),
        k(carver.Take(RoundUp(spec.kv_length, kDepth<T>) * width_words)),
        v(carver.Take(RoundUp(spec.kv_length, kDepth<T>) * width_words)),
        k_turned(kWords ? carver.Take(DivideUp(spec.kv_length, kDepth<T>) * spec.head_width) : k),
        dk(carver.Take(spec.kv_length * padded_width)),
        dv(carver.Take(spec.kv_length * padded_width)) {}

  int64_t width_words;
  int64_t padded_width;
  float* q;            // [E words, rows]
  float* dout;         // [E words, rows]
  float* dq;           // [E, rows]
  float* p;            // [keys, rows] scores
  float* ds;           // [keys, rows] dP, then dS as words [key words, rows]
  float* p_rows;       // [keys, row words] probabilities
  float* ds_rows;      // [keys, row words] gradient of the scaled scores
  float* q_rows;       // [row words, E padded]
  float* dout_rows;    // [row words, E padded]
  float* log_sum_exp;  // [rows]
  float* delta;        // [rows] sum over e of dout * out
  float* k;            // [T, E words]
  float* v;            // [T, E words]
  float* k_turned;     // [T words, E]
  float* dk;           // [T, E padded]
  float* dv;           // [T, E padded]
};

// The query rows of one key-value head (see the header) in q, out or their gradients; with a width
// of 1, in log_sum_exp.
template <class T>
struct QueryRows {
  T* data;  // row of the batch element's first query, column of the first head
  int64_t stride;
  int64_t group;  // G
  int64_t width;  // E

  T* Row(int64_t row) const { return data + row / group * stride + row % group * width; }
};

// One block of query rows.
struct RowBlock {
  int64_t begin;              // first row
  int64_t rows;               // at most kRowBlock
  int64_t group;              // G
  int64_t first_position;     // of row 0 of the key-value head
  const int32_t* first_keys;  // [Tq] of the batch element, null if every row sees key 0

  int64_t Position(int64_t lane) const {
    return first_position + (begin + std::min(lane, rows - 1)) / group;
  }
  // The first key that a lane sees; never falls from lane to lane.
  int64_t FirstKey(int64_t lane) const {
    return first_keys == nullptr ? 0 : first_keys[(begin + std::min(lane, rows - 1)) / group];
  }
  // First lane that stands at `key` or behind it; may be past the end.
  int64_t FirstLaneOf(int64_t key) const {
    return std::clamp<int64_t>((key - first_position) * group - begin, 0, rows);
  }
  // One past the last lane whose document has begun at `key` or before it.
  int64_t EndLaneOf(int64_t key) const {
    int64_t end = rows;
    while (end > 0 && FirstKey(end - 1) > key) --end;
    return end;
  }
};

// Where the parts of one key-value head stand in the op's views.
class Head {
 public:
  Head(const AttentionSpec& spec, int batch, int kv_head)
      : spec_(spec), group_(spec.heads / spec.kv_heads), batch_(batch), kv_head_(kv_head) {}

  int64_t rows() const { return spec_.query_length * group_; }
  RowBlock Block(int64_t index) const {
    const int64_t begin = index * kRowBlock;
    return {begin, std::min(kRowBlock, rows() - begin), group_,
            int64_t{spec_.kv_length} - spec_.query_length,
            spec_.first_keys.empty()
                ? nullptr
                : spec_.first_keys.data() + int64_t{batch_} * spec_.query_length};
  }
  // `width` is that of a head: E, or 1 in log_sum_exp.
  template <class T, class Byte>
  auto Queries(BasicView<Byte> view, int64_t width) const {
    auto* row = view.template Row<T>(int64_t{batch_} * spec_.query_length);
    return QueryRows<std::remove_pointer_t<decltype(row)>>{row + kv_head_ * group_ * width,
                                                           view.stride, group_, width};
  }
  template <class T>
  KeyRows<T> Keys(ConstView view) const {
    return {view.Row<T>(int64_t{batch_} * spec_.kv_stride) + kv_head_ * spec_.head_width,
            view.stride};
  }
  template <class T>
  T* KeyRow(View view, int64_t key) const {
    return view.Row<T>(int64_t{batch_} * spec_.kv_stride + key) + kv_head_ * spec_.head_width;
  }

 private:
  const AttentionSpec& spec_;
  int64_t group_;
  int batch_;
  int kv_head_;
};

}  // namespace sandglass::cpu
#endif  // SANDGLASS_OPS_CPU_ATTENTION_TILES_

HWY_BEFORE_NAMESPACE();
namespace sandglass::cpu {
namespace HWY_NAMESPACE {

struct Sizes {
  int64_t rows;
  int64_t lanes;  // a multiple of kLanes
  int64_t words;  // of depth
};

// A tile as a function of its own: one for every number of rows, called by pointer.
template <class Words, Left kLeft, int kRows, int kVectors>
HWY_NOINLINE void TileOf(Operand<float> c, Operand<const typename Words::Element> a,
                         Operand<const typename Words::Element> b, int64_t words, Into into) {
  MultiplyTile<Words, kLeft, kRows, kVectors>(c, a, b, words, into);
}
// By rows, less one.
template <class Words, Left kLeft, int kVectors>
constexpr auto kTiles = []<int... kLess>(std::integer_sequence<int, kLess...>) {
  return std::array{&TileOf<Words, kLeft, kLess + 1, kVectors>...};
}
(kTileRowsLessOne);

// An operand of words, with its stride in words, as one of elements.
template <class Words>
Operand<const typename Words::Element> ElementsOf(Operand<const float> words) {
  return {reinterpret_cast<const typename Words::Element*>(words.data),
          words.stride * Words::kDepth};
}

// C (+)= A B of words. Rows of B and C start on vector boundaries. Strides count words.
template <class Words, Left kLeft>
void Multiply(Operand<float> c, Operand<const float> a, Operand<const float> b, const Sizes& sizes,
              Into into) {
  const auto multiply_panel = [&](const auto& tiles, int64_t lane) {
    for (int64_t row = 0; row < sizes.rows;) {
      const int64_t rows = NextTileRows(sizes.rows - row);
      const int64_t a_begin = kLeft == Left::kRowMajor ? row * a.stride : row;
      tiles[rows - 1]({c.data + row * c.stride + lane, c.stride},
                      ElementsOf<Words>({a.data + a_begin, a.stride}),
                      ElementsOf<Words>({b.data + lane, b.stride}), sizes.words, into);
      row += rows;
    }
  };
  int64_t lane = 0;
  for (; lane + kPanel <= sizes.lanes; lane += kPanel) {
    multiply_panel(kTiles<Words, kLeft, kTileVectors>, lane);
  }
  for (; lane < sizes.lanes; lane += kLanes) multiply_panel(kTiles<Words, kLeft, 1>, lane);
}

// `count` numbers times a factor, rounded if need be.
template <class T>
HWY_INLINE void StoreScaled(T* to, const float* from, int64_t count, float factor) {
  ForEachVector(count, [&](auto d, int64_t i) HWY_ATTR {
    StoreF32(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  });
}

// Multiplies a tile [count, lanes] by one factor per lane.
HWY_INLINE void ScaleTile(float* tile, int64_t count, int64_t lanes, const float* factors) {
  const FullTag d;
  for (int64_t lane = 0; lane < lanes; lane += kLanes) {
    const auto factor = hn::Load(d, factors + lane);
    for (int64_t i = 0; i < count; ++i) {
      float* const place = tile + i * kLaneStride + lane;
      hn::Store(hn::Mul(hn::Load(d, place), factor), d, place);
    }
  }
}

// tile [E words, lanes] = rows of the block, transposed; lanes past its end are 0.
template <class T>
void LoadTransposed(float* tile, const QueryRows<const T>& source, const RowBlock& block,
                    int64_t lanes) {
  const int64_t words = DivideUp(source.width, kDepth<T>);
  const int64_t whole_rows = block.rows / 4 * 4;
  const int64_t whole_words = source.width / (4 * kDepth<T>)*4;
  for (int64_t lane = 0; lane < whole_rows; lane += 4) {
    const T* rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = source.Row(block.begin + lane + i);
    for (int64_t n = 0; n < whole_words; n += 4) {
      const int64_t e = n * kDepth<T>;
      const T* const from[4] = {rows[0] + e, rows[1] + e, rows[2] + e, rows[3] + e};
      TransposeWords4x4(from, tile + n * kLaneStride + lane, kLaneStride);
    }
  }
  for (int64_t lane = 0; lane < block.rows; ++lane) {
    const T* const row = source.Row(block.begin + lane);
    for (int64_t n = lane < whole_rows ? whole_words : 0; n < words; ++n) {
      const int64_t e = n * kDepth<T>;
      tile[n * kLaneStride + lane] = WordAt(row + e, source.width - e);
    }
  }
  for (int64_t n = 0; n < words; ++n) {
    std::fill(tile + n * kLaneStride + block.rows, tile + n * kLaneStride + lanes, 0.0f);
  }
}

// Rows of the block = tile [E, lanes], transposed.
template <class T>
void StoreTransposed(const QueryRows<T>& target, const float* tile, const RowBlock& block) {
  const int64_t whole_rows = block.rows / 4 * 4;
  const int64_t whole_width = target.width / 4 * 4;
  for (int64_t lane = 0; lane < whole_rows; lane += 4) {
    T* rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = target.Row(block.begin + lane + i);
    for (int64_t e = 0; e < whole_width; e += 4) {
      const float* const from = tile + e * kLaneStride + lane;
      const float* const columns[4] = {from, from + kLaneStride, from + 2 * kLaneStride,
                                       from + 3 * kLaneStride};
      T* const to[4] = {rows[0] + e, rows[1] + e, rows[2] + e, rows[3] + e};
      Transpose4x4(columns, to);
    }
  }
  for (int64_t lane = 0; lane < block.rows; ++lane) {
    T* const row = target.Row(block.begin + lane);
    for (int64_t e = lane < whole_rows ? whole_width : 0; e < target.width; ++e) {
      CopyOne(row + e, tile + e * kLaneStride + lane);
    }
  }
}

// Copies keys [begin, end) of a head: rows of a wide buffer lie on few sets of the cache and would
// push each other out. To `packed` [end - begin, E words], by rows, with rows of zeros up to a
// whole word of keys:
template <class T>
void PackKeys(float* packed, const KeyRows<T>& source, int64_t begin, int64_t end, int64_t width) {
  const int64_t words = DivideUp(width, kDepth<T>);
  for (int64_t key = begin; key < end; ++key, packed += words) {
    const T* const from = source.data + key * source.stride;
    std::memcpy(packed, from, width * sizeof(T));
    if (width % kDepth<T> != 0) packed[words - 1] = WordAt(from + width - 1, 1);
  }
  for (int64_t key = end; (key - begin) % kDepth<T> != 0; ++key, packed += words) {
    std::fill_n(packed, words, 0.0f);
  }
}
// and to `packed` [key words, E], where the missing half of a last word is zero.
template <class Words, class T>
void PackKeysTurned(float* packed, const KeyRows<T>& source, int64_t begin, int64_t end,
                    int64_t width) {
  for (int64_t key = begin; key < end; key += Words::kDepth, packed += width) {
    typename Words::Rows rows = {source.data + key * source.stride};
    if constexpr (Words::kDepth > 1) {
      if (key + 1 < end) rows.later = source.data + (key + 1) * source.stride;
    }
    CopyWords(packed, rows, 0, width);
  }
}

// Lanes side by side that are worked on together.
struct Panel {
  int64_t begin;
  int64_t lanes;

  int64_t last() const { return begin + lanes - 1; }
};

// Keys [begin, end), counted from the first key of a block of keys.
struct KeyRange {
  int64_t begin;
  int64_t end;

  int64_t count() const { return end - begin; }
};

// The keys of the block [first_key, first_key + keys) that some lane of the panel sees, and up to
// whole words of `depth` keys those beside them.
KeyRange SeenKeys(const RowBlock& block, const Panel& panel, int64_t first_key, int64_t keys,
                  int64_t depth) {
  const int64_t end = std::clamp<int64_t>(block.Position(panel.last()) + 1 - first_key, 0, keys);
  const int64_t begin = std::clamp<int64_t>(block.FirstKey(panel.begin) - first_key, 0, end);
  if (begin == end) return {0, 0};
  return {begin / depth * depth, RoundUp(end, depth)};
}

// scores [keys, lanes] of keys that a lane does not see become -inf: those behind it, and those
// before its document. `scores` is the row of key `first_key`, the column of the panel's first
// lane.
void MaskUnseen(float* scores, const RowBlock& block, const Panel& panel, int64_t first_key,
                int64_t keys) {
  for (int64_t key = std::max<int64_t>(0, block.Position(panel.begin) + 1 - first_key); key < keys;
       ++key) {
    const int64_t visible_from = block.FirstLaneOf(first_key + key) - panel.begin;
    float* const row = scores + key * kLaneStride;
    std::fill_n(row, std::clamp<int64_t>(visible_from, 0, panel.lanes), -HUGE_VALF);
  }
  const int64_t before = std::min(block.FirstKey(panel.last()) - first_key, keys);
  for (int64_t key = 0; key < before; ++key) {
    const int64_t visible_to = block.EndLaneOf(first_key + key) - panel.begin;
    const int64_t from = std::clamp<int64_t>(visible_to, 0, panel.lanes);
    std::fill_n(scores + key * kLaneStride + from, panel.lanes - from, -HUGE_VALF);
  }
}

// The largest score of a lane that has seen no key: below every score, yet its distance to -inf,
// the score of an unseen key, is a number.
constexpr float kNoScore = -1e30f;

// One more block of keys for a panel of lanes: scores become e^(scale score - largest), in words,
// and what was summed before is brought to the new largest score.
template <class Words>
void UpdateSoftmax(const ForwardTiles<typename Words::Element>& tiles, const Panel& panel,
                   int64_t keys, int64_t width, float scale) {
  const FullTag d;
  constexpr int kDepth = Words::kDepth;
  const auto factor = hn::Set(d, scale);
  for (int64_t lane = panel.begin; lane <= panel.last(); lane += kLanes) {
    float* const scores = tiles.scores + lane;
    const auto before = hn::Load(d, tiles.largest + lane);
    auto highest = hn::Load(d, scores);
    for (int64_t key = 1; key < keys; ++key) {
      highest = hn::Max(highest, hn::Load(d, scores + key * kLaneStride));
    }
    const auto largest = hn::Max(before, hn::Mul(highest, factor));
    auto sum = hn::Load(d, tiles.sum + lane);
    if (!hn::AllTrue(d, hn::Eq(largest, before))) {
      const auto correction = ExpBounded(d, hn::Sub(before, largest));
      sum = hn::Mul(sum, correction);
      float* const out = tiles.out + lane;
      for (int64_t e = 0; e < width; ++e) {
        float* const place = out + e * kLaneStride;
        hn::Store(hn::Mul(hn::Load(d, place), correction), d, place);
      }
      hn::Store(largest, d, tiles.largest + lane);
    }
    for (int64_t n = 0; n < keys / kDepth; ++n) {
      hn::Vec<FullTag> p[kDepth];
      for (int i = 0; i < kDepth; ++i) {
        const auto score = hn::Load(d, scores + (n * kDepth + i) * kLaneStride);
        p[i] = ExpBounded(d, hn::MulSub(score, factor, largest));
        sum = hn::Add(sum, p[i]);
      }
      hn::Store(Words::Join(p), d, scores + n * kLaneStride);
    }
    hn::Store(sum, d, tiles.sum + lane);
  }
}

// Lanes of a block: whole vectors and whole words.
template <class T>
int64_t LanesOf(const RowBlock& block) {
  return RoundUp(block.rows, std::max(kLanes, kDepth<T>));
}

template <class Words>
void AttentionOf(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                 const AttentionSpec& spec, const AttentionSlice& slice, float* workspace) {
  using T = typename Words::Element;
  Carver carver(workspace);
  const ForwardTiles<T> tiles(carver, spec);
  const Head head(spec, slice.batch, slice.kv_head);
  const int64_t width = spec.head_width;
  const int64_t width_words = DivideUp(width, kDepth<T>);
  const int64_t blocks = AttentionRowBlocks(spec);
  const KeyRows<T> keys = head.Keys<T>(k);
  const KeyRows<T> values = head.Keys<T>(v);
  // Keys and values are packed when a block of rows first needs them, and kept if another follows.
  const bool keep = slice.first + slice.stride < blocks;
  int64_t packed = 0;
  for (int64_t index = slice.first; index < blocks; index += slice.stride) {
    const RowBlock block = head.Block(index);
    const int64_t lanes = LanesOf<T>(block);
    LoadTransposed(tiles.q, head.Queries<T>(q, width), block, lanes);
    std::fill_n(tiles.out, width * kLaneStride, 0.0f);
    std::fill_n(tiles.largest, lanes, kNoScore);
    std::fill_n(tiles.sum, lanes, 0.0f);
    const int64_t limit = block.Position(kRowBlock) + 1;
    // Rows further down start no earlier, so blocks of keys that are left out here stay out.
    const int64_t start = block.FirstKey(0) / kKeyBlock * kKeyBlock;
    for (int64_t first_key = start; first_key < limit; first_key += kKeyBlock) {
      const int64_t last_key = std::min(first_key + kKeyBlock, limit);
      const int64_t place = keep ? first_key : 0;
      float* const k_block = tiles.k + place * width_words;
      float* const v_block = tiles.v + place / kDepth<T> * width;
      if (packed < last_key) {
        PackKeys(k_block, keys, first_key, last_key, width);
        PackKeysTurned<Words>(v_block, values, first_key, last_key, width);
        packed = last_key;
      }
      for (int64_t lane = 0; lane < lanes; lane += kPanel) {
        const Panel panel = {lane, std::min(kPanel, lanes - lane)};
        const KeyRange seen = SeenKeys(block, panel, first_key, last_key - first_key, kDepth<T>);
        if (seen.count() == 0) continue;
        const int64_t words = seen.count() / kDepth<T>;
        float* const scores = tiles.scores + lane;
        Multiply<Words, Left::kRowMajor>(
            {scores, kLaneStride}, {k_block + seen.begin * width_words, width_words},
            {tiles.q + lane, kLaneStride}, {seen.count(), panel.lanes, width_words},
            Into::kOverwrite);
        MaskUnseen(scores, block, panel, first_key + seen.begin, seen.count());
        UpdateSoftmax<Words>(tiles, panel, seen.count(), width, static_cast<float>(spec.scale));
        Multiply<Words, Left::kColumnMajor>(
            {tiles.out + lane, kLaneStride}, {v_block + seen.begin / kDepth<T> * width, width},
            {scores, kLaneStride}, {width, panel.lanes, words}, Into::kAccumulate);
      }
    }
    alignas(64) float factors[kRowBlock];
    for (int64_t lane = 0; lane < lanes; ++lane) factors[lane] = 1.0f / tiles.sum[lane];
    ScaleTile(tiles.out, width, lanes, factors);
    StoreTransposed(head.Queries<T>(out, width), tiles.out, block);
    const QueryRows<float> lse_rows = head.Queries<float>(log_sum_exp, 1);
    for (int64_t lane = 0; lane < block.rows; ++lane) {
      *lse_rows.Row(block.begin + lane) = tiles.largest[lane] + std::log(tiles.sum[lane]);
    }
  }
}

void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
               const AttentionSpec& spec, const AttentionSlice& slice, float* workspace) {
  WithWords(q.dtype, [&](auto words) {
    AttentionOf<decltype(words)>(out, log_sum_exp, q, k, v, spec, slice, workspace);
  });
}

// From scores and dP to P = e^(scale score - log_sum_exp) and dS = P (dP - delta), of `keys` keys
// from the first of a word: to rows of elements both, and dS as words of keys in place.
template <class Words>
void ScoreGradients(const BackwardTiles<typename Words::Element>& tiles, const Panel& panel,
                    const KeyRange& keys, float scale) {
  using T = typename Words::Element;
  const FullTag d;
  const auto factor = hn::Set(d, scale);
  for (int64_t lane = panel.begin; lane <= panel.last(); lane += kLanes) {
    const auto log_sum_exp = hn::Load(d, tiles.log_sum_exp + lane);
    const auto delta = hn::Load(d, tiles.delta + lane);
    for (int64_t word = keys.begin / kDepth<T>; word < keys.end / kDepth<T>; ++word) {
      hn::Vec<FullTag> ds[kDepth<T>];
      for (int i = 0; i < kDepth<T>; ++i) {
        const int64_t key = word * kDepth<T> + i;
        const int64_t place = key * kLaneStride + lane;
        // A rounding error may lift a score above its own log_sum_exp, but never far.
        const auto score = hn::Load(d, tiles.p + place);
        const auto p = ExpBounded(d, hn::MulSub(score, factor, log_sum_exp));
        ds[i] = hn::Mul(p, hn::Sub(hn::Load(d, tiles.ds + place), delta));
        StoreF32(p, d, reinterpret_cast<T*>(tiles.p_rows) + place);
        StoreF32(ds[i], d, reinterpret_cast<T*>(tiles.ds_rows) + place);
      }
      if constexpr (Words::kDepth > 1) {
        hn::Store(Words::Join(ds), d, tiles.ds + word * kLaneStride + lane);
      }
    }
  }
}

// The block's queries and output gradients, transposed and as words of rows, and what the softmax
// gradient needs of each row.
template <class Words, class T = typename Words::Element>
void LoadBackwardBlock(const BackwardTiles<T>& tiles, const Head& head, const AttentionSaved& saved,
                       const AttentionSpec& spec, const RowBlock& block) {
  const int64_t width = spec.head_width;
  const int64_t lanes = LanesOf<T>(block);
  const auto q = head.Queries<T>(saved.q, width);
  const auto dout = head.Queries<T>(saved.dout, width);
  const auto out = head.Queries<T>(saved.out, width);
  const auto log_sum_exp = head.Queries<float>(saved.log_sum_exp, 1);
  LoadTransposed(tiles.q, q, block, lanes);
  LoadTransposed(tiles.dout, dout, block, lanes);
  const auto load_rows = [&](float* to, const QueryRows<const T>& source, int64_t lane) {
    typename Words::Rows rows = {source.Row(block.begin + lane)};
    if constexpr (Words::kDepth > 1) {
      if (lane + 1 < block.rows) rows.later = source.Row(block.begin + lane + 1);
    }
    to += lane / kDepth<T> * tiles.padded_width;
    CopyWords(to, rows, 0, width);
    std::fill(to + width, to + tiles.padded_width, 0.0f);
  };
  for (int64_t lane = 0; lane < block.rows; lane += kDepth<T>) {
    load_rows(tiles.q_rows, q, lane);
    load_rows(tiles.dout_rows, dout, lane);
  }
  for (int64_t lane = 0; lane < block.rows; ++lane) {
    const T* const dout_row = dout.Row(block.begin + lane);
    const T* const out_row = out.Row(block.begin + lane);
    tiles.delta[lane] = BlockSum(0, width, [&](auto d, int64_t e) HWY_ATTR {
      return hn::Mul(LoadF32(d, dout_row + e), LoadF32(d, out_row + e));
    });
    tiles.log_sum_exp[lane] = *log_sum_exp.Row(block.begin + lane);
  }
  // Lanes past the end get P = 0.
  std::fill(tiles.delta + block.rows, tiles.delta + lanes, 0.0f);
  std::fill(tiles.log_sum_exp + block.rows, tiles.log_sum_exp + lanes, HUGE_VALF);
}

template <class Words>
void AttentionBackwardOf(const AttentionGradients& gradients, const AttentionSaved& saved,
                         const AttentionSpec& spec, int batch, int kv_head, float* workspace) {
  using T = typename Words::Element;
  Carver carver(workspace);
  const BackwardTiles<T> tiles(carver, spec);
  const Head head(spec, batch, kv_head);
  const int64_t width = spec.head_width;
  const int64_t width_words = tiles.width_words;
  const int64_t padded = tiles.padded_width;
  const int64_t width_lanes = RoundUp(width, kLanes);
  const float scale = static_cast<float>(spec.scale);
  // Words from row to row of p_rows and ds_rows.
  constexpr int64_t kRowStride = kLaneStride / kDepth<T>;
  PackKeys(tiles.k, head.Keys<T>(saved.k), 0, spec.kv_length, width);
  PackKeys(tiles.v, head.Keys<T>(saved.v), 0, spec.kv_length, width);
  if constexpr (Words::kDepth > 1) {
    PackKeysTurned<Words>(tiles.k_turned, head.Keys<T>(saved.k), 0, spec.kv_length, width);
  }
  std::fill_n(tiles.dk, spec.kv_length * padded, 0.0f);
  std::fill_n(tiles.dv, spec.kv_length * padded, 0.0f);
  alignas(64) float factors[kRowBlock];
  std::fill_n(factors, kRowBlock, scale);
  for (int64_t index = 0; index < AttentionRowBlocks(spec); ++index) {
    const RowBlock block = head.Block(index);
    const int64_t lanes = LanesOf<T>(block);
    LoadBackwardBlock<Words>(tiles, head, saved, spec, block);
    std::fill_n(tiles.dq, width * kLaneStride, 0.0f);
    const int64_t limit = block.Position(kRowBlock) + 1;
    const int64_t start = block.FirstKey(0) / kKeyBlock * kKeyBlock;
    for (int64_t first_key = start; first_key < limit; first_key += kKeyBlock) {
      const int64_t block_keys = std::min(kKeyBlock, limit - first_key);
      for (int64_t lane = 0; lane < lanes; lane += kPanel) {
        const Panel panel = {lane, std::min(kPanel, lanes - lane)};
        const KeyRange seen = SeenKeys(block, panel, first_key, block_keys, kDepth<T>);
        const auto clear = [&](int64_t begin, int64_t end) {
          for (int64_t key = begin; key < end; ++key) {
            const int64_t place = key * kRowStride + lane / kDepth<T>;
            std::fill_n(tiles.p_rows + place, panel.lanes / kDepth<T>, 0.0f);
            std::fill_n(tiles.ds_rows + place, panel.lanes / kDepth<T>, 0.0f);
          }
        };
        clear(0, seen.begin);
        clear(seen.end, block_keys);
        if (seen.count() == 0) continue;
        const int64_t first = first_key + seen.begin;
        const int64_t place = seen.begin * kLaneStride + lane;
        Multiply<Words, Left::kRowMajor>(
            {tiles.p + place, kLaneStride}, {tiles.k + first * width_words, width_words},
            {tiles.q + lane, kLaneStride}, {seen.count(), panel.lanes, width_words},
            Into::kOverwrite);
        Multiply<Words, Left::kRowMajor>(
            {tiles.ds + place, kLaneStride}, {tiles.v + first * width_words, width_words},
            {tiles.dout + lane, kLaneStride}, {seen.count(), panel.lanes, width_words},
            Into::kOverwrite);
        MaskUnseen(tiles.p + place, block, panel, first, seen.count());
        ScoreGradients<Words>(tiles, panel, seen, scale);
        Multiply<Words, Left::kColumnMajor>(
            {tiles.dq + lane, kLaneStride}, {tiles.k_turned + first / kDepth<T> * width, width},
            {tiles.ds + seen.begin / kDepth<T> * kLaneStride + lane, kLaneStride},
            {width, panel.lanes, seen.count() / kDepth<T>}, Into::kAccumulate);
      }
      // Where the diagonal or the start of a document crosses, a few keys at a time, each with the
      // lanes that see them.
      const bool crossed = first_key + block_keys - 1 > block.Position(0) ||
                           block.FirstKey(block.rows - 1) > first_key;
      const int64_t step = crossed ? 2 * kTileRows : kKeyBlock;
      for (int64_t key = 0; key < block_keys; key += step) {
        const int64_t keys = std::min(step, block_keys - key);
        // In words: lanes beside those that see the keys have P = 0.
        const int64_t lane = block.FirstLaneOf(first_key + key) / kDepth<T>;
        const int64_t end = DivideUp(block.EndLaneOf(first_key + key + keys - 1), kDepth<T>);
        if (end <= lane) continue;
        const Sizes sizes = {keys, width_lanes, end - lane};
        const int64_t from = key * kRowStride + lane;
        const int64_t to = (first_key + key) * padded;
        Multiply<Words, Left::kRowMajor>({tiles.dv + to, padded}, {tiles.p_rows + from, kRowStride},
                                         {tiles.dout_rows + lane * padded, padded}, sizes,
                                         Into::kAccumulate);
        Multiply<Words, Left::kRowMajor>(
            {tiles.dk + to, padded}, {tiles.ds_rows + from, kRowStride},
            {tiles.q_rows + lane * padded, padded}, sizes, Into::kAccumulate);
      }
    }
    ScaleTile(tiles.dq, width, lanes, factors);
    StoreTransposed(head.Queries<T>(gradients.dq, width), tiles.dq, block);
  }
  for (int64_t key = 0; key < spec.kv_length; ++key) {
    StoreScaled(head.KeyRow<T>(gradients.dk, key), tiles.dk + key * padded, width, scale);
    StoreScaled(head.KeyRow<T>(gradients.dv, key), tiles.dv + key * padded, width, 1.0f);
  }
}

void AttentionBackward(const AttentionGradients& gradients, const AttentionSaved& saved,
                       const AttentionSpec& spec, int batch, int kv_head, float* workspace) {
  WithWords(saved.q.dtype, [&](auto words) {
    AttentionBackwardOf<decltype(words)>(gradients, saved, spec, batch, kv_head, workspace);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sandglass::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sandglass::cpu {

HWY_EXPORT(Attention);
HWY_EXPORT(AttentionBackward);

int64_t AttentionRowBlocks(const AttentionSpec& spec) {
  const int64_t rows = int64_t{spec.query_length} * (spec.heads / spec.kv_heads);
  return (rows + kRowBlock - 1) / kRowBlock;
}

namespace {

template <template <class> class Tiles>
int64_t WorkspaceOf(const AttentionSpec& spec) {
  Carver floats(nullptr), pairs(nullptr);
  Tiles<float>(floats, spec);
  Tiles<BF16>(pairs, spec);
  return std::max(floats.taken(), pairs.taken());
}

}  // namespace

int64_t AttentionWorkspace(const AttentionSpec& spec) { return WorkspaceOf<ForwardTiles>(spec); }

int64_t AttentionBackwardWorkspace(const AttentionSpec& spec) {
  return WorkspaceOf<BackwardTiles>(spec);
}

void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
               const AttentionSpec& spec, const AttentionSlice& slice, float* workspace) {
  HWY_DYNAMIC_DISPATCH(Attention)(out, log_sum_exp, q, k, v, spec, slice, workspace);
}

void AttentionBackward(const AttentionGradients& gradients, const AttentionSaved& saved,
                       const AttentionSpec& spec, int batch, int kv_head, float* workspace) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(gradients, saved, spec, batch, kv_head, workspace);
}

}  // namespace sandglass::cpu
#endif  // HWY_ONCE
