// Activations in bf16. The kernels compute in f32 and round once, at the end; so on numbers that
// bf16 holds exactly, every op must give, bit for bit, the rounded result of the same op in f32,
// which ops_test.cc checks against the reference. Matrix products and attention, whose factors are
// bf16 too, are checked against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "ops/backend.h"
#include "ops/cpu/gemm.h"
#include "ops/testing.h"

namespace sandglass {
namespace {

TEST(BF16, RoundsToTheNearestTiesToEven) {
  const auto rounded = [](float value) { return ToFloat(ToBF16(value)); };
  EXPECT_EQ(rounded(1.0f), 1.0f);
  // Numbers from 1 on are 1/128 apart.
  EXPECT_EQ(rounded(1.0f + 1.0f / 256), 1.0f) << "a tie, down to the even 1";
  EXPECT_EQ(rounded(1.0f + 3.0f / 256), 1.0f + 4.0f / 256) << "a tie, up to the even one";
  EXPECT_EQ(rounded(std::nextafter(1.0f + 1.0f / 256, 2.0f)), 1.0f + 2.0f / 256);
  EXPECT_EQ(rounded(-std::nextafter(1.0f + 1.0f / 256, 2.0f)), -1.0f - 2.0f / 256);
  EXPECT_EQ(rounded(3.4e38f), std::numeric_limits<float>::infinity()) << "beyond the largest";
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()),
            -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits)))) << bits;
  }
}

// What an op reads or writes, in both types with equal values.
class Twin {
 public:
  Twin(int64_t rows, int64_t cols, RandomStream& random, double scale = 1.0)
      : rows_(rows), cols_(cols), f32_(rows * cols), bf16_(rows * cols) {
    for (size_t i = 0; i < f32_.size(); ++i) {
      bf16_[i] = ToBF16(static_cast<float>(scale * random.NextNormal()));
      f32_[i] = ToFloat(bf16_[i]);
    }
  }
  // Of the stream and statistics: f32 in both runs.
  View F32() { return ViewOf(f32_.data(), rows_, cols_); }
  View In(DType dtype) { return dtype == DType::kF32 ? F32() : ViewOf(bf16_.data(), rows_, cols_); }
  std::vector<uint16_t> Rounded() const {
    std::vector<uint16_t> bits;
    for (const float value : f32_) bits.push_back(ToBF16(value).bits);
    return bits;
  }
  std::vector<uint16_t> Bits() const {
    std::vector<uint16_t> bits;
    for (const BF16 value : bf16_) bits.push_back(value.bits);
    return bits;
  }
  const std::vector<float>& f32() const { return f32_; }
  int64_t cols() const { return cols_; }
  void FillColumn(int64_t column, float value) {
    for (int64_t i = column; i < std::ssize(f32_); i += cols_) {
      f32_[i] = value;
      bf16_[i] = ToBF16(value);
    }
  }
  // Rows [begin, end).
  void FillRows(int64_t begin, int64_t end, float value) {
    std::fill(f32_.begin() + begin * cols_, f32_.begin() + end * cols_, value);
    std::fill(bf16_.begin() + begin * cols_, bf16_.begin() + end * cols_, ToBF16(value));
  }

 private:
  int64_t rows_, cols_;
  std::vector<float> f32_;
  std::vector<BF16> bf16_;
};

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

constexpr int kWidths[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 129};

TEST(BF16Ops, CopyRoundsAndWidens) {
  ForEachCpu([](Backend& ops) {
    for (const int width : kWidths) {
      RandomStream random(1, "copy");
      std::vector<float> values(3 * width), back(3 * width);
      for (float& value : values) value = static_cast<float>(random.NextNormal());
      values[0] = std::numeric_limits<float>::quiet_NaN();
      values[width] = std::numeric_limits<float>::infinity();
      std::vector<BF16> rounded(values.size());
      ops.Copy(ViewOf(rounded.data(), 3, width), ViewOf(values.data(), 3, width));
      ops.Copy(ViewOf(back.data(), 3, width), ViewOf(rounded.data(), 3, width));
      EXPECT_TRUE(std::isnan(back[0]));
      for (size_t i = 1; i < values.size(); ++i) {
        ASSERT_EQ(rounded[i].bits, ToBF16(values[i]).bits) << values[i];
        ASSERT_EQ(back[i], ToFloat(rounded[i]));
      }
    }
  });
}

