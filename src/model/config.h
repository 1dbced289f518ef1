// Everything that defines a model: its shape and the choices beside it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/fields.h"
#include "model/shape.h"

namespace sandglass {

// Where the norm of a sub-layer stands: x + f(norm(x)) or x + norm(f(x)).
enum class NormPlacement { kPre, kPost };
// RMSNorm of queries and keys before RoPE: none, over each head (gain shared by the heads), or over
// the whole attention width (before the split into heads).
enum class QkNorm { kNone, kPerHead, kFullWidth };
enum class Embeddings { kTied, kUntied };
// Slower rotary frequencies, for contexts beyond those first trained on: all of them divided by a
// factor, or as Llama 3.1 does it (see RotaryFrequencies).
enum class RopeScalingKind { kLinear, kLlama3 };

// Ready-made choices; the shape is separate.
//   llama      pre-norm, no QK-norm, rope_theta 10000
//   hourglass  the same; named apart because K sub-MLPs narrower than d_model make the shape
//   olmo2      post-norm, full-width QK-norm, rope_theta 500000
enum class Family { kLlama, kHourglass, kOlmo2 };

template <>
struct EnumNames<NormPlacement> {
  static constexpr std::array<std::pair<NormPlacement, const char*>, 2> kNames{
      {{NormPlacement::kPre, "pre"}, {NormPlacement::kPost, "post"}}};
};
template <>
struct EnumNames<QkNorm> {
  static constexpr std::array<std::pair<QkNorm, const char*>, 3> kNames{
      {{QkNorm::kNone, "none"}, {QkNorm::kPerHead, "head"}, {QkNorm::kFullWidth, "full"}}};
};
template <>
struct EnumNames<Embeddings> {
  static constexpr std::array<std::pair<Embeddings, const char*>, 2> kNames{
      {{Embeddings::kTied, "tied"}, {Embeddings::kUntied, "untied"}}};
};
template <>
struct EnumNames<RopeScalingKind> {
  static constexpr std::array<std::pair<RopeScalingKind, const char*>, 2> kNames{
      {{RopeScalingKind::kLinear, "linear"}, {RopeScalingKind::kLlama3, "llama3"}}};
};
template <>
struct EnumNames<Family> {
  static constexpr std::array<std::pair<Family, const char*>, 3> kNames{
      {{Family::kLlama, "llama"}, {Family::kHourglass, "hourglass"}, {Family::kOlmo2, "olmo2"}}};
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kLinear;
  double factor = 1.0;
  // Of llama3 alone; the defaults are those of Llama 3.1.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;

  void Validate() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("kind", self.kind, "linear or llama3");
    field("factor", self.factor, "frequencies are divided by this, at least 1");
    field("low_freq_factor", self.low_freq_factor,
          "llama3: longer waves than original_max_position over this are scaled in full");
    field("high_freq_factor", self.high_freq_factor,
          "llama3: shorter waves than original_max_position over this are left as they are");
    field("original_max_position", self.original_max_position,
          "llama3: positions that the model was first trained on");
  }

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct ModelConfig {
  Shape shape;
  NormPlacement norm = NormPlacement::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  double norm_epsilon = 1e-5;
  Embeddings embeddings = Embeddings::kUntied;
  int vocabulary = 0;           // V, ids that may occur
  int vocabulary_multiple = 1;  // embedding rows are padded to a multiple of this
  double init_std = 0.02;
  // Residual-writing matrices start with init_std / sqrt(additions to the stream), L*(1+K) of them.
  bool depth_scaled_init = false;
  // Outputs of the pre-norms of layer l (from 1) are multiplied by 1/sqrt(l)
  // ("The Curse of Depth in Large Language Models", arXiv 2502.05795).
  bool depth_scaled_norm = false;
  double z_loss = 0.0;  // weight of mean (log sum exp)^2

  // Rows of the embedding and head matrices.
  int64_t padded_vocabulary() const;

  // Throws Error: what is wrong, what was expected, what to try.
  void Validate() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("shape", self.shape, "sizes, as L12-d768-a12x64-f8x384[-kv4]");
    field("norm", self.norm, "norm placement: pre (LLaMA, hourglass) or post (OLMo-2)");
    field("qk_norm", self.qk_norm, "norm of queries and keys: none, head or full");
    field("rope_theta", self.rope_theta, "base of the rotary frequencies");
    field("rope_scaling", self.rope_scaling,
          "slower rotary frequencies: {kind = \"linear\", factor = 2} or kind = \"llama3\" with "
          "low_freq_factor, high_freq_factor, original_max_position");
    field("norm_epsilon", self.norm_epsilon, "added to the mean square in RMSNorm");
    field("embeddings", self.embeddings, "tied or untied input and output embeddings");
    field("vocabulary", self.vocabulary, "token ids; 0 takes the tokenizer's");
    field("vocabulary_multiple", self.vocabulary_multiple, "pad embedding rows to a multiple");
    field("init_std", self.init_std, "standard deviation of the initial weights");
    field("depth_scaled_init", self.depth_scaled_init,
          "divide the initial residual-writing matrices by sqrt(L*(1+K))");
    field("depth_scaled_norm", self.depth_scaled_norm,
          "multiply pre-norm outputs of layer l by 1/sqrt(l)");
    field("z_loss", self.z_loss, "weight of mean (log sum exp)^2");
  }
};

// The family's choices with this shape and vocabulary.
ModelConfig FamilyConfig(Family family, const Shape& shape, int vocabulary);

}  // namespace sandglass
