#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/random.h"
#include "base/testing.h"
#include "model/model.h"
#include "train/averaging.h"
#include "train/spike_detector.h"

namespace sandglass {
namespace {

TEST(AdamW, DecaysTheNamedGroupsAloneAndClips) {
  ParamTable params;
  Param weight, gain;
  params.Declare(weight, "w", ParamRole::kFfn, 1, 2, {});
  params.Declare(gain, "g", ParamRole::kNorm, 1, 2, {ParamInit::Kind::kOnes});
  params.Grant(DType::kF64, true);
  const auto ops = MakeReferenceBackend(DType::kF64);
  for (double* value : {weight.value.Row<double>(), gain.value.Row<double>()}) {
    value[0] = value[1] = 2.0;
  }
  weight.grad.Row<double>()[0] = 3.0;
  gain.grad.Row<double>()[0] = 4.0;
  OptimizerOptions options;
  options.clip_norm = 1.0;
  options.learning_rate_factors.norm = 0.5;
  Optimizer optimizer(params, options);
  const GradientNorms norms = MeasureGradients(*ops, params);
  EXPECT_DOUBLE_EQ(norms.global, 5.0);
  EXPECT_DOUBLE_EQ(norms.by_role.ffn, 3.0);
  EXPECT_DOUBLE_EQ(norms.by_role.norm, 4.0);
  EXPECT_DOUBLE_EQ(norms.by_role.head, 0.0);
  optimizer.Step(*ops, params, {.update = 1, .learning_rate = 0.1, .gradient_norm = norms.global});
  // The first step moves by the learning rate in the gradient's direction; decay adds 0.1*0.1*2.
  EXPECT_NEAR(weight.value.Row<double>()[0], 2.0 - 0.1 - 0.02, 1e-8);
  EXPECT_NEAR(weight.value.Row<double>()[1], 2.0 - 0.02, 1e-8);
  EXPECT_NEAR(gain.value.Row<double>()[0], 2.0 - 0.05, 1e-8);
  EXPECT_EQ(gain.value.Row<double>()[1], 2.0);
  const std::vector<OptimizerTensor> state = optimizer.State();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[0].name, "m/w");
  EXPECT_EQ(state[3].name, "v/g");
  EXPECT_NEAR(state[0].view.Row<double>()[0], 0.1 * 3.0 / 5.0, 1e-15);  // clipped
}

// A matrix of its own scalar type, independent of the code under test.
struct Matrix {
  int64_t rows, cols;
  std::vector<double> values;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(r * c) {}
  double& at(int64_t i, int64_t j) { return values[i * cols + j]; }
  double at(int64_t i, int64_t j) const { return values[i * cols + j]; }
};

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t k = 0; k < a.cols; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Matrix Transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

// The definition: always (x x^T) on the left, whatever the shape.
Matrix ScalarOrthogonalized(Matrix x, int iterations) {
  double square = 0;
  for (const double value : x.values) square += value * value;
  for (double& value : x.values) value /= std::sqrt(square);
  for (int n = 0; n < iterations; ++n) {
    const Matrix gram = Times(x, Transposed(x));
    const Matrix cubic = Times(gram, x);
    const Matrix quintic = Times(gram, cubic);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] - 4.7750 * cubic.values[i] + 2.0315 * quintic.values[i];
    }
  }
  return x;
}

// A packed parameter of two matrices of different shapes, tall and wide, and one that AdamW keeps.
struct Packed {
  ParamTable params;
  Param packed, square, gain;

  explicit Packed(DType dtype) {
    params.Declare(packed, "packed", ParamRole::kAttention, 5 + 2, 3, {.std = 1.0}).packed_rows = {
        5, 2};
    params.Declare(gain, "gain", ParamRole::kNorm, 1, 3, {ParamInit::Kind::kOnes});
    params.Declare(square, "square", ParamRole::kFfn, 4, 4, {.std = 1.0});
    params.Grant(dtype, true);
    params.Initialize(3);
  }
  template <class T>
  void FillGradients(int round) {
    for (const ParamSpec& spec : params.specs()) {
      RandomStream random(round, spec.name);
      for (int64_t i = 0; i < spec.elements(); ++i) {
        spec.param->grad.Row<T>()[i] = static_cast<T>(random.NextNormal());
      }
    }
  }
};

template <class T>
Matrix RowsOf(View view, int64_t begin, int64_t rows) {
  Matrix matrix(rows, view.cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < view.cols; ++j) matrix.at(i, j) = view.Row<T>(begin + i)[j];
  }
  return matrix;
}

