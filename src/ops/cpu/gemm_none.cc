// No library: products of our own alone.
#include "ops/cpu/gemm.h"

namespace sandglass::cpu {

std::unique_ptr<GemmLibrary> MakeGemmLibrary(int) { return nullptr; }

std::string GemmLibraryName() { return ""; }

bool LibraryHasBF16() { return false; }
bool LibraryHasBF16Tiles() { return false; }

}  // namespace sandglass::cpu
