// NumPy's array files (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <string>

#include "tensor/view.h"

namespace sandglass {

// Writes a contiguous matrix of f32 atomically, as an array [rows, cols] of '<f4'.
void WriteNpy(const std::string& path, ConstView matrix);

}  // namespace sandglass
