// Token files that other programs wrote, read where they lie.
//
//   raw       ids without a header, as nanoGPT (uint16) and OLMo (.npy by name only) write them
//   numpy     a one-dimensional .npy array of integers (format versions 1 to 3)
//   llm.c     256 int32 of header: magic 20240520, version 1 (uint16) or 7 (uint32), count; then
//   ids megatron  .bin with ids, beside it .idx: "MMIDIDX\0\0", version 1, type code, counts,
//   tables
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/token_array.h"

namespace sandglass {

enum class TokenFormat { kAuto, kSandglass, kRaw, kNumpy, kLlmC, kMegatron };
template <>
struct EnumNames<TokenFormat> {
  static constexpr std::array<std::pair<TokenFormat, const char*>, 6> kNames{
      {{TokenFormat::kAuto, "auto"},
       {TokenFormat::kSandglass, "sandglass"},
       {TokenFormat::kRaw, "raw"},
       {TokenFormat::kNumpy, "numpy"},
       {TokenFormat::kLlmC, "llm.c"},
       {TokenFormat::kMegatron, "megatron"}}};
};

struct TokenFileOptions {
  TokenFormat format = TokenFormat::kAuto;
  std::optional<TokenType> type;  // of raw ids; by default uint16 if the vocabulary allows it
  int64_t vocabulary = 0;
};

// The format by what the file holds: its first bytes, a sidecar or an index beside it.
TokenFormat DetectTokenFormat(const std::string& path);

// Opens one file. Throws Error if it is damaged, has no ids, or has ids of another width than its
// format or `options` say.
std::unique_ptr<TokenStream> OpenTokenFile(const std::string& path,
                                           const TokenFileOptions& options);

// The files that a path or a pattern with * ? [] names, sorted. Throws Error if there are none.
std::vector<std::string> FindTokenFiles(const std::string& pattern);

// Opens a file, or all that a pattern with * ? [] names, in the order of their names.
std::unique_ptr<TokenStream> OpenTokenFiles(const std::string& pattern,
                                            const TokenFileOptions& options);

}  // namespace sandglass
