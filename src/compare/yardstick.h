// What general-purpose compressors need for a text: a yardstick for bits per byte.
#pragma once

#include <cstdint>
#include <string_view>

namespace sandglass {

// Bytes of the text as a gzip file at level 9 (zlib), headers included.
int64_t GzipBytes(std::string_view text);

// Bytes of the text as an xz file at preset 9 (liblzma), headers included.
int64_t XzBytes(std::string_view text);

}  // namespace sandglass
