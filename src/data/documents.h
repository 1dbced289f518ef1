// Where documents begin in a stream, and how a sequence is cut into them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "data/tokenizer.h"

namespace sandglass {

template <class E>
struct EnumNames;  // base/fields.h

// Whether the separator is the first token of each document (own shards, llm.c) or its last one
// (nanoGPT, OLMo, Megatron).
enum class SeparatorSide { kBefore, kAfter };
template <>
struct EnumNames<SeparatorSide> {
  static constexpr std::array<std::pair<SeparatorSide, const char*>, 2> kNames{
      {{SeparatorSide::kBefore, "before"}, {SeparatorSide::kAfter, "after"}}};
};

struct DocumentSeparator {
  TokenId id = 0;
  SeparatorSide side = SeparatorSide::kBefore;
};

// Cuts one sequence of T tokens into its documents: starts[t] is where the document of token t
// begins (0 for one that began before the sequence), and where a document ends, the target, which
// is the first token of the next one, becomes kIgnored.
void SeparateDocuments(const DocumentSeparator& separator, std::span<const TokenId> ids,
                       std::span<TokenId> targets, std::span<int32_t> starts);

}  // namespace sandglass
