#include "compare/yardstick.h"

#include <lzma.h>
#include <zlib.h>

#include <vector>

#include "base/error.h"

namespace sandglass {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 16;

}  // namespace

int64_t GzipBytes(std::string_view text) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window, with a gzip header
  constexpr int kMemoryLevel = 8;       // zlib's default, and what gzip's own tables match
  z_stream stream{};
  SANDGLASS_CHECK(
      deflateInit2(&stream, 9, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK,
      "zlib does not start");
  std::vector<Bytef> out(kChunkBytes);
  int status = Z_OK;
  // avail_in has 32 bits, so long texts go in piece by piece.
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0 && !text.empty()) {
      const std::string_view piece = text.substr(0, size_t{1} << 30);
      text.remove_prefix(piece.size());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
      stream.avail_in = static_cast<uInt>(piece.size());
    }
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    status = deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    SANDGLASS_CHECK(status == Z_OK || status == Z_STREAM_END, "zlib fails to compress");
  }
  const auto total = static_cast<int64_t>(stream.total_out);
  deflateEnd(&stream);
  return total;
}

int64_t XzBytes(std::string_view text) {
  lzma_stream stream = LZMA_STREAM_INIT;
  SANDGLASS_CHECK(lzma_easy_encoder(&stream, 9, LZMA_CHECK_CRC64) == LZMA_OK,
                  "liblzma does not start");
  std::vector<uint8_t> out(kChunkBytes);
  stream.next_in = reinterpret_cast<const uint8_t*>(text.data());
  stream.avail_in = text.size();
  lzma_ret status = LZMA_OK;
  while (status != LZMA_STREAM_END) {
    stream.next_out = out.data();
    stream.avail_out = out.size();
    status = lzma_code(&stream, LZMA_FINISH);
    SANDGLASS_CHECK(status == LZMA_OK || status == LZMA_STREAM_END, "liblzma fails to compress");
  }
  const auto total = static_cast<int64_t>(stream.total_out);
  lzma_end(&stream);
  return total;
}

}  // namespace sandglass
