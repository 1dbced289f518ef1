// Every op of the cpu backend against the reference backend in double, on every instruction set
// this machine runs and on 1, 2 and 3 threads; and every gradient of the reference backend against
// finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "hwy/highway.h"
#include "ops/backend.h"
#include "ops/cpu/gemm.h"
#include "ops/testing.h"

namespace sandglass {
namespace {

// Rounding a real number to float changes it by at most this fraction.
constexpr double kUnitRoundoff = 1.0 / (1 << 24);

// How far a result may be off: a fraction of the largest element, or of `magnitude` where terms of
// that size can cancel to something smaller.
struct Tolerance {
  double relative;
  double magnitude = 0.0;
};

// Widths on both sides of every vector length (4, 8, 16) and of two of the longest.
std::vector<int> AwkwardWidths() {
  std::vector<int> widths;
  for (int width = 1; width <= 35; ++width) widths.push_back(width);
  widths.insert(widths.end(), {64, 100, 129});
  return widths;
}

// A matrix in both precisions with equal values, as a view that starts off any vector boundary and
// whose rows are apart. What surrounds the view must never change.
class Tensor {
 public:
  Tensor(int64_t rows, int64_t cols, RandomStream& random, double scale = 1.0)
      : rows_(rows), cols_(cols), stride_(cols + 3), f32_(1 + rows * stride_) {
    for (float& value : f32_) value = static_cast<float>(scale * random.NextNormal());
    f64_.assign(f32_.begin(), f32_.end());
    Remember();
  }

  // Changes the values that the ops start from.
  void Set(const std::function<double(int64_t row, int64_t col)>& value) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        const int64_t at = Index(row, col);
        f32_[at] = static_cast<float>(value(row, col));
        f64_[at] = f32_[at];
      }
    }
    Remember();
  }

  View In(const Backend& backend) {
    const bool is_double = backend.dtype() == DType::kF64;
    View view =
        is_double ? ViewOf(f64_.data() + 1, rows_, cols_) : ViewOf(f32_.data() + 1, rows_, cols_);
    view.stride = stride_;
    return view;
  }

  void RestoreF32() { f32_ = start_f32_; }
  const std::vector<float>& f32() const { return f32_; }
  double At(int64_t row, int64_t col) const { return f32_[Index(row, col)]; }

  // Fails where f32 is further from f64 than the tolerance, relative to the largest |f64| in the
  // tensor (or the magnitude), or has changed outside the view.
  void ExpectClose(const Tolerance& tolerance) const {
    double largest = tolerance.magnitude;
    ForEachElement([&](int64_t at) { largest = std::max(largest, std::abs(f64_[at])); });
    ForEachElement([&](int64_t at) {
      if (std::isnan(f64_[at]) && std::isnan(f32_[at])) return;
      // An infinity, and a NaN in one only, fail the comparison.
      const bool close = std::abs(f32_[at] - f64_[at]) <= tolerance.relative * largest;
      ASSERT_TRUE(close) << "row " << (at - 1) / stride_ << ", column " << (at - 1) % stride_
                         << ": " << f32_[at] << " instead of " << f64_[at] << ", tolerance "
                         << tolerance.relative * largest;
    });
    std::vector<float> outside = f32_;
    ForEachElement([&](int64_t at) { outside[at] = start_f32_[at]; });
    ASSERT_EQ(std::memcmp(outside.data(), start_f32_.data(), outside.size() * 4), 0)
        << "written outside the view";
  }

 private:
  int64_t Index(int64_t row, int64_t col) const { return 1 + row * stride_ + col; }
  void Remember() { start_f32_ = f32_; }
  void ForEachElement(const std::function<void(int64_t at)>& action) const {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) action(Index(row, col));
    }
  }

  int64_t rows_, cols_, stride_;
  std::vector<float> f32_, start_f32_;
  std::vector<double> f64_;
};

// An op on tensors. Returns the numbers that the op returns, if any.
using Op = std::function<std::vector<double>(Backend&)>;

// All tensors and returned numbers, after the op on the cpu backend, must be within `tolerance` of
// the reference, and a second run must give the same bits.
void ExpectMatchesReference(const std::vector<Tensor*>& tensors, const Op& op,
                            const Tolerance& tolerance) {
  const auto reference = MakeReferenceBackend(DType::kF64);
  const std::vector<double> wanted = op(*reference);
  ForEachCpu([&](Backend& cpu) {
    for (Tensor* tensor : tensors) tensor->RestoreF32();
    const std::vector<double> numbers = op(cpu);
    ASSERT_EQ(numbers.size(), wanted.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_NEAR(numbers[i], wanted[i], tolerance.relative * std::max(1.0, std::abs(wanted[i])));
    }
    std::vector<std::vector<float>> first;
    for (size_t i = 0; i < tensors.size(); ++i) {
      SCOPED_TRACE("tensor " + std::to_string(i));
      ASSERT_NO_FATAL_FAILURE(tensors[i]->ExpectClose(tolerance));
      first.push_back(tensors[i]->f32());
    }
    for (Tensor* tensor : tensors) tensor->RestoreF32();
    ASSERT_EQ(op(cpu), numbers) << "a second run differs";
    for (size_t i = 0; i < tensors.size(); ++i) {
      ASSERT_EQ(std::memcmp(tensors[i]->f32().data(), first[i].data(), first[i].size() * 4), 0)
          << "a second run differs in tensor " << i;
    }
  });
}

// A sum of n products is off by at most n roundings of each; the largest element stands for the sum
// of magnitudes. The other roundings of an op, its exponential included, number fewer than ten.
Tolerance SumTolerance(int64_t n, double magnitude = 0.0) {
  return {(10.0 + static_cast<double>(n)) * kUnitRoundoff, magnitude};
}

std::vector<double> Numbers(const LossSums& sums) {
  return {sums.cross_entropy, sums.z_loss, static_cast<double>(sums.tokens)};
}

