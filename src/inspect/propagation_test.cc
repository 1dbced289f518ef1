// In double on the reference backend, against values worked out by hand or by loops of their own.
#include "inspect/propagation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "base/random.h"
#include "inspect/init_check.h"

namespace sandglass {
namespace {

class PropagationTest : public ::testing::Test {
 protected:
  Model& Make(const std::string& shape, int batch, int length) {
    config_.shape = Shape::Parse(shape);
    config_.vocabulary = 12;
    config_.norm_epsilon = 1e-15;
    model_ = std::make_unique<Model>(
        config_, Capacity{.batch = batch, .length = length, .dtype = DType::kF64});
    model_->Allocate(*ops_);
    model_->params().Initialize(3);
    return *model_;
  }

  double* Values(const std::string& name) { return Find(name).param->value.Row<double>(); }
  const ParamSpec& Find(const std::string& name) {
    for (const ParamSpec& spec : model_->params().specs()) {
      if (spec.name == name) return spec;
    }
    throw std::runtime_error("no parameter " + name);
  }
  void Fill(const std::string& name, double value) {
    std::fill_n(Values(name), Find(name).elements(), value);
  }
  // Weights large enough that every statistic differs visibly from that of zero weights.
  void Randomize() {
    for (const ParamSpec& spec : model_->params().specs()) {
      RandomStream stream(5, spec.name);
      double* const values = spec.param->value.Row<double>();
      for (int64_t i = 0; i < spec.elements(); ++i) {
        values[i] =
            (spec.init.kind == ParamInit::Kind::kOnes ? 1.0 : 0.0) + 0.5 * stream.NextNormal();
      }
    }
  }

  ModelConfig config_;
  std::unique_ptr<Backend> ops_ = MakeReferenceBackend(DType::kF64);
  std::unique_ptr<Model> model_;
};

// A stream of one token, x = (3, -1, 2, 1) with root mean square r. An attention over one token
// passes its value on, so that the addition is W_o W_v x/r.
class OneToken : public PropagationTest {
 protected:
  static constexpr double kAdded = 0.7;
  const double rms_ = std::sqrt(15.0 / 4.0);

