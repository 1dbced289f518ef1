// Models that other programs store as blocks of at most one attention and one MLP each: L layers of
// K sub-MLPs are L*K blocks, of which every K-th has attention.
#pragma once

#include <string>
#include <vector>

#include "model/shape.h"

namespace sandglass {

struct BlockSizes {
  int64_t heads = 0;  // 0: no attention
  int64_t kv_heads = 0;
  int64_t ffn = 0;  // 0: no MLP
};

// Sets layers, heads, kv_heads and ffn of a shape from its blocks; a layer begins wherever there is
// attention. Throws Error, naming the block at fault and `where`, if the layers are not all alike.
void RegroupBlocks(const std::vector<BlockSizes>& blocks, Shape& shape, const std::string& where);

}  // namespace sandglass
