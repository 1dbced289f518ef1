#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/file.h"

namespace sandglass {

uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string HashHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

uint64_t HashFile(const std::string& path) {
  const RandomAccessFile file(path);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  // Read rather than mapped: pages of a mapping count as memory of the process.
  std::vector<char> piece(size_t{1} << 20);
  for (int64_t begin = 0; begin < file.size_bytes(); begin += std::ssize(piece)) {
    const int64_t count = std::min<int64_t>(std::ssize(piece), file.size_bytes() - begin);
    file.ReadAt(begin, piece.data(), static_cast<size_t>(count));
    XXH3_64bits_update(state.get(), piece.data(), static_cast<size_t>(count));
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace sandglass
