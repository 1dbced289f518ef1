// How signals propagate through a model: what every sub-layer reads from the residual stream, adds
// to it, and how gradients come back. All statistics are sums in double.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "model/model.h"

namespace sandglass {

// One sub-layer on one batch of M tokens. x is the stream before it, y = x + f(x) after it.
struct SubLayerSignals {
  std::string name;           // "layers.3.ffn.2"
  double stream_rms = 0.0;    // root mean square of the elements of x
  double added_rms = 0.0;     // of y - x
  double output_rms = 0.0;    // of y
  double share = 0.0;         // added_rms / output_rms
  double angle = 0.0;         // mean over tokens of the angle between x and y, in half turns (0..1)
  double gradient_rms = 0.0;  // over tokens, of the norm of d(sum of losses)/dx
  double weight_gradient_norm = 0.0;  // of d(mean loss)/d(the sub-layer's parameters)
  // Attention only. Means and maxima over sequences, heads and queries; scores as the softmax sees
  // them.
  std::optional<double> entropy;           // nats
  std::optional<double> relative_entropy;  // entropy / log(visible keys), where they are 2 or more
  std::optional<double> largest_logit;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "sub-layer");
    field("stream_rms", self.stream_rms, "RMS of the stream before it");
    field("added_rms", self.added_rms, "RMS of what it adds");
    field("output_rms", self.output_rms, "RMS of the stream after it");
    field("share", self.share, "added_rms / output_rms");
    field("angle", self.angle, "mean angle between the stream before and after, in half turns");
    field("gradient_rms", self.gradient_rms, "RMS over tokens of the gradient's norm before it");
    field("weight_gradient_norm", self.weight_gradient_norm, "norm of its parameters' gradient");
    field("entropy", self.entropy, "mean attention entropy, nats");
    field("relative_entropy", self.relative_entropy, "entropy / log(visible keys)");
    field("largest_logit", self.largest_logit, "largest attention score");
  }
};

struct Propagation {
  double loss = 0.0;  // mean cross-entropy of the batch, nats
  std::vector<SubLayerSignals> sub_layers;

  // How many times the stream has grown from the first sub-layer's input to the last one's output.
  double StreamGrowth() const;
  // Gradient at the first sub-layer's input over that at the last one's.
  double GradientGrowth() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("loss", self.loss, "mean cross-entropy of the batch, nats");
    field("sub_layers", self.sub_layers, "in the order of the list");
  }
};

// Runs the batch through the model, forward and backward; the gradient slab is overwritten. The
// model is allocated for training with Recompute::kCheap or kNothing. The time is that of a
// training step and of a plain loop over every attention score.
Propagation MeasurePropagation(Model& model, Backend& ops, const Batch& batch);

}  // namespace sandglass
