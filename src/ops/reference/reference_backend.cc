// The reference backend: one scalar loop per op, written from its definition. It is what the fast
// kernels are tested against, and in double what gradients are checked with. Sums run in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/backend.h"

namespace sandglass {
namespace {

template <class T>
class ReferenceBackend final : public Backend {
 public:
  std::string Name() const override { return "reference"; }
  std::string Description() const override {
    return std::string("reference: scalar loops, 1 thread, ") + (sizeof(T) == 8 ? "f64" : "f32");
  }
  DType dtype() const override { return DTypeOf<T>(); }

  void Matmul(View c, ConstView a, ConstView b, const MatmulSpec& spec) override {
    const bool a_turned = spec.a == Transpose::kYes;
    const bool b_turned = spec.b == Transpose::kYes;
    const int64_t inner = a_turned ? a.rows : a.cols;
    SANDGLASS_CHECK(c.rows == (a_turned ? a.cols : a.rows), "matmul rows");
    SANDGLASS_CHECK(c.cols == (b_turned ? b.rows : b.cols), "matmul columns");
    SANDGLASS_CHECK(inner == (b_turned ? b.cols : b.rows), "matmul inner size");
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.cols; ++j) {
        double sum = spec.into == Into::kAccumulate ? At(c, i, j) : 0.0;
        for (int64_t n = 0; n < inner; ++n) {
          sum += double{a_turned ? At(a, n, i) : At(a, i, n)} *
                 double{b_turned ? At(b, j, n) : At(b, n, j)};
        }
        At(c, i, j) = static_cast<T>(sum);
      }
    }
  }

  void Embed(View x, ConstView table, std::span<const int32_t> ids) override {
    SANDGLASS_CHECK(std::ssize(ids) == x.rows && x.cols == table.cols, "embedding sizes");
    for (int64_t m = 0; m < x.rows; ++m) {
      SANDGLASS_CHECK(ids[m] >= 0 && ids[m] < table.rows, "token id out of range");
      std::copy_n(table.Row<T>(ids[m]), x.cols, x.Row<T>(m));
    }
  }

  void EmbedBackward(View dtable, ConstView dx, std::span<const int32_t> ids) override {
    for (int64_t m = 0; m < dx.rows; ++m) {
      for (int64_t d = 0; d < dx.cols; ++d) At(dtable, ids[m], d) += At(dx, m, d);
    }
  }

  void Copy(View y, ConstView x) override {
    SANDGLASS_CHECK(y.rows == x.rows && y.cols == x.cols, "copy sizes");
    for (int64_t m = 0; m < x.rows; ++m) std::copy_n(x.Row<T>(m), x.cols, y.Row<T>(m));
  }