OptimizerOptions MuonConfig() {
  OptimizerOptions options;
  options.kind = OptimizerKind::kMuon;
  options.learning_rate = 0.02;
  options.muon.learning_rate = 0.05;
  options.learning_rate_factors.ffn = 2.0;
  options.clip_norm = 0;
  return options;
}

// Three steps of Muon against scalar double loops over the logical matrices.
template <class T>
void ExpectMuonMatchesScalarLoops(Backend& ops, double tolerance) {
  Packed model(DTypeOf<T>());
  OptimizerOptions options = MuonConfig();
  for (const bool nesterov : {true, false}) {
    for (const MuonScale scale : {MuonScale::kRms, MuonScale::kSpectral}) {
      options.muon.nesterov = nesterov;
      options.muon.scale = scale;
      Optimizer optimizer(model.params, options);
      struct Logical {
        View value, grad;
        int64_t begin, rows;
        double factor;
      };
      const Logical matrices[] = {{model.packed.value, model.packed.grad, 0, 5, 1.0},
                                  {model.packed.value, model.packed.grad, 5, 2, 1.0},
                                  {model.square.value, model.square.grad, 0, 4, 2.0}};
      std::vector<Matrix> weights, momenta;
      for (const Logical& m : matrices) {
        weights.push_back(RowsOf<T>(m.value, m.begin, m.rows));
        momenta.emplace_back(m.rows, m.value.cols);
      }
      for (int step = 1; step <= 3; ++step) {
        model.FillGradients<T>(step);
        const std::vector<T> before(model.params.grads().Row<T>(),
                                    model.params.grads().Row<T>() + model.params.slab_elements());
        // Half the peak: Muon's own rate follows the schedule.
        optimizer.Step(ops, model.params, {.update = step, .learning_rate = 0.01});
        EXPECT_EQ(before,
                  std::vector<T>(model.params.grads().Row<T>(),
                                 model.params.grads().Row<T>() + model.params.slab_elements()))
            << "gradients were changed";
        for (size_t k = 0; k < std::size(matrices); ++k) {
          const Logical& m = matrices[k];
          const Matrix grad = RowsOf<T>(m.grad, m.begin, m.rows);
          Matrix update = grad;
          for (size_t i = 0; i < grad.values.size(); ++i) {
            momenta[k].values[i] = 0.95 * momenta[k].values[i] + grad.values[i];
            update.values[i] =
                nesterov ? grad.values[i] + 0.95 * momenta[k].values[i] : momenta[k].values[i];
          }
          update = ScalarOrthogonalized(update, 5);
          const double rows = static_cast<double>(m.rows), cols = static_cast<double>(m.value.cols);
          const double size = scale == MuonScale::kRms ? 0.2 * std::sqrt(std::max(rows, cols))
                                                       : std::sqrt(std::max(1.0, rows / cols));
          for (size_t i = 0; i < grad.values.size(); ++i) {
            double& w = weights[k].values[i];
            w -= 0.025 * m.factor * (size * update.values[i] + 0.1 * w);
          }
          const Matrix now = RowsOf<T>(m.value, m.begin, m.rows);
          for (size_t i = 0; i < now.values.size(); ++i) {
            ASSERT_NEAR(now.values[i], weights[k].values[i], tolerance)
                << "matrix " << k << ", element " << i << ", step " << step;
          }
        }
      }
    }
  }
}

TEST(Muon, MatchesScalarDoubleLoopsForEachLogicalMatrix) {
  ExpectMuonMatchesScalarLoops<double>(*MakeReferenceBackend(DType::kF64), 1e-13);
}

// The polynomial multiplies an error by at most its largest slope, 3.4445, in each of 5 iterations:
// about 500 roundings of 6e-8, times a learning rate of 0.05.
TEST(Muon, MatchesScalarDoubleLoopsOnTheCpuBackend) {
  ExpectMuonMatchesScalarLoops<float>(*MakeCpuBackend(2), 500 * 6e-8 * 0.05 * 4);
}

TEST(Muon, SingularValuesComeNearOne) {
  const auto ops = MakeReferenceBackend(DType::kF64);
  for (const auto& [rows, cols] : {std::pair{6, 6}, {4, 9}, {9, 4}}) {
    RandomStream random(1, "singular");
    std::vector<double> x(rows * cols), next(x.size()), gram(81), polynomial(81);
    for (double& value : x) value = random.NextNormal();
    const int side = std::min(rows, cols);
    Orthogonalize(*ops, ViewOf(x.data(), rows, cols),
                  {.next = ViewOf(next.data(), rows, cols),
                   .gram = ViewOf(gram.data(), side, side),
                   .polynomial = ViewOf(polynomial.data(), side, side)},
                  5);
    // The mean of the squared singular values is |x|^2 / side.
    double square = 0;
    for (const double value : x) square += value * value;
    EXPECT_NEAR(std::sqrt(square / side), 1.0, 0.3) << rows << " x " << cols;
  }
}

