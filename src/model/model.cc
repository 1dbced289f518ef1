#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/attention.h"
#include "model/gated_mlp.h"
#include "model/init.h"
#include "model/rotary.h"

namespace sandglass {
namespace {

// Rows of the head computed at a time: enough that reading the head's matrix once per chunk costs
// little beside the product, few enough that the logits (8 MiB in f32) stay in a large cache.
int64_t HeadChunkRows(int64_t tokens, int64_t padded_vocabulary) {
  constexpr int64_t kChunkElements = int64_t{1} << 21;
  constexpr int64_t kMinimumRows = 256;
  return std::min(tokens, std::max(kMinimumRows, kChunkElements / padded_vocabulary));
}

}  // namespace

Model::Model(const ModelConfig& config, const Capacity& capacity)
    : config_(config), capacity_(capacity) {
  config.Validate();
  const Shape& shape = config.shape;
  for (int layer = 0; layer < shape.layers; ++layer) {
    sub_layers_.push_back(std::make_unique<Attention>(config, layer));
    for (int index = 0; index < shape.sub_mlps(); ++index) {
      sub_layers_.push_back(std::make_unique<GatedMlp>(config, layer, index));
    }
  }

  const int64_t padded = config.padded_vocabulary();
  params_.Declare(embedding_, "embedding", ParamRole::kEmbedding, padded, shape.d_model,
                  MatrixInit(config));
  for (const auto& sub_layer : sub_layers_) sub_layer->Declare(params_);
  params_.Declare(final_gain_, "final_norm", ParamRole::kNorm, 1, shape.d_model,
                  {ParamInit::Kind::kOnes});
  if (config.embeddings == Embeddings::kUntied) {
    params_.Declare(head_, "head", ParamRole::kHead, padded, shape.d_model, MatrixInit(config));
  }

  const int64_t tokens = capacity.tokens();
  const int64_t positions = std::max(capacity.length, capacity.cache_length);
  const auto book = [&](View& view, int64_t rows, int64_t cols, Lifetime lifetime) {
    memory_.Book(view, rows, cols, capacity.dtype, lifetime);
  };
  book(cosines_, positions, shape.head_width / 2, Lifetime::kState);
  book(sines_, positions, shape.head_width / 2, Lifetime::kState);
  book(x_, tokens, shape.d_model, Lifetime::kState);
  book(inverse_rms_, tokens, 1, Lifetime::kState);
  memory_.Book(normed_, tokens, shape.d_model, capacity.activation_dtype(), Lifetime::kState);
  book(logits_, HeadChunkRows(tokens, padded), padded, Lifetime::kScratch);
  const bool trains = capacity.purpose == Purpose::kTrain;
  if (trains) {
    book(dx_, tokens, shape.d_model, Lifetime::kState);
    if (capacity.rounds_activations()) {
      memory_.Book(dlogits_, logits_.rows, padded, capacity.activation_dtype(), Lifetime::kScratch);
    }
  }
  recomputes_layers_ = trains && capacity.recompute == Recompute::kLayer;
  if (recomputes_layers_) {
    book(layer_inputs_, shape.layers * tokens, shape.d_model, Lifetime::kSaved);
  }
  for (int layer = 0; layer < shape.layers; ++layer) {
    if (recomputes_layers_) memory_.BeginSavedScope();
    for (const auto& sub_layer : Layer(layer)) sub_layer->Book(memory_, capacity);
  }
}

Model::~Model() = default;

void Model::Allocate(Backend& backend) {
  SANDGLASS_CHECK(backend.dtype() == capacity_.dtype, "backend of another element type");
  ops_ = &backend;
  params_.Grant(capacity_.dtype, capacity_.purpose == Purpose::kTrain,
                capacity_.activation_dtype());
  arena_ = Arena(memory_);
  positions_.resize(capacity_.tokens());
  FillRotaryTables(cosines_, sines_, config_);
}

Pass Model::BeginPass(const Batch& sequences, int cached) {
  const auto [batch, length] = std::pair(sequences.batch, sequences.length);
  const std::span<const int32_t> starts = sequences.starts;
  SANDGLASS_CHECK(ops_ != nullptr, "the model has no memory yet: call Allocate");
  SANDGLASS_CHECK(int64_t{batch} * length <= capacity_.tokens(), "batch beyond the capacity");
  SANDGLASS_CHECK(cached + length <= cosines_.rows, "position beyond the capacity");
  SANDGLASS_CHECK(starts.empty() || (cached == 0 && std::ssize(starts) == int64_t{batch} * length),
                  "one start per token, and none while decoding");
  for (int b = 0; b < batch; ++b) {
    for (int t = 0; t < length; ++t) {
      const int m = b * length + t;
      positions_[m] = cached + t - (starts.empty() ? 0 : starts[m]);
    }
  }
  return {.ops = *ops_,
          .batch = batch,
          .length = length,
          .cached = cached,
          .positions = {positions_.data(), static_cast<size_t>(batch) * length},
          .cosines = cosines_,
          .sines = sines_,
          .first_keys = starts};
}

std::span<const std::unique_ptr<SubLayer>> Model::Layer(int layer) const {
  const size_t size = 1 + config_.shape.sub_mlps();
  return std::span(sub_layers_).subspan(layer * size, size);
}

View Model::LayerInput(const Pass& pass, int layer) const {
  return layer_inputs_.Rows(layer * capacity_.tokens(), pass.tokens());
}

View Model::ForwardStream(const Pass& pass, std::span<const int32_t> ids) {
  const View x = x_.Top(pass.tokens());
  const View normed = normed_.Top(pass.tokens());
  // Weights may have changed since the last pass. Rounding them takes a hundredth of a training
  // step; within a sequence that is decoded token by token they stay.
  if (params_.operands() && pass.cached == 0) {
    pass.ops.Copy(params_.operands(), params_.values());
  }
  pass.ops.Embed(x, embedding_.value, ids);
  for (int layer = 0; layer < config_.shape.layers; ++layer) {
    if (recomputes_layers_) pass.ops.Copy(LayerInput(pass, layer), x);
    for (const auto& sub_layer : Layer(layer)) {
      if (observer_ != nullptr) observer_->BeforeForward(pass, *sub_layer, x);
      sub_layer->Forward(pass, x);
      if (observer_ != nullptr) observer_->AfterForward(pass, *sub_layer, x);
    }
  }
  pass.ops.RmsNorm(normed, inverse_rms_.Top(pass.tokens()), x, final_gain_.value, final_norm());
  return normed;
}

LossSums Model::Loss(const Batch& batch, std::span<double> token_loss) {
  const Pass pass = BeginPass(batch, 0);
  const View normed = ForwardStream(pass, batch.ids);
  LossSums sums;
  ForEachHeadChunk(pass.tokens(), [&](int64_t begin, int64_t count) {
    const View logits = logits_.Top(count);
    pass.ops.Matmul(logits, normed.Rows(begin, count), head().operand, {.b = Transpose::kYes});
    sums +=
        pass.ops.CrossEntropy(token_loss.empty() ? token_loss : token_loss.subspan(begin, count),
                              logits, batch.targets.subspan(begin, count), LossSpec(0.0));
  });
  return sums;
}

LossSums Model::LossAndGradients(const Batch& batch, double grad_scale) {
  SANDGLASS_CHECK(capacity_.purpose == Purpose::kTrain, "this model was not booked for training");
  const Pass pass = BeginPass(batch, 0);
  const View normed = ForwardStream(pass, batch.ids);
  const View dx = dx_.Top(pass.tokens());
  LossSums sums;
  ForEachHeadChunk(pass.tokens(), [&](int64_t begin, int64_t count) {
    const View logits = logits_.Top(count);
    const View n = normed.Rows(begin, count);
    const View dlogits = dlogits_ ? dlogits_.Top(count) : logits;
    pass.ops.Matmul(logits, n, head().operand, {.b = Transpose::kYes});
    sums += pass.ops.CrossEntropyBackward(dlogits, logits, batch.targets.subspan(begin, count),
                                          LossSpec(grad_scale));
    pass.ops.Matmul(head().grad, dlogits, n, {.a = Transpose::kYes, .into = Into::kAccumulate});
    pass.ops.Matmul(dx.Rows(begin, count), dlogits, head().operand, {});
  });
  pass.ops.RmsNormBackward(dx, final_gain_.grad, dx, x_.Top(pass.tokens()),
                           inverse_rms_.Top(pass.tokens()), final_gain_.value, final_norm());
  for (int layer = config_.shape.layers - 1; layer >= 0; --layer) {
    // The last layer's results are still there from the forward pass.
    if (recomputes_layers_ && layer < config_.shape.layers - 1) ForwardAgain(pass, layer);
    const auto sub_layers = Layer(layer);
    for (auto it = sub_layers.rbegin(); it != sub_layers.rend(); ++it) {
      SubLayer& sub_layer = **it;
      sub_layer.Backward(pass, dx);
      if (observer_ != nullptr) observer_->AfterBackward(pass, sub_layer, dx);
    }
  }
  pass.ops.EmbedBackward(embedding_.grad, dx, batch.ids);
  return sums;
}

void Model::ForwardAgain(const Pass& pass, int layer) {
  const View x = x_.Top(pass.tokens());
  pass.ops.Copy(x, LayerInput(pass, layer));
  for (const auto& sub_layer : Layer(layer)) sub_layer->Forward(pass, x);
}

void Model::Logits(const Batch& batch, View logits) {
  const Pass pass = BeginPass(batch, 0);
  const View normed = ForwardStream(pass, batch.ids);
  HeadLogits(normed, logits);
}

void Model::Decode(std::span<const int32_t> ids, View logits) {
  SANDGLASS_CHECK(capacity_.cache_length > 0, "this model was not booked for decoding");
  while (!ids.empty()) {
    const auto part = ids.first(std::min<size_t>(ids.size(), capacity_.length));
    ids = ids.subspan(part.size());
    const Pass pass = BeginPass({1, static_cast<int>(part.size()), part, {}}, cached_);
    const View normed = ForwardStream(pass, part);
    cached_ += static_cast<int>(part.size());
    if (ids.empty()) HeadLogits(normed.Rows(normed.rows - 1, 1), logits);
  }
}

void Model::HeadLogits(ConstView normed, View logits) {
  SANDGLASS_CHECK(logits.rows == normed.rows && logits.cols == config_.vocabulary, "logits size");
  ForEachHeadChunk(normed.rows, [&](int64_t begin, int64_t count) {
    const View chunk = logits_.Top(count);
    ops_->Matmul(chunk, normed.Rows(begin, count), head().operand, {.b = Transpose::kYes});
    ops_->Copy(logits.Rows(begin, count), chunk.Columns(0, config_.vocabulary));
  });
}

template <class Action>
void Model::ForEachHeadChunk(int64_t tokens, const Action& action) const {
  for (int64_t begin = 0; begin < tokens; begin += logits_.rows) {
    action(begin, std::min(logits_.rows, tokens - begin));
  }
}

CrossEntropySpec Model::LossSpec(double grad_scale) const {
  return {.vocabulary = config_.vocabulary, .z_loss = config_.z_loss, .grad_scale = grad_scale};
}

}  // namespace sandglass