  void RmsNorm(View y, View inverse_rms, ConstView x, ConstView gain,
               const RmsNormSpec& spec) override {
    const int64_t width = x.cols / spec.groups;
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t g = 0; g < spec.groups; ++g) {
        const T* const x_segment = x.Row<T>(m) + g * width;
        const T* const gain_segment = GainOf(gain, g, width);
        double squares = 0.0;
        for (int64_t d = 0; d < width; ++d) squares += double{x_segment[d]} * x_segment[d];
        const double inverse = 1.0 / std::sqrt(squares / width + spec.epsilon);
        At(inverse_rms, m, g) = static_cast<T>(inverse);
        for (int64_t d = 0; d < width; ++d) {
          Put(At(y, m, g * width + d), spec.scale * gain_segment[d] * x_segment[d] * inverse,
              spec.into);
        }
      }
    }
  }

  void RmsNormBackward(View dx, View dgain, ConstView dy, ConstView x, ConstView inverse_rms,
                       ConstView gain, const RmsNormSpec& spec) override {
    // With xhat = x / rms: d/dx = (dxhat - xhat * mean(dxhat * xhat)) / rms.
    const int64_t width = x.cols / spec.groups;
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t g = 0; g < spec.groups; ++g) {
        const T* const gain_segment = GainOf(gain, g, width);
        T* const dgain_segment = dgain.Row<T>() + (gain_segment - gain.Row<T>());
        const double inverse = At(inverse_rms, m, g);
        double projection = 0.0;
        for (int64_t d = 0; d < width; ++d) {
          const int64_t col = g * width + d;
          const double xhat = At(x, m, col) * inverse;
          const double scaled_dy = spec.scale * At(dy, m, col);
          projection += scaled_dy * gain_segment[d] * xhat;
          dgain_segment[d] += static_cast<T>(scaled_dy * xhat);
        }
        projection /= width;
        for (int64_t d = 0; d < width; ++d) {
          const int64_t col = g * width + d;
          const double xhat = At(x, m, col) * inverse;
          const double dxhat = spec.scale * At(dy, m, col) * gain_segment[d];
          Put(At(dx, m, col), (dxhat - xhat * projection) * inverse, spec.into);
        }
      }
    }
  }

  void Rope(View x, ConstView cosines, ConstView sines, std::span<const int32_t> positions,
            const RopeSpec& spec) override {
    const int64_t width = x.cols / spec.heads;
    const double sign = spec.direction == RopeDirection::kForward ? 1.0 : -1.0;
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int h = 0; h < spec.heads; ++h) {
        T* const head = x.Row<T>(m) + h * width;
        for (int64_t i = 0; i < width / 2; ++i) {
          const double cosine = At(cosines, positions[m], i);
          const double sine = sign * At(sines, positions[m], i);
          const double first = head[i];
          const double second = head[i + width / 2];
          head[i] = static_cast<T>(first * cosine - second * sine);
          head[i + width / 2] = static_cast<T>(second * cosine + first * sine);
        }
      }
    }
  }

  void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
                 const AttentionSpec& spec) override {
    SANDGLASS_CHECK(ValidFirstKeys(spec), "first keys");
    std::vector<double> p(spec.kv_length);
    ForEachQuery(spec, [&](const Query& at) {
      double largest = -HUGE_VAL;
      for (int j = at.first_key; j < at.keys; ++j) {
        p[j] = spec.scale * Dot(q, at.row, at.q_col, k, at.kv_row + j, at.kv_col, spec.head_width);
        largest = std::max(largest, p[j]);
      }
      double sum = 0.0;
      for (int j = at.first_key; j < at.keys; ++j) sum += p[j] = std::exp(p[j] - largest);
      At(log_sum_exp, at.row, at.head) = static_cast<T>(largest + std::log(sum));
      for (int e = 0; e < spec.head_width; ++e) {
        double weighted = 0.0;
        for (int j = at.first_key; j < at.keys; ++j) {
          weighted += p[j] * At(v, at.kv_row + j, at.kv_col + e);
        }
        At(out, at.row, at.q_col + e) = static_cast<T>(weighted / sum);
      }
    });
  }

  void AttentionBackward(View dq, View dk, View dv, ConstView dout, ConstView out,
                         ConstView log_sum_exp, ConstView q, ConstView k, ConstView v,
                         const AttentionSpec& spec) override {
    SANDGLASS_CHECK(spec.query_length == spec.kv_length && spec.kv_length == spec.kv_stride,
                    "the backward pass is for training, without a cache");
    SANDGLASS_CHECK(ValidFirstKeys(spec), "first keys");
    Zero(dq);
    Zero(dk);
    Zero(dv);
    ForEachQuery(spec, [&](const Query& at) {
      // With P = softmax(S): dS = P * (dP - sum(dP * P)), and sum(dP * P) = dout . out.
      const double delta = Dot(dout, at.row, at.q_col, out, at.row, at.q_col, spec.head_width);
      for (int j = at.first_key; j < at.keys; ++j) {
        const int64_t kv_row = at.kv_row + j;
        const double score =
            spec.scale * Dot(q, at.row, at.q_col, k, kv_row, at.kv_col, spec.head_width);
        const double p = std::exp(score - At(log_sum_exp, at.row, at.head));
        const double dp = Dot(dout, at.row, at.q_col, v, kv_row, at.kv_col, spec.head_width);
        const double ds = p * (dp - delta) * spec.scale;
        for (int e = 0; e < spec.head_width; ++e) {
          At(dv, kv_row, at.kv_col + e) += static_cast<T>(p * At(dout, at.row, at.q_col + e));
          At(dq, at.row, at.q_col + e) += static_cast<T>(ds * At(k, kv_row, at.kv_col + e));
          At(dk, kv_row, at.kv_col + e) += static_cast<T>(ds * At(q, at.row, at.q_col + e));
        }
      }
    });
  }

  void SwiGlu(View h, ConstView gate_up) override {
    for (int64_t m = 0; m < h.rows; ++m) {
      for (int64_t f = 0; f < h.cols; ++f) {
        const double gate = At(gate_up, m, f);
        At(h, m, f) = static_cast<T>(gate * Sigmoid(gate) * At(gate_up, m, h.cols + f));
      }
    }
  }

  void SwiGluBackward(View dgate_up, View h, ConstView dh, ConstView gate_up) override {
    const int64_t width = dh.cols;
    for (int64_t m = 0; m < dh.rows; ++m) {
      for (int64_t f = 0; f < width; ++f) {
        const double gate = At(gate_up, m, f);
        const double up = At(gate_up, m, width + f);
        const double grad = At(dh, m, f);
        const double sigmoid = Sigmoid(gate);
        const double silu = gate * sigmoid;
        // silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))
        At(dgate_up, m, f) = static_cast<T>(grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)));
        At(dgate_up, m, width + f) = static_cast<T>(grad * silu);
        if (h) At(h, m, f) = static_cast<T>(silu * up);
      }
    }
  }

  LossSums CrossEntropy(std::span<double> token_loss, ConstView logits,
                        std::span<const int32_t> targets, const CrossEntropySpec& spec) override {
    LossSums sums;
    for (int64_t m = 0; m < logits.rows; ++m) {
      const TokenLoss token = LossOf(logits, m, targets[m], spec);
      sums += token.sums;
      if (!token_loss.empty()) token_loss[m] = token.sums.cross_entropy;
    }
    return sums;
  }

  LossSums CrossEntropyBackward(View dlogits, View logits, std::span<const int32_t> targets,
                                const CrossEntropySpec& spec) override {
    LossSums sums;
    for (int64_t m = 0; m < logits.rows; ++m) {
      const TokenLoss token = LossOf(logits, m, targets[m], spec);
      sums += token.sums;
      for (int64_t id = 0; id < logits.cols; ++id) {
        double grad = 0.0;
        if (token.sums.tokens > 0 && id < spec.vocabulary) {
          const double p = std::exp(At(logits, m, id) - token.log_sum_exp);
          grad = p * (1.0 + 2.0 * spec.z_loss * token.log_sum_exp) - (id == targets[m] ? 1.0 : 0.0);
        }
        At(dlogits, m, id) = static_cast<T>(spec.grad_scale * grad);
      }
    }
    return sums;
  }

  void Zero(View x) override {
    for (int64_t m = 0; m < x.rows; ++m) std::fill_n(x.Row<T>(m), x.cols, T{0});
  }

  void Blend(View y, ConstView x, const BlendSpec& spec) override {
    SANDGLASS_CHECK(y.rows == x.rows && y.cols == x.cols, "blend sizes");
    for (int64_t m = 0; m < y.rows; ++m) {
      for (int64_t d = 0; d < y.cols; ++d) {
        const double kept = spec.y == 0.0 ? 0.0 : spec.y * At(y, m, d);
        At(y, m, d) = static_cast<T>(kept + spec.x * At(x, m, d));
      }
    }
  }

  double SquaredNorm(ConstView x) override {
    double sum = 0.0;
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t d = 0; d < x.cols; ++d) sum += double{At(x, m, d)} * At(x, m, d);
    }
    return sum;
  }

  void AdamW(View values, View m, View v, ConstView grads, const AdamWSpec& spec) override {
    for (int64_t i = 0; i < values.cols; ++i) {
      const double grad = spec.grad_scale * At(grads, 0, i);
      const double first = spec.beta1 * At(m, 0, i) + (1.0 - spec.beta1) * grad;
      const double second = spec.beta2 * At(v, 0, i) + (1.0 - spec.beta2) * grad * grad;
      At(m, 0, i) = static_cast<T>(first);
      At(v, 0, i) = static_cast<T>(second);
      const double step =
          first / spec.correction1 / (std::sqrt(second / spec.correction2) + spec.epsilon);
      const double value = At(values, 0, i);
      At(values, 0, i) =
          static_cast<T>(value - spec.learning_rate * (step + spec.weight_decay * value));
    }
  }

 private:
  struct Query {
    int64_t row;  // in q and out
    int head;
    int64_t q_col;   // first column of the head in q and out
    int64_t kv_row;  // row of key 0 in k and v
    int64_t kv_col;  // first column of the head's key-value head
    int first_key;   // it sees keys [first_key, keys)
    int keys;
  };
  struct TokenLoss {
    LossSums sums;
    double log_sum_exp = 0.0;
  };

  static T& At(View view, int64_t row, int64_t col) { return view.Row<T>(row)[col]; }
  static T At(ConstView view, int64_t row, int64_t col) { return view.Row<T>(row)[col]; }

  static void Put(T& place, double value, Into into) {
    place = static_cast<T>(into == Into::kAccumulate ? place + value : value);
  }

  static double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

  // A gain as wide as a segment is shared by the segments; otherwise each has its own part.
  static const T* GainOf(ConstView gain, int64_t group, int64_t width) {
    return gain.Row<T>() + (gain.cols == width ? 0 : group * width);
  }

  static double Dot(ConstView a, int64_t a_row, int64_t a_col, ConstView b, int64_t b_row,
                    int64_t b_col, int width) {
    double sum = 0.0;
    for (int e = 0; e < width; ++e)
      sum += double{At(a, a_row, a_col + e)} * At(b, b_row, b_col + e);
    return sum;
  }

  template <class Action>
  static void ForEachQuery(const AttentionSpec& spec, const Action& action) {
    const int heads_per_kv = spec.heads / spec.kv_heads;
    for (int b = 0; b < spec.batch; ++b) {
      for (int h = 0; h < spec.heads; ++h) {
        for (int i = 0; i < spec.query_length; ++i) {
          const int64_t row = int64_t{b} * spec.query_length + i;
          action(Query{.row = row,
                       .head = h,
                       .q_col = int64_t{h} * spec.head_width,
                       .kv_row = int64_t{b} * spec.kv_stride,
                       .kv_col = int64_t{h / heads_per_kv} * spec.head_width,
                       .first_key = spec.first_keys.empty() ? 0 : spec.first_keys[row],
                       .keys = spec.kv_length - spec.query_length + i + 1});
        }
      }
    }
  }

  static TokenLoss LossOf(ConstView logits, int64_t m, int32_t target,
                          const CrossEntropySpec& spec) {
    if (target == kIgnoredTarget) return {};
    SANDGLASS_CHECK(target >= 0 && target < spec.vocabulary, "target out of range");
    double largest = -HUGE_VAL;
    for (int64_t id = 0; id < spec.vocabulary; ++id) {
      largest = std::max(largest, double{At(logits, m, id)});
    }
    double sum = 0.0;
    for (int64_t id = 0; id < spec.vocabulary; ++id) sum += std::exp(At(logits, m, id) - largest);
    const double log_sum_exp = largest + std::log(sum);
    return {{.cross_entropy = log_sum_exp - At(logits, m, target),
             .z_loss = log_sum_exp * log_sum_exp,
             .tokens = 1},
            log_sum_exp};
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(DType dtype) {
  SANDGLASS_CHECK(dtype != DType::kBF16, "the reference backend computes in f32 or f64");
  if (dtype == DType::kF64) return std::make_unique<ReferenceBackend<double>>();
  return std::make_unique<ReferenceBackend<float>>();
}

}  // namespace sandglass