// Rows enough for three threads to share.
int ManyRows(int width) { return 3 * 8192 / width + 7; }

// One row and three, and for two of the widths many.
std::vector<int> RowCounts(int width) {
  if (width == 17 || width == 64) return {1, 3, ManyRows(width)};
  return {1, 3};
}

TEST(CpuBackend, DescribesItself) {
  const auto cpu = MakeCpuBackend(2);
  EXPECT_EQ(cpu->Name(), "cpu");
  EXPECT_EQ(cpu->dtype(), DType::kF32);
  EXPECT_TRUE(cpu->Description().ends_with(", 2 threads")) << cpu->Description();
  const TargetScope scope(HWY_STATIC_TARGET);
  EXPECT_TRUE(cpu->Description().starts_with(std::string("cpu: ") +
                                             hwy::TargetName(HWY_STATIC_TARGET) + ", "))
      << cpu->Description();
}

TEST(CpuBackend, NamesWhoMultiplies) {
  EXPECT_NE(MakeCpuBackend(1, Products::kOwn)->Description().find(", own products"),
            std::string::npos);
  if (!HasProductLibrary()) GTEST_SKIP() << "built without a library";
  EXPECT_NE(MakeCpuBackend(1, Products::kLibrary)->Description().find(cpu::GemmLibraryName()),
            std::string::npos);
}

TEST(CpuBackend, RefusesMalformedViews) {
  const auto cpu = MakeCpuBackend(1);
  std::vector<float> data(64);
  const View square = ViewOf(data.data(), 4, 4);
  const View wide = ViewOf(data.data(), 2, 8);
  EXPECT_DEATH(cpu->Matmul(square, square, wide, {}), "matmul");
  EXPECT_DEATH(cpu->SwiGlu(square, square), "SwiGLU sizes");
  const std::vector<int32_t> ids = {0, 1, 2, 4};
  EXPECT_DEATH(cpu->Embed(square, square, ids), "token id out of range");
  EXPECT_DEATH(cpu->EmbedBackward(square, square, ids), "token id out of range");
  EXPECT_DEATH(cpu->CrossEntropy({}, square, ids, {.vocabulary = 4}), "target out of range");
}

struct MatmulCase {
  int rows, cols, inner;
  MatmulSpec spec;
};
std::vector<MatmulCase> AllSpecs(const std::vector<MatmulCase>& sizes) {
  std::vector<MatmulCase> cases;
  for (const MatmulCase& size : sizes) {
    ForEachSpec([&](const MatmulSpec& spec) {
      cases.push_back({size.rows, size.cols, size.inner, spec});
    });
  }
  return cases;
}

// Factors and result of a product, and the product as an op.
struct MatmulTensors {
  explicit MatmulTensors(const MatmulCase& of)
      : spec(of.spec),
        random(1, "matmul"),
        product(of.rows, of.cols, random),
        a(spec.a == Transpose::kYes ? of.inner : of.rows,
          spec.a == Transpose::kYes ? of.rows : of.inner, random),
        b(spec.b == Transpose::kYes ? of.cols : of.inner,
          spec.b == Transpose::kYes ? of.inner : of.cols, random) {}

  std::vector<double> Multiply(Backend& ops) {
    ops.Matmul(product.In(ops), a.In(ops), b.In(ops), spec);
    return {};
  }

  MatmulSpec spec;
  RandomStream random;
  Tensor product, a, b;
};

TEST(CpuBackend, Matmul) {
  // Below and above the rows from which factors are packed; depth and rows in several blocks.
  for (const MatmulCase& c : AllSpecs({{1, 1, 1},
                                       {1, 70, 33},
                                       {33, 1, 70},
                                       {17, 31, 1},
                                       {65, 130, 257},
                                       {70, 33, 2100},
                                       {1100, 20, 400},
                                       {5, 7, 0},
                                       {0, 4, 4}})) {
    MatmulTensors tensors(c);
    const Op op = [&](Backend& ops) { return tensors.Multiply(ops); };
    ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&tensors.product, &tensors.a, &tensors.b}, op,
                                                   SumTolerance(c.inner)))
        << c.rows << " x " << c.cols << " x " << c.inner;
  }
}

// The second factor is larger than one packed block.
TEST(CpuBackend, MatmulByManyColumns) {
  for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
    MatmulTensors tensors({65, 2800, 800, {.b = b}});
    const Op op = [&](Backend& ops) { return tensors.Multiply(ops); };
    ASSERT_NO_FATAL_FAILURE(
        ExpectMatchesReference({&tensors.product, &tensors.a, &tensors.b}, op, SumTolerance(800)));
  }
}

TEST(CpuBackend, MatmulOfTheLibrary) {
  if (!HasProductLibrary()) GTEST_SKIP() << "built without a library";
  const auto reference = MakeReferenceBackend(DType::kF64);
  const auto library = MakeCpuBackend(2, Products::kLibrary);
  for (const MatmulCase& c :
       AllSpecs({{1, 70, 33}, {33, 1, 70}, {65, 130, 257}, {5, 7, 0}, {0, 4, 4}})) {
    MatmulTensors tensors(c);
    tensors.Multiply(*reference);
    tensors.Multiply(*library);
    ASSERT_NO_FATAL_FAILURE(tensors.product.ExpectClose(SumTolerance(c.inner)));
  }
}

