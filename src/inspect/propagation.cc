#include "inspect/propagation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "model/observer.h"

namespace sandglass {
namespace {

// A matrix in double, [rows, cols] packed.
std::vector<double> ToDouble(ConstView view) {
  std::vector<double> out;
  out.reserve(view.elements());
  for (int64_t row = 0; row < view.rows; ++row) {
    if (view.dtype == DType::kF64) {
      const double* const begin = view.Row<double>(row);
      out.insert(out.end(), begin, begin + view.cols);
    } else {
      const float* const begin = view.Row<float>(row);
      out.insert(out.end(), begin, begin + view.cols);
    }
  }
  return out;
}

double SumOfSquares(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return sum;
}

double Rms(std::span<const double> values) {
  return std::sqrt(SumOfSquares(values) / static_cast<double>(values.size()));
}

// Angle between two vectors in half turns. From the lengths of sum and difference of the unit
// vectors: exact for small angles too, where the cosine is 1 to all digits.
double Angle(std::span<const double> x, std::span<const double> y) {
  const double x_norm = std::sqrt(SumOfSquares(x));
  const double y_norm = std::sqrt(SumOfSquares(y));
  if (x_norm == 0.0 || y_norm == 0.0) return 0.0;
  double apart = 0.0;
  double together = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = x[i] / x_norm - y[i] / y_norm;
    const double sum = x[i] / x_norm + y[i] / y_norm;
    apart += difference * difference;
    together += sum * sum;
  }
  return 2.0 * std::atan2(std::sqrt(apart), std::sqrt(together)) / std::numbers::pi;
}

// Scores of all heads and queries, one query at a time.
void MeasureAttention(const AttentionInputs& inputs, SubLayerSignals& signals) {
  const AttentionSpec& spec = inputs.spec;
  const std::vector<double> q = ToDouble(inputs.q);  // [B*T, H*E]
  const std::vector<double> k = ToDouble(inputs.k);  // [B*T, KV*E]
  const int64_t q_width = inputs.q.cols;
  const int64_t k_width = inputs.k.cols;
  double entropy_sum = 0.0;
  double relative_sum = 0.0;
  int64_t queries = 0;
  int64_t queries_with_choice = 0;
  double largest = -std::numeric_limits<double>::infinity();
  std::vector<double> scores;
  for (int64_t row = 0; row < inputs.q.rows; ++row) {
    const int64_t first =
        row - row % spec.query_length + (spec.first_keys.empty() ? 0 : spec.first_keys[row]);
    for (int head = 0; head < spec.heads; ++head) {
      const int kv_head = head / (spec.heads / spec.kv_heads);
      const double* const query = &q[row * q_width + int64_t{head} * spec.head_width];
      scores.clear();
      for (int64_t key_row = first; key_row <= row; ++key_row) {
        const double* const key = &k[key_row * k_width + int64_t{kv_head} * spec.head_width];
        double dot = 0.0;
        for (int e = 0; e < spec.head_width; ++e) dot += query[e] * key[e];
        scores.push_back(dot * spec.scale);
      }
      const double highest = *std::max_element(scores.begin(), scores.end());
      double sum = 0.0;
      double weighted = 0.0;  // sum of exp(s) * s, both relative to the highest
      for (const double score : scores) {
        const double weight = std::exp(score - highest);
        sum += weight;
        weighted += weight * (score - highest);
      }
      const double entropy = std::log(sum) - weighted / sum;
      entropy_sum += entropy;
      ++queries;
      if (scores.size() > 1) {
        relative_sum += entropy / std::log(static_cast<double>(scores.size()));
        ++queries_with_choice;
      }
      largest = std::max(largest, highest);
    }
  }
  signals.entropy = entropy_sum / static_cast<double>(queries);
  if (queries_with_choice > 0) {
    signals.relative_entropy = relative_sum / static_cast<double>(queries_with_choice);
  }
  signals.largest_logit = largest;
}

class SignalMeter final : public Observer {
 public:
  // Gradients arrive times `grad_scale`, which is divided out.
  explicit SignalMeter(double grad_scale) : grad_scale_(grad_scale) {}

  void BeforeForward(const Pass&, const SubLayer&, ConstView x) override { before_ = ToDouble(x); }

  void AfterForward(const Pass& pass, const SubLayer& sub_layer, ConstView x) override {
    const std::vector<double> after = ToDouble(x);
    std::vector<double> added(after.size());
    std::transform(after.begin(), after.end(), before_.begin(), added.begin(), std::minus<>());
    SubLayerSignals signals;
    signals.name = sub_layer.name();
    signals.stream_rms = Rms(before_);
    signals.added_rms = Rms(added);
    signals.output_rms = Rms(after);
    signals.share = signals.output_rms > 0 ? signals.added_rms / signals.output_rms : 0.0;
    for (int64_t row = 0; row < x.rows; ++row) {
      signals.angle += Angle(std::span(before_).subspan(row * x.cols, x.cols),
                             std::span(after).subspan(row * x.cols, x.cols));
    }
    signals.angle /= static_cast<double>(x.rows);
    if (const auto inputs = sub_layer.attention_inputs(pass)) MeasureAttention(*inputs, signals);
    measured_.push_back(std::move(signals));
    next_backward_ = measured_.size();
  }

  void AfterBackward(const Pass&, const SubLayer& sub_layer, ConstView dx) override {
    SANDGLASS_CHECK(next_backward_ > 0, "more sub-layers backward than forward");
    SubLayerSignals& signals = measured_[--next_backward_];
    SANDGLASS_CHECK(signals.name == sub_layer.name(), "backward in another order than forward");
    const double norm = std::sqrt(SumOfSquares(ToDouble(dx)));
    signals.gradient_rms = norm / grad_scale_ / std::sqrt(static_cast<double>(dx.rows));
  }

  std::vector<SubLayerSignals> Take() { return std::move(measured_); }

 private:
  double grad_scale_;
  std::vector<double> before_;  // [M, D]
  std::vector<SubLayerSignals> measured_;
  size_t next_backward_ = 0;
};

// Norm of the gradients of the parameters whose names begin with the sub-layer's.
double WeightGradientNorm(const ParamTable& params, const std::string& sub_layer) {
  double sum = 0.0;
  for (const ParamSpec& spec : params.specs()) {
    if (spec.name.starts_with(sub_layer + ".")) sum += SumOfSquares(ToDouble(spec.param->grad));
  }
  return std::sqrt(sum);
}

}  // namespace

double Propagation::StreamGrowth() const {
  return sub_layers.back().output_rms / sub_layers.front().stream_rms;
}

double Propagation::GradientGrowth() const {
  return sub_layers.front().gradient_rms / sub_layers.back().gradient_rms;
}

Propagation MeasurePropagation(Model& model, Backend& ops, const Batch& batch) {
  const int64_t scored = std::ranges::count_if(batch.targets, [](int32_t id) { return id >= 0; });
  SANDGLASS_CHECK(scored > 0, "a batch without targets has no gradients");
  const double grad_scale = 1.0 / static_cast<double>(scored);
  SignalMeter meter(grad_scale);
  ops.Zero(model.params().grads());
  model.SetObserver(&meter);
  const LossSums sums = model.LossAndGradients(batch, grad_scale);
  model.SetObserver(nullptr);
  Propagation propagation{.loss = sums.cross_entropy / static_cast<double>(sums.tokens),
                          .sub_layers = meter.Take()};
  for (SubLayerSignals& signals : propagation.sub_layers) {
    signals.weight_gradient_norm = WeightGradientNorm(model.params(), signals.name);
  }
  return propagation;
}

}  // namespace sandglass