TEST(BF16Ops, RmsNormAndItsGradient) {
  ForEachCpu([](Backend& ops) {
    for (const int width : kWidths) {
      for (const int groups : {1, 2}) {
        RandomStream random(2, "norm");
        const int rows = 5, cols = width * groups;
        Twin x(rows, cols, random), y(rows, cols, random), dy(rows, cols, random);
        Twin dx(rows, cols, random), dstream(rows, cols, random), gain(1, width, random);
        std::vector<float> inverse_rms[2], dgain[2], stream[2];
        for (int run = 0; run < 2; ++run) {
          const DType type = kTypes[run];
          inverse_rms[run].resize(rows * groups);
          dgain[run].resize(width);
          stream[run].assign(rows * cols, 0.5f);
          const View rms = ViewOf(inverse_rms[run].data(), rows, groups);
          const View to_stream = ViewOf(stream[run].data(), rows, cols);
          const RmsNormSpec spec = {.scale = 0.7, .groups = groups};
          const RmsNormSpec adds = {.scale = 0.7, .groups = groups, .into = Into::kAccumulate};
          // The stream keeps f32 beside activations of either type.
          ops.RmsNorm(to_stream, rms, x.In(type), gain.F32(), adds);
          ops.RmsNorm(y.In(type), rms, x.F32(), gain.F32(), spec);
          ops.RmsNorm(y.In(type), rms, x.In(type), gain.F32(), spec);
          const View dgain_view = ViewOf(dgain[run].data(), 1, width);
          ops.RmsNormBackward(to_stream, dgain_view, dy.In(type), x.In(type), rms, gain.F32(),
                              adds);
          ops.RmsNormBackward(dx.In(type), dgain_view, dstream.F32(), x.In(type), rms, gain.F32(),
                              spec);
          ops.RmsNormBackward(dy.In(type), dgain_view, dy.In(type), x.In(type), rms, gain.F32(),
                              spec);
        }
        ASSERT_EQ(y.Bits(), y.Rounded()) << width;
        ASSERT_EQ(dx.Bits(), dx.Rounded()) << width;
        ASSERT_EQ(dy.Bits(), dy.Rounded()) << width;
        ASSERT_EQ(inverse_rms[0], inverse_rms[1]);
        ASSERT_EQ(stream[0], stream[1]);
      }
    }
  });
}

TEST(BF16Ops, RopeAndSwiGlu) {
  ForEachCpu([](Backend& ops) {
    for (const int width : kWidths) {
      RandomStream random(3, "rows");
      constexpr int kRows = 4, kHeads = 3;
      Twin x(kRows, kHeads * 2 * width, random), h(kRows, width, random), dh(kRows, width, random);
      Twin gate_up(kRows, 2 * width, random, 3.0), dgate_up(kRows, 2 * width, random);
      Twin cosines(9, width, random), sines(9, width, random);
      const std::vector<int32_t> positions = {0, 1, 2, 8};
      for (const DType type : kTypes) {
        ops.Rope(x.In(type), cosines.F32(), sines.F32(), positions, {.heads = kHeads});
        ops.SwiGlu(h.In(type), gate_up.In(type));
        ops.SwiGluBackward(dgate_up.In(type), h.In(type), dh.In(type), gate_up.In(type));
      }
      for (const Twin* twin : {&x, &h, &dgate_up})
        ASSERT_EQ(twin->Bits(), twin->Rounded()) << width;
    }
  });
}

