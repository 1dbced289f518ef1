// Whether a written model computes what the original does: it is loaded again from its file, and
// both run over the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "interop/export.h"
#include "interop/targets.h"
#include "model/model.h"

namespace sandglass {

// Tokens of each sequence: positions 0 to 200.
inline constexpr int kVerifiedPositions = 201;

// One sequence of tokens that both models ran over.
struct VerifiedSequence {
  std::string name;  // "random ids", "text"
  int64_t positions = 0;
  double largest = 0.0;  // |difference| of logits to the original rounded to the file's type
  double largest_rounding = 0.0;  // the same to the original as it is: what the type costs
  double agreement = 0.0;  // share of positions with the same likeliest token as the original
};

struct Verification {
  bool sound = false;
  double tolerance = 0.0;  // of `largest`
  std::vector<VerifiedSequence> sequences;
  // Where the residual stream first differs by more than rounding explains: "layers.3.ffn.0", with
  // what differs there if that is known. Empty if sound.
  std::string first_drift;
};

// Loads the model that `job` wrote at `path` and compares it with `original`, whose values are
// rounded in place to the type that the file holds them in, so export first. `progress`, which may
// be empty and may throw, gets the share of the work that is done, up to 1. Throws Error if the
// file cannot be loaded.
Verification VerifyExport(Model& original, Backend& backend, const ExportJob& job,
                          const std::string& path,
                          const std::function<void(double)>& progress = {});

}  // namespace sandglass
