// Vector kernels of causal grouped-query attention, after the blocked scheme of FlashAttention
// (Dao et al., arXiv 2205.14135; backward: Dao, arXiv 2307.08691): scores exist only for one block
// of queries and one of keys at a time.
//
// The query heads that share a key-value head are treated as more query rows of it: row r of a
// (batch element, key-value head) is query r / G of head r % G, with G = heads / kv_heads. One
// packed copy of keys and values then serves all of them, and decoding with G > 1 fills vectors
// that a single query would leave empty.
#pragma once

#include <cstdint>

#include "ops/backend.h"
#include "tensor/view.h"

namespace sandglass::cpu {

// Part of an attention op: every stride-th block of query rows, from `first` on, of one key-value
// head of one batch element.
struct AttentionSlice {
  int batch = 0;
  int kv_head = 0;
  int first = 0;
  int stride = 1;
};

// Blocks of query rows of one key-value head.
int64_t AttentionRowBlocks(const AttentionSpec& spec);

// Floats of scratch memory, on a cache-line boundary, that one call needs.
int64_t AttentionWorkspace(const AttentionSpec& spec);
int64_t AttentionBackwardWorkspace(const AttentionSpec& spec);

// Backend::Attention for one slice. Slices write different rows and may run side by side.
void Attention(View out, View log_sum_exp, ConstView q, ConstView k, ConstView v,
               const AttentionSpec& spec, const AttentionSlice& slice, float* workspace);

struct AttentionGradients {
  View dq, dk, dv;
};
struct AttentionSaved {
  ConstView dout, out, log_sum_exp, q, k, v;
};
// Backend::AttentionBackward for a whole key-value head of a batch element.
void AttentionBackward(const AttentionGradients& gradients, const AttentionSaved& saved,
                       const AttentionSpec& spec, int batch, int kv_head, float* workspace);

}  // namespace sandglass::cpu
