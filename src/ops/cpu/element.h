// From the element type of a view to a type of C++.
#pragma once

#include "base/error.h"
#include "tensor/bf16.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// Calls action with a value of the element type: float or BF16.
template <class Action>
void WithElement(DType dtype, const Action& action) {
  SANDGLASS_CHECK(dtype == DType::kF32 || dtype == DType::kBF16,
                  "cpu kernels are for f32 and bf16");
  dtype == DType::kF32 ? action(float()) : action(BF16());
}

}  // namespace sandglass::cpu