TEST(Muon, KeepsAdamWElsewhereAndItsStateIsComplete) {
  const auto ops = MakeReferenceBackend(DType::kF64);
  Packed model(DType::kF64);
  Optimizer optimizer(model.params, MuonConfig());
  std::vector<std::string> names;
  for (const OptimizerTensor& tensor : optimizer.State()) names.push_back(tensor.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"m/gain", "v/gain", "momentum/packed", "momentum/square"}));
  model.FillGradients<double>(1);
  optimizer.Step(*ops, model.params, {.update = 1, .learning_rate = 0.01});
  const double* const gain = model.gain.value.Row<double>();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(std::abs(gain[i] - 1.0), 0.01, 1e-8);
}

TEST(Muon, MatricesOfAModelAreSplitWhereTheyArePacked) {
  const Model model(FamilyConfig(Family::kHourglass, Shape::Parse("L1-d8-a4x4-f3,5-kv2"), 32), {});
  for (const ParamSpec& spec : model.params().specs()) {
    if (spec.name.ends_with("w_qkv")) {
      EXPECT_EQ(spec.packed_rows, (std::vector<int64_t>{16, 8, 8}));
    } else if (spec.name == "layers.0.ffn.1.w_gate_up") {
      EXPECT_EQ(spec.packed_rows, (std::vector<int64_t>{5, 5}));
    } else if (!spec.name.ends_with("w_gate_up")) {
      EXPECT_TRUE(spec.packed_rows.empty()) << spec.name;
    }
  }
}

TEST(WeightAverage, IsTheWeightedMeanOfTheUpdatesExactly) {
  constexpr double kDecay = 0.9;
  ParamTable params;
  Param weight;
  params.Declare(weight, "w", ParamRole::kFfn, 1, 3, {});
  params.Grant(DType::kF64, true);
  const auto ops = MakeReferenceBackend(DType::kF64);
  WeightAverage average(params, kDecay);
  std::vector<std::vector<double>> history;
  for (int n = 1; n <= 60; ++n) {
    RandomStream random(n, "weights");
    double* const w = weight.value.Row<double>();
    for (int i = 0; i < 3; ++i) w[i] = random.NextNormal();
    history.push_back({w[0], w[1], w[2]});
    average.Add(*ops, params, n);
    for (int i = 0; i < 3; ++i) {
      double sum = 0, shares = 0;
      for (int k = 0; k < n; ++k) {
        const double share = std::pow(kDecay, n - 1 - k);
        sum += share * history[k][i];
        shares += share;
      }
      EXPECT_NEAR(average.values().Row<double>()[i], sum / shares, 1e-14) << n;
    }
  }
  const double newest = weight.value.Row<double>()[1];
  const double mean = average.values().Row<double>()[1];
  {
    const AveragedWeights averaged(params, average);
    EXPECT_EQ(weight.value.Row<double>()[1], mean);
  }
  EXPECT_EQ(weight.value.Row<double>()[1], newest);
  EXPECT_EQ(average.values().Row<double>()[1], mean);
}

TEST(SpikeDetector, FiresAboveTheLimitAndNotBefore) {
  // Losses of 3 +- 0.1: the sample deviation of four is 0.1154700538.
  const std::vector<double> usual = {2.9, 3.1, 2.9, 3.1};
  const auto after = [&](double loss) {
    SpikeDetector detector({.z_score = 3, .window = 4});
    for (const double value : usual) EXPECT_FALSE(detector.Add(value));
    return detector.Add(loss);
  };
  EXPECT_FALSE(after(3.0 + 2.99 * 0.1154700538));
  ASSERT_TRUE(after(3.0 + 3.01 * 0.1154700538));
  EXPECT_NEAR(*after(3.0 + 3.01 * 0.1154700538), 3.01, 1e-6);
  EXPECT_FALSE(after(0.1));  // a fall is no spike

  SpikeDetector detector({.z_score = 3, .window = 4});
  for (const double value : {3.0, 9.0, 3.0}) EXPECT_FALSE(detector.Add(value));  // too few to tell
  detector.Restore(usual);
  EXPECT_TRUE(detector.Add(4.0));
  EXPECT_EQ(detector.losses(), (std::vector<double>{3.1, 2.9, 3.1, 4.0}));
  SpikeDetector off({});
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(off.Add(i < 150 ? 1.0 : 1e9));
}

}  // namespace
}  // namespace sandglass
