// No library: products of our own alone.
#include "ops/cpu/gemm.h"

namespace sandglass::cpu {

std::unique_ptr<GemmLibrary> MakeGemmLibrary(int) { return nullptr; }

std::string GemmLibraryName() { return ""; }

std::string WhyNoBF16() { return "this program was built without a library of bf16 products"; }

}  // namespace sandglass::cpu
