// Optimizer state: one value for each element of some of the parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/param_table.h"

namespace sandglass {

// The values of parameters that follow each other in the table follow each other here at the same
// distances, so that one op can run over several.
class StateSlab {
 public:
  StateSlab(std::vector<const ParamSpec*> specs, DType dtype);

  static int64_t Elements(const std::vector<const ParamSpec*>& specs);

  const std::vector<const ParamSpec*>& specs() const { return specs_; }
  // Where the values of specs()[i] begin.
  int64_t offset(size_t i) const { return offsets_[i]; }
  View values() const { return {bytes_.data(), dtype_, 1, elements_, elements_}; }
  // The values of specs()[i], as [rows, cols].
  View Of(size_t i) const;

 private:
  std::vector<const ParamSpec*> specs_;
  std::vector<int64_t> offsets_;
  DType dtype_;
  int64_t elements_;
  AlignedBytes bytes_;
};

}  // namespace sandglass
