// Matrix products: the only file that knows which library computes them.
#pragma once

#include <string>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// "oneDNN 2.6.3"
std::string GemmLibrary();

// Backend::Matmul in f32 on `threads` threads.
void Gemm(View c, ConstView a, ConstView b, const MatmulSpec& spec, int threads);

}  // namespace sandglass::cpu
