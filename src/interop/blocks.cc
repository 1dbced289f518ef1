#include "interop/blocks.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"

namespace sandglass {

void RegroupBlocks(const std::vector<BlockSizes>& blocks, Shape& shape, const std::string& where) {
  const auto refuse = [&](size_t block, const std::string& what) {
    throw Error({.what = fmt::format("block {}: {}", block, what),
                 .where = where,
                 .expected = "layers that are all alike: one attention and the same MLPs"});
  };
  if (blocks.empty() || blocks.front().heads == 0) refuse(0, "it has no attention");
  std::vector<int> widths;  // of the layer that is being read
  const auto finish_layer = [&](size_t next_block) {
    if (shape.layers == 0) shape.ffn = widths;
    if (widths != shape.ffn) {
      refuse(next_block - 1,
             fmt::format("the layer that ends here has {} MLPs of widths {}, the first layer {} of "
                         "widths {}",
                         widths.size(), fmt::join(widths, " "), shape.ffn.size(),
                         fmt::join(shape.ffn, " ")));
    }
    ++shape.layers;
    widths.clear();
  };
  shape.layers = 0;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockSizes& block = blocks[i];
    if (block.heads < 0 || block.kv_heads < 0 || block.ffn < 0 || block.heads > kMost ||
        block.kv_heads > kMost || block.ffn > kMost) {
      refuse(i, "a size is out of range");
    }
    if (block.ffn == 0) refuse(i, "it has no MLP");
    if (block.heads > 0) {
      if (block.kv_heads == 0) refuse(i, "linear attention cannot be represented");
      if (i > 0) finish_layer(i);
      if (i == 0) {
        shape.heads = static_cast<int>(block.heads);
        shape.kv_heads = static_cast<int>(block.kv_heads);
      } else if (block.heads != shape.heads || block.kv_heads != shape.kv_heads) {
        refuse(i, fmt::format("{} heads and {} key-value heads, the first block {} and {}",
                              block.heads, block.kv_heads, shape.heads, shape.kv_heads));
      }
    }
    widths.push_back(static_cast<int>(block.ffn));
  }
  finish_layer(blocks.size());
}

}  // namespace sandglass