  Propagation Measure(const std::vector<double>& value_matrix) {
    Make("L1-d4-a1x4-f1x2", 1, 1);
    const std::vector<double> x = {3, -1, 2, 1};
    std::copy(x.begin(), x.end(), Values("embedding"));
    double* const w_v = Values("layers.0.attention.w_qkv") + 8 * 4;
    std::copy(value_matrix.begin(), value_matrix.end(), w_v);
    Fill("layers.0.attention.w_o", 0.0);
    for (int i = 0; i < 4; ++i) Values("layers.0.attention.w_o")[i * 4 + i] = kAdded;
    Fill("layers.0.ffn.0.w_down", 0.0);
    const std::vector<int32_t> ids = {0}, targets = {1};
    return MeasurePropagation(*model_, *ops_, {1, 1, ids, targets});
  }
};

TEST_F(OneToken, AMatrixThatKeepsTheDirectionAddsItsFactor) {
  const Propagation p = Measure({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  const SubLayerSignals& attention = p.sub_layers[0];
  EXPECT_EQ(attention.name, "layers.0.attention");
  EXPECT_NEAR(attention.stream_rms, rms_, 1e-12);
  EXPECT_NEAR(attention.added_rms, kAdded, 1e-12);
  EXPECT_NEAR(attention.output_rms, rms_ + kAdded, 1e-12);
  EXPECT_NEAR(attention.share, kAdded / (rms_ + kAdded), 1e-12);
  EXPECT_NEAR(attention.angle, 0.0, 1e-12);
  const SubLayerSignals& ffn = p.sub_layers[1];
  EXPECT_EQ(ffn.name, "layers.0.ffn.0");
  EXPECT_EQ(ffn.share, 0.0);
  EXPECT_EQ(ffn.angle, 0.0);
  EXPECT_FALSE(ffn.entropy.has_value());
  EXPECT_NEAR(p.StreamGrowth(), (rms_ + kAdded) / rms_, 1e-12);
}

TEST_F(OneToken, AMatrixThatTurnsByARightAngleAddsInQuadrature) {
  // (a, b, c, d) becomes (-b, a, -d, c).
  const Propagation p = Measure({0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0});
  const SubLayerSignals& attention = p.sub_layers[0];
  EXPECT_NEAR(attention.output_rms, std::hypot(rms_, kAdded), 1e-12);
  EXPECT_NEAR(attention.share, kAdded / std::hypot(rms_, kAdded), 1e-12);
  EXPECT_NEAR(attention.angle, std::atan2(kAdded, rms_) / std::numbers::pi, 1e-12);
}

TEST_F(PropagationTest, UniformAttentionHasTheEntropyOfItsKeys) {
  Make("L1-d8-a2x4-f1x4-kv1", 2, 5);
  Randomize();
  std::fill_n(Values("layers.0.attention.w_qkv"), 8 * 8, 0.0);  // all queries are zero
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  const std::vector<int32_t> targets = {1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  const Propagation p = MeasurePropagation(*model_, *ops_, {2, 5, ids, targets});
  double expected = 0;
  for (int t = 0; t < 5; ++t) expected += std::log(t + 1.0) / 5;
  EXPECT_NEAR(*p.sub_layers[0].entropy, expected, 1e-12);
  EXPECT_NEAR(*p.sub_layers[0].relative_entropy, 1.0, 1e-12);
  EXPECT_EQ(*p.sub_layers[0].largest_logit, 0.0);
}

TEST_F(PropagationTest, KeysOfOtherDocumentsAreNotVisible) {
  Make("L1-d8-a2x4-f1x4", 1, 5);
  Randomize();
  std::fill_n(Values("layers.0.attention.w_qkv"), 8 * 8, 0.0);
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5}, targets = {1, 4, 1, 5, 9};
  const std::vector<int32_t> starts = {0, 0, 2, 2, 2};
  const Propagation p = MeasurePropagation(*model_, *ops_, {1, 5, ids, targets, starts});
  EXPECT_NEAR(*p.sub_layers[0].entropy, (2 * std::log(2.0) + std::log(3.0)) / 5, 1e-12);
  EXPECT_NEAR(*p.sub_layers[0].relative_entropy, 1.0, 1e-12);
}

// The first attention once more: norm, projection, QK-norm, rotation and softmax by plain loops.
TEST_F(PropagationTest, AttentionIsThatOfTheEquations) {
  for (const QkNorm qk_norm : {QkNorm::kNone, QkNorm::kPerHead}) {
    config_.qk_norm = qk_norm;
    config_.rope_theta = 100.0;
    constexpr int kLength = 4, kHeads = 2, kWidth = 4, kD = 8;
    Make("L2-d8-a2x4-f2x4-kv1", 2, kLength);
    Randomize();
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    const std::vector<int32_t> targets = {1, 4, 1, 5, 9, 2, 6, 5};
    const SubLayerSignals measured =
        MeasurePropagation(*model_, *ops_, {2, kLength, ids, targets}).sub_layers[0];

    const auto rms = [](const double* x, int n) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += x[i] * x[i];
      return std::sqrt(sum / n);
    };
    // Head `row` of w_qkv for the token at position t: q of head 0, q of head 1, k.
    const auto head = [&](int token, int t, int row, const char* gain) {
      const double* const x = Values("embedding") + ids[token] * kD;
      const double* const norm = Values("layers.0.attention.norm");
      std::vector<double> out(kWidth, 0.0);
      for (int e = 0; e < kWidth; ++e) {
        for (int d = 0; d < kD; ++d) {
          out[e] += Values("layers.0.attention.w_qkv")[(row * kWidth + e) * kD + d] * norm[d] *
                    x[d] / rms(x, kD);
        }
      }
      if (qk_norm == QkNorm::kPerHead) {
        const double r = rms(out.data(), kWidth);
        for (int e = 0; e < kWidth; ++e) out[e] *= Values(gain)[e] / r;
      }
      std::vector<double> turned = out;
      for (int i = 0; i < kWidth / 2; ++i) {
        const double angle = t * std::pow(100.0, -2.0 * i / kWidth);
        turned[i] = out[i] * std::cos(angle) - out[i + 2] * std::sin(angle);
        turned[i + 2] = out[i + 2] * std::cos(angle) + out[i] * std::sin(angle);
      }
      return turned;
    };
    double entropy = 0, relative = 0, largest = -1e9;
    for (int b = 0; b < 2; ++b) {
      for (int t = 0; t < kLength; ++t) {
        for (int h = 0; h < kHeads; ++h) {
          const auto q = head(b * kLength + t, t, h, "layers.0.attention.q_norm");
          std::vector<double> weights;
          for (int s = 0; s <= t; ++s) {
            const auto k = head(b * kLength + s, s, kHeads, "layers.0.attention.k_norm");
            const double score = std::inner_product(q.begin(), q.end(), k.begin(), 0.0) / 2;
            largest = std::max(largest, score);
            weights.push_back(std::exp(score));
          }
          const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
          double own = 0;
          for (const double w : weights) own -= w / sum * std::log(w / sum);
          entropy += own / (2 * kLength * kHeads);
          if (t > 0) relative += own / std::log(t + 1.0) / (2 * (kLength - 1) * kHeads);
        }
      }
    }
    EXPECT_NEAR(*measured.entropy, entropy, 1e-9);
    EXPECT_NEAR(*measured.relative_entropy, relative, 1e-9);
    EXPECT_NEAR(*measured.largest_logit, largest, 1e-9);
  }
}

TEST_F(PropagationTest, GradientsOfTheStreamAreThoseOfTheEmbeddings) {
  Make("L2-d8-a2x4-f3x4", 2, 3);
  Randomize();
  // Every token occurs once, so a row of the embedding's gradient is the stream's at that token.
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5}, targets = {6, 7, 8, 9, 10, 11};
  const Propagation p = MeasurePropagation(*model_, *ops_, {2, 3, ids, targets});
  const double* const gradient = Find("embedding").param->grad.Row<double>();
  double sum = 0;
  for (int i = 0; i < 6 * 8; ++i) sum += gradient[i] * gradient[i];
  // The slab holds gradients of the mean of six losses.
  EXPECT_NEAR(p.sub_layers[0].gradient_rms, 6 * std::sqrt(sum / 6), 1e-10);
  EXPECT_GT(p.sub_layers[0].gradient_rms, 1e-3);
}

TEST_F(PropagationTest, AnObserverChangesNothing) {
  config_.norm = NormPlacement::kPost;
  Make("L2-d8-a2x4-f3x4", 2, 3);
  Randomize();
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5}, targets = {6, 7, 8, 9, 10, 11};
  const Batch batch{2, 3, ids, targets};
  const auto gradients = [&] {
    const View view = model_->params().grads();
    return std::vector<double>(view.Row<double>(), view.Row<double>() + view.cols);
  };
  const Propagation observed = MeasurePropagation(*model_, *ops_, batch);
  const std::vector<double> with = gradients();
  ops_->Zero(model_->params().grads());
  const LossSums sums = model_->LossAndGradients(batch, 1.0 / 6);
  EXPECT_EQ(observed.loss, sums.cross_entropy / 6);
  EXPECT_EQ(with, gradients());

