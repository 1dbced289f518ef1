#include "data/documents.h"

#include "data/samples.h"

namespace sandglass {

void SeparateDocuments(const DocumentSeparator& separator, std::span<const TokenId> ids,
                       std::span<TokenId> targets, std::span<int32_t> starts) {
  int32_t start = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    const bool before = separator.side == SeparatorSide::kBefore;
    if (before && ids[t] == separator.id) start = static_cast<int32_t>(t);
    starts[t] = start;
    if ((before ? targets[t] : ids[t]) == separator.id) targets[t] = kIgnored;
    if (!before && ids[t] == separator.id) start = static_cast<int32_t>(t) + 1;
  }
}

}  // namespace sandglass