TEST(BF16Ops, CrossEntropyGradient) {
  ForEachCpu([](Backend& ops) {
    for (const int vocabulary : kWidths) {
      RandomStream random(4, "loss");
      const int rows = 4, cols = vocabulary + 3;
      Twin logits(rows, cols, random, 2.0), dlogits(rows, cols, random);
      const std::vector<int32_t> targets = {0, kIgnoredTarget, vocabulary - 1, vocabulary / 2};
      const CrossEntropySpec spec = {.vocabulary = vocabulary, .z_loss = 0.1, .grad_scale = 0.3};
      double losses[2];
      for (int run = 0; run < 2; ++run) {
        std::vector<float> lost = logits.f32();
        losses[run] = ops.CrossEntropyBackward(dlogits.In(kTypes[run]),
                                               ViewOf(lost.data(), rows, cols), targets, spec)
                          .cross_entropy;
      }
      ASSERT_EQ(losses[0], losses[1]);
      ASSERT_EQ(dlogits.Bits(), dlogits.Rounded()) << vocabulary;
    }
  });
}

struct AttentionCase {
  int query_length, kv_length, kv_stride, heads, kv_heads, head_width;
  int document = 0;  // tokens of a document; 0: one document
};

// A sum, and the sum of the magnitudes of its terms.
struct Sum {
  double value = 0.0;
  double magnitude = 0.0;

  void Add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

// Attention and its gradient in double, straight from the definition, of batch element `batch`.
struct PlainAttention {
  std::vector<Sum> out, dq, dk, dv;
  std::vector<double> log_sum_exp;

  // `seen` is the output that the backward pass is told.
  PlainAttention(const AttentionCase& c, double scale, int batch, const Twin& q, const Twin& k,
                 const Twin& v, const Twin& dout, const Twin& seen)
      : out(c.query_length * c.heads * c.head_width),
        dq(out.size()),
        dk(c.kv_length * c.kv_heads * c.head_width),
        dv(dk.size()),
        log_sum_exp(c.query_length * c.heads) {
    const int width = c.head_width;
    const int64_t q_begin = int64_t{batch} * c.query_length * c.heads * width;
    const int64_t kv_begin = int64_t{batch} * c.kv_stride * c.kv_heads * width;
    const auto dot = [&](const Twin& a, int64_t at_a, const Twin& b, int64_t at_b) {
      double sum = 0.0;
      for (int e = 0; e < width; ++e) sum += double{a.f32()[at_a + e]} * b.f32()[at_b + e];
      return sum;
    };
    for (int head = 0; head < c.heads; ++head) {
      const int kv_head = head / (c.heads / c.kv_heads);
      const auto key_at = [&](int j) { return (int64_t{j} * c.kv_heads + kv_head) * width; };
      for (int i = 0; i < c.query_length; ++i) {
        const int position = c.kv_length - c.query_length + i;
        const int first = c.document == 0 ? 0 : position / c.document * c.document;
        const int64_t at = (int64_t{i} * c.heads + head) * width;
        const auto weight = [&](int j) {
          return std::exp(scale * dot(q, q_begin + at, k, kv_begin + key_at(j)));
        };
        double total = 0.0;
        for (int j = first; j <= position; ++j) total += weight(j);
        log_sum_exp[i * c.heads + head] = std::log(total);
        const double delta = dot(dout, q_begin + at, seen, q_begin + at);
        for (int j = first; j <= position; ++j) {
          const int64_t key = key_at(j);
          const double p = weight(j) / total;
          const double dp = dot(dout, q_begin + at, v, kv_begin + key);
          const double ds = scale * p * (dp - delta);
          for (int e = 0; e < width; ++e) {
            out[at + e].Add(p * v.f32()[kv_begin + key + e]);
            dv[key + e].Add(p * dout.f32()[q_begin + at + e]);
            dq[at + e].Add(ds * k.f32()[kv_begin + key + e]);
            dk[key + e].Add(ds * q.f32()[q_begin + at + e]);
          }
        }
      }
    }
  }
};

// Probabilities and gradients of scores are rounded to bf16 before they are multiplied, each by at
// most half a place (a fraction 1/256 of the term), and results once more.
void ExpectNear(const Twin& got, int64_t first_row, const std::vector<Sum>& wanted) {
  std::vector<uint16_t> bits = got.Bits();
  bits.erase(bits.begin(), bits.begin() + first_row * got.cols());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [value, magnitude] = wanted[i];
    ASSERT_NEAR(ToFloat({bits[i]}), value,
                magnitude / 256.0 + std::abs(value) / 256.0 + 2e-6 * (1.0 + magnitude))
        << "element " << i;
  }
}

