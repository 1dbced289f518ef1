#include "model/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "model/init.h"

namespace sandglass {

Attention::Attention(const ModelConfig& config, int layer)
    : name_(fmt::format("layers.{}.attention", layer)),
      shape_(config.shape),
      qk_norm_(config.qk_norm),
      norm_epsilon_(config.norm_epsilon),
      init_(MatrixInit(config)),
      output_init_(ResidualOutputInit(config)),
      residual_(config, layer) {}

void Attention::Declare(ParamTable& params) {
  const int64_t q_width = shape_.attention_width();
  const int64_t kv_width = shape_.kv_width();
  residual_.Declare(params, name_ + ".norm");
  params
      .Declare(w_qkv_, name_ + ".w_qkv", ParamRole::kAttention, q_width + 2 * kv_width,
               shape_.d_model, init_)
      .packed_rows = {q_width, kv_width, kv_width};
  params.Declare(w_o_, name_ + ".w_o", ParamRole::kAttention, shape_.d_model, q_width,
                 output_init_);
  if (qk_norm_ == QkNorm::kNone) return;
  const bool per_head = qk_norm_ == QkNorm::kPerHead;
  const auto declare_gain = [&](Param& gain, const char* suffix, int64_t width) {
    params.Declare(gain, name_ + suffix, ParamRole::kQkNorm, 1,
                   per_head ? shape_.head_width : width, {ParamInit::Kind::kOnes});
  };
  declare_gain(q_gain_, ".q_norm", q_width);
  declare_gain(k_gain_, ".k_norm", kv_width);
}

void Attention::Book(MemoryPlan& plan, const Capacity& capacity) {
  const bool trains = capacity.purpose == Purpose::kTrain;
  const int64_t q_width = shape_.attention_width();
  const int64_t kv_width = shape_.kv_width();
  const auto book = [&](View& view, int64_t cols, Lifetime lifetime) {
    plan.Book(view, capacity.tokens(), cols, capacity.activation_dtype(), lifetime);
  };
  const auto book_statistic = [&](View& view, int64_t cols, Lifetime lifetime) {
    plan.Book(view, capacity.tokens(), cols, capacity.dtype, lifetime);
  };
  const Lifetime kept = trains ? Lifetime::kSaved : Lifetime::kScratch;
  plan.BeginScratchScope();
  residual_.Book(plan, capacity);
  book(qkv_, q_width + 2 * kv_width, kept);
  if (qk_norm_ != QkNorm::kNone) {
    keeps_normed_ = capacity.recompute != Recompute::kCheap;
    book(normed_, q_width + kv_width, keeps_normed_ ? kept : Lifetime::kScratch);
    book_statistic(q_inverse_rms_, QkNormSpec(shape_.heads).groups, kept);
    book_statistic(k_inverse_rms_, QkNormSpec(shape_.kv_heads).groups, kept);
  }
  book(out_, q_width, kept);
  book_statistic(log_sum_exp_, shape_.heads, kept);
  if (trains) {
    book(dout_, q_width, Lifetime::kScratch);
    book(dqkv_, q_width + 2 * kv_width, Lifetime::kScratch);
  }
  caches_ = capacity.cache_length > 0;
  if (caches_) {
    for (View* cache : {&k_cache_, &v_cache_}) {
      plan.Book(*cache, capacity.cache_length, kv_width, capacity.activation_dtype(),
                Lifetime::kState);
    }
  }
}

void Attention::Forward(const Pass& pass, View x) {
  const View qkv = qkv_.Top(pass.tokens());
  const View out = out_.Top(pass.tokens());
  const View log_sum_exp = log_sum_exp_.Top(pass.tokens());

  const ConstView n = residual_.Enter(pass, x);
  pass.ops.Matmul(qkv, n, w_qkv_.operand, {.b = Transpose::kYes});
  const auto [q, k, v] = NormAndRotate(pass, Split(qkv));
  if (caches_) {
    AppendToCache(pass, {q, k, v});
    pass.ops.Attention(out, log_sum_exp, q, k_cache_, v_cache_, Spec(pass));
  } else {
    pass.ops.Attention(out, log_sum_exp, q, k, v, Spec(pass));
  }
  residual_.Leave(pass, x, out, w_o_);
}

void Attention::Backward(const Pass& pass, View dx) {
  const View out = out_.Top(pass.tokens());
  const View dout = dout_.Top(pass.tokens());
  const View dqkv = dqkv_.Top(pass.tokens());
  const View log_sum_exp = log_sum_exp_.Top(pass.tokens());
  const Heads raw = Split(qkv_.Top(pass.tokens()));
  const Heads gradient = Split(dqkv);

  const ConstView doutput = residual_.LeaveBackward(pass, dx);
  pass.ops.Matmul(dout, doutput, w_o_.operand, {});
  pass.ops.Matmul(w_o_.grad, doutput, out, {.a = Transpose::kYes, .into = Into::kAccumulate});
  // Without QK-norm the forward pass rotated q and k in place; with it they are computed again
  // unless they were kept.
  Heads seen = raw;
  if (qk_norm_ != QkNorm::kNone) {
    const View normed = normed_.Top(pass.tokens());
    seen.q = normed.Columns(0, raw.q.cols);
    seen.k = normed.Columns(raw.q.cols, raw.k.cols);
    if (!keeps_normed_) NormAndRotate(pass, raw);
  }
  pass.ops.AttentionBackward(gradient.q, gradient.k, gradient.v, dout, out, log_sum_exp, seen.q,
                             seen.k, seen.v, Spec(pass));
  NormAndRotateBackward(pass, gradient, raw);
  residual_.EnterBackward(pass, dx, dqkv, w_qkv_);
}

std::optional<AttentionInputs> Attention::attention_inputs(const Pass& pass) const {
  const Heads raw = Split(qkv_.Top(pass.tokens()));
  if (qk_norm_ == QkNorm::kNone) return AttentionInputs{raw.q, raw.k, Spec(pass)};
  const View normed = normed_.Top(pass.tokens());
  return AttentionInputs{normed.Columns(0, raw.q.cols), normed.Columns(raw.q.cols, raw.k.cols),
                         Spec(pass)};
}

Attention::Heads Attention::Split(View qkv) const {
  const int64_t q_width = shape_.attention_width();
  const int64_t kv_width = shape_.kv_width();
  return {qkv.Columns(0, q_width), qkv.Columns(q_width, kv_width),
          qkv.Columns(q_width + kv_width, kv_width)};
}

Attention::Heads Attention::NormAndRotate(const Pass& pass, const Heads& raw) {
  Heads heads = raw;
  if (qk_norm_ != QkNorm::kNone) {
    const int64_t m = pass.tokens();
    heads.q = normed_.Top(m).Columns(0, raw.q.cols);
    heads.k = normed_.Top(m).Columns(raw.q.cols, raw.k.cols);
    pass.ops.RmsNorm(heads.q, q_inverse_rms_.Top(m), raw.q, q_gain_.value,
                     QkNormSpec(shape_.heads));
    pass.ops.RmsNorm(heads.k, k_inverse_rms_.Top(m), raw.k, k_gain_.value,
                     QkNormSpec(shape_.kv_heads));
  }
  Rotate(pass, heads, RopeDirection::kForward);
  return heads;
}

void Attention::NormAndRotateBackward(const Pass& pass, const Heads& gradient, const Heads& raw) {
  Rotate(pass, gradient, RopeDirection::kBackward);
  if (qk_norm_ == QkNorm::kNone) return;
  const int64_t m = pass.tokens();
  pass.ops.RmsNormBackward(gradient.q, q_gain_.grad, gradient.q, raw.q, q_inverse_rms_.Top(m),
                           q_gain_.value, QkNormSpec(shape_.heads));
  pass.ops.RmsNormBackward(gradient.k, k_gain_.grad, gradient.k, raw.k, k_inverse_rms_.Top(m),
                           k_gain_.value, QkNormSpec(shape_.kv_heads));
}

void Attention::Rotate(const Pass& pass, const Heads& heads, RopeDirection direction) const {
  pass.ops.Rope(heads.q, pass.cosines, pass.sines, pass.positions, {shape_.heads, direction});
  pass.ops.Rope(heads.k, pass.cosines, pass.sines, pass.positions, {shape_.kv_heads, direction});
}

RmsNormSpec Attention::QkNormSpec(int heads) const {
  return {.epsilon = norm_epsilon_, .groups = qk_norm_ == QkNorm::kPerHead ? heads : 1};
}

void Attention::AppendToCache(const Pass& pass, const Heads& heads) {
  SANDGLASS_CHECK(pass.batch == 1, "the cache holds one sequence");
  pass.ops.Copy(k_cache_.Rows(pass.cached, pass.length), heads.k);
  pass.ops.Copy(v_cache_.Rows(pass.cached, pass.length), heads.v);
}

AttentionSpec Attention::Spec(const Pass& pass) const {
  const int kv_length = pass.cached + pass.length;
  return {.batch = pass.batch,
          .query_length = pass.length,
          .kv_length = kv_length,
          .kv_stride = caches_ ? static_cast<int>(k_cache_.rows) : kv_length,
          .heads = shape_.heads,
          .kv_heads = shape_.kv_heads,
          .head_width = shape_.head_width,
          .scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_width)),
          .first_keys = pass.first_keys};
}

}  // namespace sandglass
