// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/random.h"
#include "base/testing.h"
#include "data/tokenizer.h"

namespace sandglass {

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::string TestData(const std::string& name) {
  return std::string(SANDGLASS_SOURCE_DIR) + "/src/data/testdata/" + name;
}

// Bytes of any value, mixed with pieces of words and of multi-byte characters.
inline std::string RandomBytes(RandomStream& random, size_t max_pieces) {
  constexpr std::string_view kPieces[] = {
      "the ", " wa",          "ters", "\xC3\xA9", "\xE6\xBC\xA2",
      "\xF0", "\x9F\x98\x80", "123",  "\r\n",     "<|endoftext|>"};
  std::string bytes;
  for (uint64_t pieces = random.NextBelow(max_pieces + 1); pieces > 0; --pieces) {
    const uint64_t kind = random.NextBelow(2 * std::size(kPieces));
    if (kind < std::size(kPieces)) {
      bytes += kPieces[kind];
    } else {
      bytes += static_cast<char>(random.NextBelow(256));
    }
  }
  return bytes;
}

}  // namespace sandglass