// Equal terms all round the same way, so that the error of one long sum grows with the square of
// its length. It is summed in blocks.
TEST(CpuBackend, MatmulOfGreatDepthStaysExact) {
  for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
    MatmulTensors tensors({70, 17, 50'304, {.a = a, .b = Transpose::kNo}});
    for (Tensor* const tensor : {&tensors.a, &tensors.b}) {
      tensor->Set([](int64_t, int64_t) { return 1.0 / 3.0; });
    }
    tensors.Multiply(*MakeReferenceBackend(DType::kF64));
    tensors.Multiply(*MakeCpuBackend(2, Products::kOwn));
    ASSERT_NO_FATAL_FAILURE(tensors.product.ExpectClose(SumTolerance(384 + 50'304 / 384)));
  }
}

TEST(CpuBackend, MatmulHasTheSameBitsForAnyNumberOfThreads) {
  for (const MatmulCase& c : AllSpecs({{40, 300, 700}, {65, 130, 257}, {1100, 20, 400}})) {
    MatmulTensors tensors(c);
    std::vector<float> bits;
    for (const int threads : {1, 2, 3, 7}) {
      tensors.product.RestoreF32();
      tensors.Multiply(*MakeCpuBackend(threads, Products::kOwn));
      if (threads == 1) bits = tensors.product.f32();
      ASSERT_EQ(std::memcmp(bits.data(), tensors.product.f32().data(), bits.size() * 4), 0)
          << threads << " threads, " << c.rows << " x " << c.cols << " x " << c.inner;
    }
  }
}

TEST(CpuBackend, EmbedAndItsGradientWithRepeatedIds) {
  for (const int width : AwkwardWidths()) {
    for (const int rows : RowCounts(width)) {
      RandomStream random(2, "embed");
      Tensor table(11, width, random), x(rows, width, random), dtable(11, width, random);
      std::vector<int32_t> ids(rows);
      for (int32_t& id : ids) id = static_cast<int32_t>(random.NextBelow(11));
      const Op op = [&](Backend& ops) {
        ops.Embed(x.In(ops), table.In(ops), ids);
        ops.EmbedBackward(dtable.In(ops), x.In(ops), ids);
        return std::vector<double>{};
      };
      // Each row of the table is a running sum of at most `rows` gradients.
      ASSERT_NO_FATAL_FAILURE(
          ExpectMatchesReference({&table, &x, &dtable}, op, SumTolerance(rows)));
    }
  }
}

TEST(CpuBackend, CopyZeroAndSquaredNorm) {
  for (const int width : {1, 3, 17, 64, 129}) {
    for (const int rows : RowCounts(width)) {
      RandomStream random(3, "copy");
      Tensor x(rows, width, random), y(rows, width, random), z(rows, width, random);
      const Op op = [&](Backend& ops) {
        ops.Copy(y.In(ops), x.In(ops));
        ops.Zero(z.In(ops));
        return std::vector<double>{ops.SquaredNorm(x.In(ops))};
      };
      // Copies are exact, and the norm is summed in double.
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&x, &y, &z}, op, Tolerance{1e-13}));
    }
  }
}

TEST(CpuBackend, BlendRoundsOnceAndOverwritesWhatIsNotRead) {
  for (const int width : {1, 3, 17, 64, 129}) {
    for (const int rows : RowCounts(width)) {
      for (const BlendSpec& spec :
           {BlendSpec{0.999, 1e-3}, BlendSpec{1.0, -0.3}, BlendSpec{0, 2}}) {
        RandomStream random(3, "blend");
        Tensor x(rows, width, random), y(rows, width, random);
        if (spec.y == 0.0) y.Set([](int64_t, int64_t) { return NAN; });
        const Op op = [&](Backend& ops) {
          ops.Blend(y.In(ops), x.In(ops), spec);
          return std::vector<double>{};
        };
        ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&x, &y}, op, Tolerance{kUnitRoundoff}));
      }
    }
  }
}

// Resuming a run with another number of threads rounds as before.
TEST(CpuBackend, SumsDoNotDependOnTheNumberOfThreads) {
  constexpr int kRows = 700, kCols = 96;
  RandomStream random(7, "threads");
  Tensor x(kRows, kCols, random), dy(kRows, kCols, random), inverse_rms(kRows, 1, random);
  Tensor gain(1, kCols, random);
  std::vector<int32_t> targets(kRows);
  for (int32_t& target : targets) target = static_cast<int32_t>(random.NextBelow(kCols));
  std::vector<double> first;
  for (const int threads : {1, 2, 3, 7}) {
    const auto cpu = MakeCpuBackend(threads);
    Tensor dx(kRows, kCols, random), dgain(1, kCols, random);
    dgain.Set([](int64_t, int64_t) { return 0.0; });
    cpu->RmsNormBackward(dx.In(*cpu), dgain.In(*cpu), dy.In(*cpu), x.In(*cpu), inverse_rms.In(*cpu),
                         gain.In(*cpu), {});
    const LossSums sums = cpu->CrossEntropy({}, x.In(*cpu), targets, {.vocabulary = kCols});
    std::vector<double> results = {cpu->SquaredNorm(x.In(*cpu)), sums.cross_entropy, sums.z_loss};
    const float* const gains = dgain.In(*cpu).Row<float>();
    results.insert(results.end(), gains, gains + kCols);
    std::vector<float> packed(200'001, 0.3f);
    results.push_back(cpu->SquaredNorm(ViewOf(packed.data(), 1, std::ssize(packed))));
    if (first.empty()) first = results;
    EXPECT_EQ(results, first) << threads << " threads";
  }
}

TEST(CpuBackend, PackedBuffersAreCutAnywhere) {
  std::vector<float> x(100003, 0.5f), y(100003, 1.0f);
  ForEachCpu([&](Backend& cpu) {
    const View x_view = ViewOf(x.data(), 1, std::ssize(x));
    const View y_view = ViewOf(y.data(), 1, std::ssize(y));
    EXPECT_EQ(cpu.SquaredNorm(x_view), 0.25 * static_cast<double>(x.size()));
    cpu.Copy(y_view, x_view);
    EXPECT_EQ(x, y);
    cpu.Zero(y_view);
    EXPECT_EQ(y, std::vector<float>(y.size(), 0.0f));
  });
}

TEST(CpuBackend, RmsNormAndItsGradient) {
  enum class Gain { kPerSegment, kPerRow };
  std::vector<int> widths = AwkwardWidths();
  widths.push_back(2049);  // longer than a block of a sum
  for (const int width : widths) {
    for (const int groups : {1, 3}) {
      for (const Gain kind : {Gain::kPerSegment, Gain::kPerRow}) {
        for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
          const int cols = width * groups;
          const int rows = width == 64 ? ManyRows(cols) : 3;
          RandomStream random(4, "norm");
          Tensor x(rows, cols, random), y(rows, cols, random), dy(rows, cols, random);
          Tensor dx(rows, cols, random), inverse_rms(rows, groups, random);
          const int gain_cols = kind == Gain::kPerRow ? cols : width;
          Tensor gain(1, gain_cols, random), dgain(1, gain_cols, random);
          const RmsNormSpec spec = {.epsilon = 1e-3, .scale = 0.7, .groups = groups, .into = into};
          const Op op = [&](Backend& ops) {
            ops.RmsNorm(y.In(ops), inverse_rms.In(ops), x.In(ops), gain.In(ops), spec);
            ops.RmsNormBackward(dx.In(ops), dgain.In(ops), dy.In(ops), x.In(ops),
                                inverse_rms.In(ops), gain.In(ops), spec);
            return std::vector<double>{};
          };
          // The sums are along a row, and in dgain down the rows and segments; in dx, terms of
          // order one cancel (to nothing when the width is 1).
          ASSERT_NO_FATAL_FAILURE(
              ExpectMatchesReference({&x, &y, &dy, &dx, &inverse_rms, &gain, &dgain}, op,
                                     SumTolerance(width + rows * groups, 1.0)))
              << "width " << width << ", groups " << groups;
        }
      }
    }
  }
}

