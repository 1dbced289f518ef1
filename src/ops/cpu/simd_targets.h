// The instruction sets that kernels are compiled for. Include before any Highway header, wherever
// kernels or the list of their targets are needed: all files must agree.
#pragma once

// Left out because they would only cost compile time: SSSE3 (nothing here gains from it over the
// scalar fallback's audience, machines older than SSE4) and AVX3_DL (no kernel uses its
// instructions). Left out because their vectors have no size known to the compiler, which the
// register tiles of attention need: SVE and RVV.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