TEST(BF16Ops, AttentionAndItsGradient) {
  // Lengths on both sides of whole words and blocks; widths that end with half a word; groups of
  // heads; a cache; documents that begin within a word.
  for (const AttentionCase& c :
       std::initializer_list<AttentionCase>{{1, 1, 1, 1, 1, 4},
                                            {2, 2, 2, 1, 1, 7},
                                            {9, 9, 9, 2, 2, 6},
                                            {70, 70, 70, 4, 2, 16},
                                            {33, 33, 33, 3, 1, 20},
                                            {70, 70, 70, 4, 2, 33},
                                            {65, 65, 65, 3, 1, 9},
                                            {129, 129, 129, 1, 1, 64},
                                            {1, 67, 70, 2, 1, 32},
                                            {5, 66, 70, 2, 2, 16},
                                            {75, 75, 75, 2, 1, 8, 7},
                                            {140, 140, 140, 1, 1, 8, 67},
                                            {75, 75, 75, 6, 2, 16, 7},
                                            {17, 200, 256, 6, 2, 16, 51}}) {
    SCOPED_TRACE(std::to_string(c.query_length) + " of " + std::to_string(c.kv_length) + ", E " +
                 std::to_string(c.head_width));
    RandomStream random(7, "attention");
    const int64_t q_cols = c.heads * c.head_width, kv_cols = c.kv_heads * c.head_width;
    constexpr int kBatch = 2;
    const int64_t q_rows = kBatch * c.query_length, kv_rows = kBatch * c.kv_stride;
    Twin q(q_rows, q_cols, random), k(kv_rows, kv_cols, random), v(kv_rows, kv_cols, random);
    Twin dout(q_rows, q_cols, random), seen(q_rows, q_cols, random);
    std::vector<int32_t> first_keys;
    for (int b = 0; b < kBatch; ++b) {
      // Rows of a cache beyond kv_length hold anything.
      for (Twin* const twin : {&k, &v}) {
        twin->FillRows(b * c.kv_stride + c.kv_length, (b + 1) * c.kv_stride, NAN);
      }
      for (int i = 0; c.document > 0 && i < c.query_length; ++i) {
        first_keys.push_back((c.kv_length - c.query_length + i) / c.document * c.document);
      }
    }
    const AttentionSpec spec = {.batch = kBatch,
                                .query_length = c.query_length,
                                .kv_length = c.kv_length,
                                .kv_stride = c.kv_stride,
                                .heads = c.heads,
                                .kv_heads = c.kv_heads,
                                .head_width = c.head_width,
                                .scale = 0.3,
                                .first_keys = first_keys};
    std::vector<PlainAttention> wanted;
    for (int b = 0; b < kBatch; ++b) wanted.emplace_back(c, spec.scale, b, q, k, v, dout, seen);
    ForEachCpu([&](Backend& ops) {
      Twin out(q_rows, q_cols, random), dq(q_rows, q_cols, random);
      Twin dk(kv_rows, kv_cols, random), dv(kv_rows, kv_cols, random);
      std::vector<float> lse(q_rows * c.heads);
      const View lse_view = ViewOf(lse.data(), q_rows, c.heads);
      constexpr DType kType = DType::kBF16;
      ops.Attention(out.In(kType), lse_view, q.In(kType), k.In(kType), v.In(kType), spec);
      for (int b = 0; b < kBatch; ++b) {
        const int64_t first = int64_t{b} * c.query_length * c.heads;
        for (size_t i = 0; i < wanted[b].log_sum_exp.size(); ++i) {
          ASSERT_NEAR(lse[first + i], wanted[b].log_sum_exp[i], 1e-5);
        }
        ASSERT_NO_FATAL_FAILURE(ExpectNear(out, b * c.query_length, wanted[b].out));
      }
      if (c.query_length < c.kv_length) return;
      ops.AttentionBackward(dq.In(kType), dk.In(kType), dv.In(kType), dout.In(kType),
                            seen.In(kType), lse_view, q.In(kType), k.In(kType), v.In(kType), spec);
      for (int b = 0; b < kBatch; ++b) {
        ASSERT_NO_FATAL_FAILURE(ExpectNear(dq, b * c.query_length, wanted[b].dq));
        ASSERT_NO_FATAL_FAILURE(ExpectNear(dk, b * c.kv_stride, wanted[b].dk));
        ASSERT_NO_FATAL_FAILURE(ExpectNear(dv, b * c.kv_stride, wanted[b].dv));
      }
    });
    ASSERT_FALSE(HasFatalFailure());
  }
}

