// Whether a freshly initialised model starts as its configuration says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "model/model.h"

namespace sandglass {

// One matrix that writes to the residual stream: W_o of an attention, W_down of a sub-MLP.
struct InitialMatrix {
  std::string name;
  int64_t elements = 0;
  double std = 0.0;        // root mean square of its elements
  double deviation = 0.0;  // (std / stated - 1) in standard errors, 1 / sqrt(2 elements)
  bool holds = false;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "parameter");
    field("elements", self.elements, "");
    field("std", self.std, "measured standard deviation");
    field("deviation", self.deviation, "difference to the stated one in standard errors");
    field("holds", self.holds, "whether that is chance");
  }
};

struct InitCheck {
  std::string rule;       // "0.02 / sqrt(L*(1+K)) with L*(1+K) = 20"
  double stated = 0.0;    // the standard deviation that follows from it
  int64_t additions = 0;  // to the stream, L*(1+K) by the shape
  std::vector<InitialMatrix> matrices;

  // Every matrix is as stated, and there is one for each addition.
  bool holds() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("rule", self.rule, "how residual-writing matrices start");
    field("stated", self.stated, "the standard deviation by that rule");
    field("additions", self.additions, "additions to the stream, L*(1+K)");
    field("matrices", self.matrices, "every residual-writing matrix");
  }
};

// The rule is taken from the configuration and the shape alone, not from what the parameters were
// declared with. More than five standard errors are no chance (one matrix in two million).
InitCheck CheckInit(const ModelConfig& config, const ParamTable& params);

}  // namespace sandglass
