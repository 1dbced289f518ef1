// Muon (Jordan and others, 2024, kellerjordan.github.io/posts/muon): momentum whose update is
// replaced by a nearly orthogonal matrix with the same singular vectors.
//
//   momentum = mu momentum + gradient
//   update   = gradient + mu momentum  (Nesterov), or the momentum
//   weight  -= learning_rate (scale Orthogonalize(update) + weight_decay weight)
//
// Each logical matrix is orthogonalised by itself, also where several are packed into one parameter
// (ParamSpec::packed_rows).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"
#include "train/options.h"
#include "train/state_slab.h"

namespace sandglass {

struct MuonStep {
  double learning_rate = 0.0;
  double grad_scale = 1.0;
};

class Muon {
 public:
  Muon(const ParamTable& params, const OptimizerOptions& options,
       std::vector<const ParamSpec*> specs);

  void Step(Backend& ops, const MuonStep& step);

  const StateSlab& momentum() const { return momentum_; }

  // Elements of the buffers beside the momentum.
  static int64_t ScratchElements(const std::vector<const ParamSpec*>& specs);

 private:
  // The same rows of a parameter's value, gradient and momentum: one logical matrix.
  struct Matrix {
    View value;
    ConstView gradient;
    View momentum;
    double weight_decay;
    double learning_rate_factor;
  };
  void Update(Backend& ops, const Matrix& matrix, const MuonStep& step);

  OptimizerOptions options_;
  StateSlab momentum_;
  AlignedBytes scratch_;  // the update, and what Orthogonalize needs
};

// Buffers of Orthogonalize for a matrix of rows x cols: next [rows, cols], and two squares of the
// smaller side.
struct OrthogonalizeScratch {
  View next;
  View gram;
  View polynomial;
};

// Replaces x [rows, cols] by a matrix with the same singular vectors and singular values near one:
// x / |x|, then `iterations` times x <- a x + b (x x^T) x + c (x x^T)^2 x with the quintic that
// pushes singular values in (0, 1] towards one fastest (a, b, c = 3.4445, -4.7750, 2.0315, which
// ends between 0.7 and 1.2, not at one). A zero matrix stays zero.
void Orthogonalize(Backend& ops, View x, const OrthogonalizeScratch& scratch, int iterations);

}  // namespace sandglass