std::vector<double> Wide(const Twin& twin) { return {twin.f32().begin(), twin.f32().end()}; }

// A product of blocks of columns in wider buffers, and what it is in double.
class BF16Product {
 public:
  BF16Product(int rows, int cols, int inner, const MatmulSpec& spec)
      : name_(std::to_string(rows) + " x " + std::to_string(cols) + " x " + std::to_string(inner)),
        spec_(spec),
        inner_(inner),
        random_(5, "matmul"),
        a_(spec.a == Transpose::kYes ? Twin(inner, rows + 3, random_)
                                     : Twin(rows, inner + 3, random_)),
        b_(spec.b == Transpose::kYes ? Twin(cols, inner + 3, random_)
                                     : Twin(inner, cols + 3, random_)),
        c_(rows, cols + 3, random_),
        wanted_(Wide(c_)) {
    // What stands around the factors has no part in the product.
    for (Twin* const twin : {&a_, &b_}) {
      const int64_t all = twin->F32().cols;
      for (const int64_t column : {int64_t{0}, all - 2, all - 1}) twin->FillColumn(column, NAN);
    }
    std::vector<double> a = Wide(a_), b = Wide(b_);
    const auto f64 = [](std::vector<double>& values, Twin& twin) {
      return Inner(ViewOf(values.data(), twin.F32().rows, twin.F32().cols));
    };
    MakeReferenceBackend(DType::kF64)->Matmul(f64(wanted_, c_), f64(a, a_), f64(b, b_), spec);
  }

  // Products of bf16 are exact in f32, so a result is off by at most a rounding of f32 for each
  // term, and in bf16 by half a place more. Nothing around it is written.
  void Expect(Backend& ops) {
    SCOPED_TRACE(name_);
    Twin c = c_;
    for (const DType result : kTypes) {
      ops.Matmul(Inner(c.In(result)), Inner(a_.In(DType::kBF16)), Inner(b_.In(DType::kBF16)),
                 spec_);
    }
    double largest = 0.0;
    for (const double value : wanted_) largest = std::max(largest, std::abs(value));
    const double f32_error = (10.0 + inner_) / (1 << 24) * largest;
    const std::vector<uint16_t> bits = c.Bits(), before = c_.Bits();
    const int64_t stride = c.F32().cols;
    for (int64_t i = 0; i < std::ssize(wanted_); ++i) {
      if (i % stride < 1 || i % stride >= stride - 2) {
        ASSERT_EQ(c.f32()[i], c_.f32()[i]) << "written outside the result";
        ASSERT_EQ(bits[i], before[i]) << "written outside the result";
        continue;
      }
      ASSERT_NEAR(c.f32()[i], wanted_[i], f32_error) << "element " << i;
      ASSERT_NEAR(ToFloat({bits[i]}), wanted_[i], f32_error + std::abs(wanted_[i]) / 256.0)
          << "element " << i;
    }
  }

 private:
  // All columns but the first and the last two.
  static View Inner(View view) { return view.Columns(1, view.cols - 3); }

  std::string name_;
  MatmulSpec spec_;
  int inner_;
  RandomStream random_;
  Twin a_, b_, c_;
  std::vector<double> wanted_;
};