TEST(CpuBackend, RmsNormInPlace) {
  RandomStream random(5, "norm in place");
  Tensor x(7, 37, random), kept(7, 37, random), dy(7, 37, random), inverse_rms(7, 1, random);
  Tensor gain(1, 37, random), dgain(1, 37, random);
  const Op op = [&](Backend& ops) {
    ops.Copy(kept.In(ops), x.In(ops));
    ops.RmsNorm(x.In(ops), inverse_rms.In(ops), x.In(ops), gain.In(ops), {});
    ops.RmsNormBackward(dy.In(ops), dgain.In(ops), dy.In(ops), kept.In(ops), inverse_rms.In(ops),
                        gain.In(ops), {});
    return std::vector<double>{};
  };
  ExpectMatchesReference({&x, &kept, &dy, &inverse_rms, &gain, &dgain}, op,
                         SumTolerance(37 + 7, 1.0));
}

TEST(CpuBackend, Rope) {
  for (int half = 1; half <= 35; ++half) {
    for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kBackward}) {
      const int heads = 3;
      const int rows = half == 32 ? ManyRows(2 * half * heads) : 3;
      RandomStream random(6, "rope");
      Tensor x(rows, 2 * half * heads, random), cosines(50, half, random), sines(50, half, random);
      std::vector<int32_t> positions(rows);
      for (int32_t& position : positions) position = static_cast<int32_t>(random.NextBelow(50));
      const Op op = [&](Backend& ops) {
        ops.Rope(x.In(ops), cosines.In(ops), sines.In(ops), positions, {heads, direction});
        return std::vector<double>{};
      };
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&x, &cosines, &sines}, op, SumTolerance(2)));
    }
  }
}

TEST(CpuBackend, SwiGluAndItsGradient) {
  enum class Form { kApart, kInPlaceWithoutH };
  for (const int width : AwkwardWidths()) {
    for (const int rows : RowCounts(width)) {
      for (const Form form : {Form::kApart, Form::kInPlaceWithoutH}) {
        RandomStream random(7, "swiglu");
        Tensor gate_up(rows, 2 * width, random, 3.0), h(rows, width, random);
        Tensor dgate_up(rows, 2 * width, random), dh(rows, width, random);
        Tensor h_again(rows, width, random);
        const Op op = [&](Backend& ops) {
          ops.SwiGlu(h.In(ops), gate_up.In(ops));
          if (form == Form::kApart) {
            ops.SwiGluBackward(dgate_up.In(ops), h_again.In(ops), dh.In(ops), gate_up.In(ops));
          } else {
            ops.SwiGluBackward(gate_up.In(ops), View{}, dh.In(ops), gate_up.In(ops));
          }
          return std::vector<double>{};
        };
        // No sums; silu' of a gate of 12 or so amplifies the roundings of its factors little.
        ASSERT_NO_FATAL_FAILURE(
            ExpectMatchesReference({&gate_up, &h, &dgate_up, &dh, &h_again}, op, SumTolerance(2)));
      }
    }
  }
}

TEST(CpuBackend, SwiGluSaturates) {
  RandomStream random(8, "saturation");
  Tensor gate_up(1, 16, random), h(1, 8, random);
  const double gates[8] = {-1e30, -1e4, -100.0, -88.5, 88.5, 100.0, 1e4, 1e30};
  gate_up.Set([&](int64_t, int64_t col) { return col < 8 ? gates[col] : 1.0; });
  ForEachCpu([&](Backend& cpu) {
    cpu.SwiGlu(h.In(cpu), gate_up.In(cpu));
    // Below -88 the sigmoid is held at e^-88.37, so silu is a tiny multiple of the gate.
    for (int col = 0; col < 4; ++col) {
      EXPECT_NEAR(h.At(0, col), 0.0, 1e-38 * std::abs(gates[col]));
    }
    for (int col = 4; col < 8; ++col) EXPECT_EQ(h.At(0, col), static_cast<float>(gates[col]));
  });
}