  // The norms of the weights' gradients are those of the slab.
  double squares = 0;
  for (const SubLayerSignals& signals : observed.sub_layers) {
    squares += signals.weight_gradient_norm * signals.weight_gradient_norm;
  }
  for (const char* name : {"embedding", "final_norm", "head"}) {
    squares += ops_->SquaredNorm(Find(name).param->grad);
  }
  EXPECT_NEAR(squares, ops_->SquaredNorm(model_->params().grads()), 1e-9 * squares);
}

TEST_F(PropagationTest, StatisticsDoNotDependOnTheBatch) {
  Make("L2-d8-a2x4-f2x4", 2, 3);
  Randomize();
  const std::vector<int32_t> ids = {0, 1, 2, 0, 1, 2}, targets = {6, 7, 8, 6, 7, 8};
  const Propagation one = MeasurePropagation(
      *model_, *ops_, {1, 3, std::span(ids).first(3), std::span(targets).first(3)});
  const Propagation two = MeasurePropagation(*model_, *ops_, {2, 3, ids, targets});
  for (size_t i = 0; i < one.sub_layers.size(); ++i) {
    const SubLayerSignals& a = one.sub_layers[i];
    const SubLayerSignals& b = two.sub_layers[i];
    EXPECT_NEAR(a.share, b.share, 1e-12) << a.name;
    EXPECT_NEAR(a.angle, b.angle, 1e-12) << a.name;
    EXPECT_NEAR(a.gradient_rms, b.gradient_rms, 1e-12) << a.name;
    EXPECT_NEAR(a.weight_gradient_norm, b.weight_gradient_norm, 1e-12) << a.name;
  }
}

TEST_F(PropagationTest, EveryInitialMatrixStartsByTheRule) {
  for (const bool depth_scaled : {false, true}) {
    config_.depth_scaled_init = depth_scaled;
    Make("L3-d16-a2x8-f4x12", 1, 1);
    const InitCheck check = CheckInit(config_, model_->params());
    EXPECT_EQ(check.additions, 15);
    EXPECT_EQ(check.matrices.size(), 15u);
    EXPECT_DOUBLE_EQ(check.stated, depth_scaled ? 0.02 / std::sqrt(15.0) : 0.02);
    EXPECT_TRUE(check.holds());
  }
}

TEST_F(PropagationTest, AnInitThatForgetsTheSubMlpsIsFound) {
  config_.depth_scaled_init = true;
  Make("L3-d16-a2x8-f4x12", 1, 1);
  // As if two additions a layer had been counted, whatever K.
  double* const w = Values("layers.1.ffn.2.w_down");
  for (int i = 0; i < 16 * 12; ++i) w[i] *= std::sqrt(15.0 / 6.0);
  const InitCheck check = CheckInit(config_, model_->params());
  EXPECT_FALSE(check.holds());
  for (const InitialMatrix& matrix : check.matrices) {
    EXPECT_EQ(matrix.holds, matrix.name != "layers.1.ffn.2.w_down") << matrix.name;
  }
}

}  // namespace
}  // namespace sandglass
