#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/file.h"

namespace sandglass {

uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string HashHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

uint64_t HashFile(const std::string& path) {
  const MappedFile file(path);
  return HashBytes(file.bytes());
}

}  // namespace sandglass