TEST(CpuBackend, CrossEntropyAndItsGradient) {
  for (const int padding : {0, 5}) {
    std::vector<int> vocabularies = AwkwardWidths();
    vocabularies.push_back(5000);  // longer than two blocks of a sum
    for (const int vocabulary : vocabularies) {
      const int rows = vocabulary == 100 ? ManyRows(100) : 4;
      RandomStream random(9, "cross-entropy");
      Tensor logits(rows, vocabulary + padding, random, 4.0);
      std::vector<int32_t> targets(rows);
      for (int32_t& target : targets) {
        target = static_cast<int32_t>(random.NextBelow(vocabulary));
      }
      targets[0] = rows > 1 ? kIgnoredTarget : 0;
      const CrossEntropySpec spec = {
          .vocabulary = vocabulary, .z_loss = 0.01, .grad_scale = 1.0 / rows};
      std::vector<double> losses(rows, -1.0);
      const Op op = [&](Backend& ops) {
        std::vector<double> numbers =
            Numbers(ops.CrossEntropy(losses, logits.In(ops), targets, spec));
        numbers.insert(numbers.end(), losses.begin(), losses.end());
        for (const double number :
             Numbers(ops.CrossEntropyBackward(logits.In(ops), logits.In(ops), targets, spec))) {
          numbers.push_back(number);
        }
        return numbers;
      };
      // The sum of exponentials runs in double from one block of 2048 to the next, and in a block
      // over at least four partial sums.
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&logits}, op, SumTolerance(2048 / 4)))
          << "vocabulary " << vocabulary << ", padding " << padding;
    }
  }
}

// The exponential is accurate to a fraction of its value also where softmax is tiny, and exactly
// zero only where it would be subnormal.
TEST(CpuBackend, SoftmaxTailsAreRelativelyAccurate) {
  constexpr int kColumns = 4001;
  RandomStream random(10, "tails");
  Tensor logits(1, kColumns, random);
  const std::vector<int32_t> targets = {0};
  ForEachCpu([&](Backend& cpu) {
    logits.Set([](int64_t, int64_t col) { return col == 0 ? 0.0 : -90.0 * col / kColumns - 5.0; });
    std::vector<double> wanted(kColumns);
    double sum = 0.0;
    for (int col = 0; col < kColumns; ++col) sum += wanted[col] = std::exp(logits.At(0, col));
    const std::vector<float> before = logits.f32();
    cpu.CrossEntropyBackward(logits.In(cpu), logits.In(cpu), targets,
                             {.vocabulary = kColumns, .grad_scale = 1.0});
    for (int col = 1; col < kColumns; ++col) {
      const double p = wanted[col] / sum;
      if (before[1 + col] < -87.33f) {
        EXPECT_EQ(logits.At(0, col), 0.0);
      } else {
        // Two units in the last place of the exponential, one each of the factor, the product and
        // the argument's own rounding at the edge.
        EXPECT_NEAR(logits.At(0, col), p, 8 * kUnitRoundoff * p) << before[1 + col];
      }
    }
  });
}

TEST(CpuBackend, NotANumberIsNotHidden) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<int32_t> targets = {0};
  RandomStream random(11, "nan");
  for (const int at : {0, 3, 16, 36}) {
    Tensor row(1, 74, random), h(1, 37, random), lse(1, 1, random), out(1, 37, random);
    row.Set([&](int64_t, int64_t col) { return col == at ? nan : 0.5; });
    ForEachCpu([&](Backend& cpu) {
      const LossSums sums = cpu.CrossEntropy({}, row.In(cpu), targets, {.vocabulary = 74});
      EXPECT_TRUE(std::isnan(sums.cross_entropy));
      EXPECT_TRUE(std::isnan(cpu.SquaredNorm(row.In(cpu))));
      cpu.SwiGlu(h.In(cpu), row.In(cpu));
      EXPECT_TRUE(std::isnan(h.At(0, at)));
      const View q = row.In(cpu).Columns(0, 37);
      cpu.Attention(out.In(cpu), lse.In(cpu), q, q, q,
                    {.query_length = 1,
                     .kv_length = 1,
                     .kv_stride = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .head_width = 37,
                     .scale = 1.0});
      EXPECT_TRUE(std::isnan(out.At(0, 36)));
    });
  }
}

TEST(CpuBackend, AdamW) {
  std::vector<int> widths = AwkwardWidths();
  widths.push_back(30011);
  for (const int width : widths) {
    RandomStream random(12, "adamw");
    Tensor values(1, width, random), m(1, width, random), v(1, width, random);
    Tensor grads(1, width, random);
    v.Set([&](int64_t, int64_t) { return std::abs(random.NextNormal()); });
    const AdamWSpec spec = {.learning_rate = 0.02,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-8,
                            .weight_decay = 0.1,
                            .correction1 = 1.0 - 0.9 * 0.9,
                            .correction2 = 1.0 - 0.95 * 0.95,
                            .grad_scale = 0.3};
    const Op op = [&](Backend& ops) {
      ops.AdamW(values.In(ops), m.In(ops), v.In(ops), grads.In(ops), spec);
      return std::vector<double>{};
    };
    ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference({&values, &m, &v, &grads}, op, SumTolerance(2)));
  }
}

// One rounding of the weight per step: a decay far below its last place still moves the average.
TEST(CpuBackend, AdamWDoesNotLoseSmallDecay) {
  constexpr int kCount = 4096;
  std::vector<float> values(kCount), m(kCount), v(kCount, 1.0f), grads(kCount);
  double before = 0.0;
  for (int i = 0; i < kCount; ++i) before += values[i] = 1.0f + 0.5f * i / kCount;
  ForEachCpu([&](Backend& cpu) {
    std::vector<float> moved = values;
    cpu.AdamW(ViewOf(moved.data(), 1, kCount), ViewOf(m.data(), 1, kCount),
              ViewOf(v.data(), 1, kCount), ViewOf(grads.data(), 1, kCount),
              {.learning_rate = 1e-3, .weight_decay = 1e-3});
    double after = 0.0;
    for (const float value : moved) after += value;
    // 1e-6 of values below 2, whose last place is 1.2e-7: single weights round to 8 or so places.
    EXPECT_NEAR((before - after) / before, 1e-6, 0.05e-6);
  });
}