TEST(BF16Ops, Matmul) {
  // Below and above the rows from which factors are packed; odd depths, whose last word is half
  // empty; depth in several blocks, of the second factor too; columns and rows that are added up in
  // turns.
  for (const auto& [rows, cols, inner] : {std::tuple{1, 1, 1},
                                          {5, 7, 0},
                                          {33, 17, 65},
                                          {65, 130, 64},
                                          {70, 33, 257},
                                          {64, 40, 1601},
                                          {66, 18, 4500},
                                          {65, 600, 801},
                                          {2100, 20, 801}}) {
    ForEachSpec([&, rows = rows, cols = cols, inner = inner](const MatmulSpec& spec) {
      BF16Product product(rows, cols, inner, spec);
      ForEachCpu([&](Backend& ops) { product.Expect(ops); });
    });
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(BF16Ops, MatmulOfTheLibrary) {
  if (!cpu::LibraryHasBF16()) GTEST_SKIP() << "the library has no bf16 products here";
  const auto library = MakeCpuBackend(2, Products::kLibrary);
  ForEachSpec([&](const MatmulSpec& spec) { BF16Product(65, 130, 257, spec).Expect(*library); });
}

TEST(BF16Ops, MatmulHasTheSameBitsForAnyNumberOfThreads) {
  for (const auto& [rows, cols, inner] : {std::tuple{40, 300, 1400}, {65, 130, 1601}}) {
    ForEachSpec([&, rows = rows, cols = cols, inner = inner](const MatmulSpec& spec) {
      RandomStream random(7, "matmul");
      const Twin before(rows, cols, random);
      Twin a = spec.a == Transpose::kYes ? Twin(inner, rows, random) : Twin(rows, inner, random);
      Twin b = spec.b == Transpose::kYes ? Twin(cols, inner, random) : Twin(inner, cols, random);
      std::vector<uint16_t> bits;
      for (const int threads : {1, 2, 3, 7}) {
        Twin c = before;
        MakeCpuBackend(threads, Products::kOwn)
            ->Matmul(c.In(DType::kBF16), a.In(DType::kBF16), b.In(DType::kBF16), spec);
        if (threads == 1) bits = c.Bits();
        ASSERT_EQ(c.Bits(), bits) << threads << " threads";
      }
    });
  }
}

// The library's prepared products, which bf16 takes, on f32 too: so the way there is checked on
// processors without the instructions.
TEST(GemmLibrary, PreparedProductsAgreeWithThePlainOnes) {
  if (!cpu::GemmLibraryName().starts_with("oneDNN")) GTEST_SKIP() << "has no prepared products";
  const auto library = cpu::MakeGemmLibrary(2);
  for (int turned = 0; turned < 4; ++turned) {
    for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
      constexpr int kRows = 33, kCols = 17, kInner = 65;
      const MatmulSpec spec = {turned & 1 ? Transpose::kYes : Transpose::kNo,
                               turned & 2 ? Transpose::kYes : Transpose::kNo, into};
      RandomStream random(6, "prepared");
      // Blocks of columns of wider buffers.
      Twin a = turned & 1 ? Twin(kInner, kRows + 3, random) : Twin(kRows, kInner + 3, random);
      Twin b = turned & 2 ? Twin(kCols, kInner + 3, random) : Twin(kInner, kCols + 3, random);
      Twin c(kRows, kCols + 5, random);
      const View a_view = a.F32().Columns(2, a.F32().cols - 3);
      const View b_view = b.F32().Columns(1, b.F32().cols - 3);
      std::vector<float> prepared = c.f32();
      const View prepared_view = ViewOf(prepared.data(), kRows, kCols + 5).Columns(3, kCols);
      for (int call = 0; call < 2; ++call) {  // the second finds the prepared product
        library->MultiplyBF16(prepared_view, a_view, b_view, spec);
        library->MultiplyF32(c.F32().Columns(3, kCols), a_view, b_view, spec);
      }
      for (size_t i = 0; i < prepared.size(); ++i) {
        // Two orders of summation, of 65 products of standard normals and then once more of those.
        ASSERT_NEAR(prepared[i], c.f32()[i], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace sandglass
