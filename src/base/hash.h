// Checksums of bytes (XXH3, 64 bits): for naming random streams, splitting documents, and telling
// whether a file is the one that was meant. Not for security.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sandglass {

uint64_t HashBytes(std::string_view bytes, uint64_t seed = 0);

// 16 lower-case hexadecimal digits.
std::string HashHex(uint64_t hash);

// XXH3 of a whole file, read in pieces. Throws Error if it cannot be read.
uint64_t HashFile(const std::string& path);

}  // namespace sandglass