struct AttentionCase {
  int batch, query_length, kv_length, kv_stride, heads, kv_heads, head_width;
  double score_spread = 1.0;
  int document_length = 0;  // mean; 0: one document

  std::string ToString() const {
    return "B" + std::to_string(batch) + " Tq" + std::to_string(query_length) + " Tk" +
           std::to_string(kv_length) + " H" + std::to_string(heads) + "/" +
           std::to_string(kv_heads) + " E" + std::to_string(head_width) + " documents of " +
           std::to_string(document_length);
  }
};

// First keys of documents with lengths from 1 to twice the mean, cut off at the end.
std::vector<int32_t> RaggedFirstKeys(const AttentionCase& c) {
  std::vector<int32_t> first_keys;
  if (c.document_length == 0) return first_keys;
  RandomStream random(29, "documents");
  for (int b = 0; b < c.batch; ++b) {
    int begin = 0, next = 0;
    for (int position = 0; position < c.kv_length; ++position) {
      if (position == next) {
        begin = position;
        next += 1 + static_cast<int>(random.NextBelow(2 * c.document_length - 1));
      }
      if (position >= c.kv_length - c.query_length) first_keys.push_back(begin);
    }
  }
  return first_keys;
}

AttentionCase TrainingCase(int batch, int length, int heads, int kv_heads, int head_width) {
  return {batch, length, length, length, heads, kv_heads, head_width};
}

enum class Direction { kForward, kBoth };

// q, k and v are columns of one packed buffer where lengths allow, and so are their gradients.
void ExpectAttentionMatches(const AttentionCase& c, Direction direction) {
  SCOPED_TRACE(c.ToString());
  const int q_cols = c.heads * c.head_width;
  const int kv_cols = c.kv_heads * c.head_width;
  const std::vector<int32_t> first_keys = RaggedFirstKeys(c);
  const AttentionSpec spec = {.batch = c.batch,
                              .query_length = c.query_length,
                              .kv_length = c.kv_length,
                              .kv_stride = c.kv_stride,
                              .heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .head_width = c.head_width,
                              .scale = c.score_spread / std::sqrt(c.head_width),
                              .first_keys = first_keys};
  RandomStream random(13, "attention");
  const int q_rows = c.batch * c.query_length;
  Tensor q(q_rows, q_cols, random);
  Tensor kv(c.batch * c.kv_stride, 2 * kv_cols, random);
  // Rows of a cache beyond kv_length hold anything.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  kv.Set([&](int64_t row, int64_t) {
    return row % c.kv_stride < c.kv_length ? random.NextNormal() : nan;
  });
  Tensor out(q_rows, q_cols, random), log_sum_exp(q_rows, c.heads, random);
  Tensor dout(q_rows, q_cols, random), dq(q_rows, q_cols, random);
  Tensor dkv(c.batch * c.kv_stride, 2 * kv_cols, random);
  const Op op = [&](Backend& ops) {
    const View k = kv.In(ops).Columns(0, kv_cols);
    const View v = kv.In(ops).Columns(kv_cols, kv_cols);
    ops.Attention(out.In(ops), log_sum_exp.In(ops), q.In(ops), k, v, spec);
    if (direction == Direction::kBoth) {
      ops.AttentionBackward(dq.In(ops), dkv.In(ops).Columns(0, kv_cols),
                            dkv.In(ops).Columns(kv_cols, kv_cols), dout.In(ops), out.In(ops),
                            log_sum_exp.In(ops), q.In(ops), k, v, spec);
    }
    return std::vector<double>{};
  };
  // Scores are sums of E products, each up to a few score_spread; their error is the relative error
  // of the probabilities. Outputs then sum over keys, dk and dv over queries and grouped heads. In
  // the gradient of a score, products of order one cancel.
  const double sums = c.head_width * c.score_spread + c.kv_length * c.heads / c.kv_heads;
  ExpectMatchesReference({&q, &kv, &out, &log_sum_exp, &dout, &dq, &dkv}, op,
                         SumTolerance(static_cast<int64_t>(sums), 1.0));
}

TEST(CpuBackend, AttentionOfEveryWidthAndLength) {
  for (const int head_width : {2, 8, 20, 32, 64, 96, 128}) {
    for (const int length : {1, 2, 63, 64, 65, 100, 129}) {
      ASSERT_NO_FATAL_FAILURE(
          ExpectAttentionMatches(TrainingCase(1, length, 1, 1, head_width), Direction::kBoth));
    }
  }
}

TEST(CpuBackend, AttentionOfGroupsAndBatches) {
  for (const auto& [heads, kv_heads] : {std::pair{4, 1}, {6, 2}, {8, 8}}) {
    for (const int batch : {1, 2, 3}) {
      for (const int length : {2, 30, 65}) {
        ASSERT_NO_FATAL_FAILURE(ExpectAttentionMatches(
            TrainingCase(batch, length, heads, kv_heads, 12), Direction::kBoth));
      }
    }
  }
}

TEST(CpuBackend, AttentionWithACache) {
  for (const int query_length : {1, 3, 17, 65}) {
    for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {6, 2}}) {
      const AttentionCase c = {2, query_length, 66, 70, heads, kv_heads, 16};
      ASSERT_NO_FATAL_FAILURE(ExpectAttentionMatches(c, Direction::kForward));
      const AttentionCase longer = {1, query_length, 200, 256, heads, kv_heads, 16};
      ASSERT_NO_FATAL_FAILURE(ExpectAttentionMatches(longer, Direction::kForward));
    }
  }
}

// Scores tens apart: almost all weight on one key, and the running maximum keeps growing.
TEST(CpuBackend, AttentionOfLargeScores) {
  AttentionCase c = TrainingCase(1, 150, 2, 1, 16);
  c.score_spread = 20.0;
  ExpectAttentionMatches(c, Direction::kBoth);
}

// Documents shorter and longer than the tiles, starting anywhere in them.
TEST(CpuBackend, AttentionWithinRaggedDocuments) {
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {6, 2}}) {
    for (const int document_length : {1, 3, 40, 150}) {
      for (const int length : {5, 130, 200}) {
        AttentionCase c = TrainingCase(2, length, heads, kv_heads, 16);
        c.document_length = document_length;
        c.score_spread = 4.0;
        ASSERT_NO_FATAL_FAILURE(ExpectAttentionMatches(c, Direction::kBoth));
      }
    }
  }
  AttentionCase cached = {2, 17, 200, 256, 6, 2, 16};
  cached.document_length = 50;
  ExpectAttentionMatches(cached, Direction::kForward);
}

// What stands before a document has no influence on it, not in a single bit.
TEST(CpuBackend, AnotherDocumentChangesNoBit) {
  constexpr int kLength = 200, kBoundary = 83, kHeads = 4, kWidth = 16, kCols = kHeads * kWidth;
  std::vector<int32_t> first_keys(kLength, 0);
  std::fill(first_keys.begin() + kBoundary, first_keys.end(), kBoundary);
  const AttentionSpec spec = {.batch = 1,
                              .query_length = kLength,
                              .kv_length = kLength,
                              .kv_stride = kLength,
                              .heads = kHeads,
                              .kv_heads = kHeads,
                              .head_width = kWidth,
                              .scale = 0.25,
                              .first_keys = first_keys};
  const auto ops = MakeCpuBackend(2);
  std::vector<std::vector<float>> results;
  for (const uint64_t first_document : {1, 2}) {
    std::vector<std::vector<float>> buffers(9, std::vector<float>(kLength * kCols));
    const auto view = [&](int i) { return ViewOf(buffers[i].data(), kLength, kCols); };
    const View lse = ViewOf(buffers[8].data(), kLength, kHeads);
    for (int i = 0; i < 4; ++i) {  // q, k, v, dout
      RandomStream before(first_document, "before" + std::to_string(i));
      RandomStream after(1, "after" + std::to_string(i));
      for (int at = 0; at < kLength * kCols; ++at) {
        buffers[i][at] = static_cast<float>((at < kBoundary * kCols ? before : after).NextNormal());
      }
    }
    ops->Attention(view(4), lse, view(0), view(1), view(2), spec);
    ops->AttentionBackward(view(5), view(6), view(7), view(3), view(4), lse, view(0), view(1),
                           view(2), spec);
    std::vector<float>& result = results.emplace_back();
    for (int i = 4; i < 8; ++i) {
      result.insert(result.end(), buffers[i].begin() + kBoundary * kCols, buffers[i].end());
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

// --- Gradients of the reference backend ---

using Doubles = std::vector<double>;

Doubles RandomDoubles(size_t count, RandomStream& random) {
  Doubles values(count);
  for (double& value : values) value = random.NextNormal();
  return values;
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `gradient` must be the gradient of loss() with respect to x, up to 1e-6 of its norm. Central
// differences with a step of 1e-5 are off by about 1e-10 (the third derivative) plus 1e-11
// (rounding).
void ExpectGradient(Doubles& x, const Doubles& gradient, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  double error = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = loss();
    x[i] = kept - kStep;
    const double below = loss();
    x[i] = kept;
    const double difference = (above - below) / (2 * kStep) - gradient[i];
    error += difference * difference;
  }
  EXPECT_GT(Dot(gradient, gradient), 0.0);
  EXPECT_LT(std::sqrt(error / Dot(gradient, gradient)), 1e-6);
}

TEST(ReferenceGradient, RmsNorm) {
  constexpr int kRows = 3, kCols = 12;
  const auto ops = MakeReferenceBackend(DType::kF64);
  for (const int groups : {1, 3}) {
    for (const int gain_cols : {kCols, kCols / groups}) {
      for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
        RandomStream random(14, "norm gradient");
        Doubles x = RandomDoubles(kRows * kCols, random);
        Doubles gain = RandomDoubles(gain_cols, random);
        Doubles dy = RandomDoubles(x.size(), random);
        Doubles inverse_rms(kRows * groups);
        const RmsNormSpec spec = {.epsilon = 0.1, .scale = 0.6, .groups = groups, .into = into};
        const auto loss = [&] {
          Doubles y(x.size(), 0.25);  // kept by kAccumulate: a constant in the loss
          ops->RmsNorm(ViewOf(y.data(), kRows, kCols), ViewOf(inverse_rms.data(), kRows, groups),
                       ViewOf(x.data(), kRows, kCols), ViewOf(gain.data(), 1, gain_cols), spec);
          return Dot(y, dy);
        };
        loss();
        Doubles dx(x.size(), 2.0), dgain(gain_cols, 3.0);
        ops->RmsNormBackward(ViewOf(dx.data(), kRows, kCols), ViewOf(dgain.data(), 1, gain_cols),
                             ViewOf(dy.data(), kRows, kCols), ViewOf(x.data(), kRows, kCols),
                             ViewOf(inverse_rms.data(), kRows, groups),
                             ViewOf(gain.data(), 1, gain_cols), spec);
        if (into == Into::kAccumulate) {
          for (double& value : dx) value -= 2.0;
        }
        for (double& value : dgain) value -= 3.0;
        ExpectGradient(x, dx, loss);
        ExpectGradient(gain, dgain, loss);
      }
    }
  }
}

TEST(ReferenceGradient, Rope) {
  constexpr int kRows = 4, kHeads = 2, kWidth = 6, kCols = kHeads * kWidth;
  const auto ops = MakeReferenceBackend(DType::kF64);
  RandomStream random(15, "rope gradient");
  Doubles x = RandomDoubles(kRows * kCols, random);
  Doubles dx = RandomDoubles(x.size(), random);
  const Doubles weights = dx;
  Doubles cosines, sines;
  for (int position = 0; position < kRows; ++position) {
    for (int i = 0; i < kWidth / 2; ++i) {
      cosines.push_back(std::cos(position * (i + 0.5)));
      sines.push_back(std::sin(position * (i + 0.5)));
    }
  }
  const std::vector<int32_t> positions = {3, 0, 2, 1};
  const auto turn = [&](Doubles& values, RopeDirection direction) {
    ops->Rope(ViewOf(values.data(), kRows, kCols), ViewOf(cosines.data(), kRows, kWidth / 2),
              ViewOf(sines.data(), kRows, kWidth / 2), positions, {kHeads, direction});
  };
  turn(dx, RopeDirection::kBackward);
  ExpectGradient(x, dx, [&] {
    Doubles y = x;
    turn(y, RopeDirection::kForward);
    return Dot(y, weights);
  });
}

TEST(ReferenceGradient, Attention) {
  const auto ops = MakeReferenceBackend(DType::kF64);
  for (const auto& [heads, kv_heads, documents] :
       {std::tuple{2, 2, false}, {4, 2, false}, {3, 1, false}, {4, 2, true}}) {
    constexpr int kBatch = 2, kLength = 5, kWidth = 4, kRows = kBatch * kLength;
    const std::vector<int32_t> first_keys = {0, 0, 2, 2, 2, 0, 1, 1, 3, 4};
    const int q_cols = heads * kWidth, kv_cols = kv_heads * kWidth;
    RandomStream random(16, "attention gradient");
    Doubles q = RandomDoubles(kRows * q_cols, random);
    Doubles k = RandomDoubles(kRows * kv_cols, random);
    Doubles v = RandomDoubles(kRows * kv_cols, random);
    Doubles dout = RandomDoubles(q.size(), random);
    Doubles out(q.size()), log_sum_exp(kRows * heads);
    Doubles dq(q.size()), dk(k.size()), dv(v.size());
    AttentionSpec spec = {kBatch, kLength, kLength, kLength, heads, kv_heads, kWidth, 0.5};
    if (documents) spec.first_keys = first_keys;
    const auto queries = [&](Doubles& data) { return ViewOf(data.data(), kRows, q_cols); };
    const auto keys = [&](Doubles& data) { return ViewOf(data.data(), kRows, kv_cols); };
    const View lse_view = ViewOf(log_sum_exp.data(), kRows, heads);
    const auto loss = [&] {
      ops->Attention(queries(out), lse_view, queries(q), keys(k), keys(v), spec);
      return Dot(out, dout);
    };
    loss();
    ops->AttentionBackward(queries(dq), keys(dk), keys(dv), queries(dout), queries(out), lse_view,
                           queries(q), keys(k), keys(v), spec);
    ExpectGradient(q, dq, loss);
    ExpectGradient(k, dk, loss);
    ExpectGradient(v, dv, loss);
  }
}

TEST(ReferenceGradient, SwiGlu) {
  constexpr int kRows = 3, kWidth = 5;
  const auto ops = MakeReferenceBackend(DType::kF64);
  RandomStream random(17, "swiglu gradient");
  Doubles gate_up = RandomDoubles(kRows * 2 * kWidth, random);
  Doubles dh = RandomDoubles(kRows * kWidth, random);
  Doubles dgate_up(gate_up.size());
  ops->SwiGluBackward(ViewOf(dgate_up.data(), kRows, 2 * kWidth), View{},
                      ViewOf(dh.data(), kRows, kWidth), ViewOf(gate_up.data(), kRows, 2 * kWidth));
  ExpectGradient(gate_up, dgate_up, [&] {
    Doubles h(dh.size());
    ops->SwiGlu(ViewOf(h.data(), kRows, kWidth), ViewOf(gate_up.data(), kRows, 2 * kWidth));
    return Dot(h, dh);
  });
}

TEST(ReferenceGradient, CrossEntropyWithZLoss) {
  constexpr int kRows = 4, kCols = 9, kVocabulary = 7;
  const auto ops = MakeReferenceBackend(DType::kF64);
  RandomStream random(18, "loss gradient");
  Doubles logits = RandomDoubles(kRows * kCols, random);
  const std::vector<int32_t> targets = {2, kIgnoredTarget, 6, 0};
  const CrossEntropySpec spec = {.vocabulary = kVocabulary, .z_loss = 0.3, .grad_scale = 0.7};
  Doubles dlogits = logits;
  ops->CrossEntropyBackward(ViewOf(dlogits.data(), kRows, kCols),
                            ViewOf(logits.data(), kRows, kCols), targets, spec);
  ExpectGradient(logits, dlogits, [&] {
    const LossSums sums = ops->CrossEntropy({}, ViewOf(logits.data(), kRows, kCols), targets, spec);
    return spec.grad_scale * (sums.cross_entropy + spec.z_loss * sums.z_loss);
  });
}

TEST(ReferenceGradient, Embed) {
  constexpr int kRows = 5, kWidth = 3, kVocabulary = 4;
  const auto ops = MakeReferenceBackend(DType::kF64);
  RandomStream random(19, "embed gradient");
  Doubles table = RandomDoubles(kVocabulary * kWidth, random);
  Doubles dx = RandomDoubles(kRows * kWidth, random);
  const std::vector<int32_t> ids = {2, 0, 2, 3, 2};
  Doubles dtable(table.size());
  ops->EmbedBackward(ViewOf(dtable.data(), kVocabulary, kWidth), ViewOf(dx.data(), kRows, kWidth),
                     ids);
  ExpectGradient(table, dtable, [&] {
    Doubles x(dx.size());
    ops->Embed(ViewOf(x.data(), kRows, kWidth), ViewOf(table.data(), kVocabulary, kWidth), ids);
    return Dot(x, dx);
  });
}

}  // namespace
}  // namespace sandglass
