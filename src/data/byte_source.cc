#include "data/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace sandglass {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

[[noreturn]] void FailDamaged(const char* kind, const char* reason, const std::string& path) {
  throw Error(
      {.what = fmt::format("the {} data is damaged: {}", kind, reason),
       .where = path,
       .remedy = fmt::format("get the file again; `{} -t` tells whether it is whole", kind)});
}

class GzipDecompressor : public Decompressor {
 public:
  explicit GzipDecompressor(const std::string& path) : path_(path) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    SANDGLASS_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib cannot be set up");
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  void Step(std::string_view& input, std::string& output) override {
    if (at_end_) {  // a file may hold several members one after another
      inflateReset(&stream_);
      at_end_ = false;
    }
    const size_t before = output.size();
    output.resize(before + kChunkBytes);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(output.data() + before);
    stream_.avail_out = static_cast<uInt>(kChunkBytes);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    input.remove_prefix(input.size() - stream_.avail_in);
    output.resize(output.size() - stream_.avail_out);
    at_end_ = status == Z_STREAM_END;
    if (!at_end_ && status != Z_OK && status != Z_BUF_ERROR) {
      FailDamaged("gzip", stream_.msg != nullptr ? stream_.msg : "unknown reason", path_);
    }
  }
  bool AtEnd() const override { return at_end_; }

 private:
  const std::string& path_;
  z_stream stream_{};
  bool at_end_ = false;
};

class ZstdDecompressor : public Decompressor {
 public:
  explicit ZstdDecompressor(const std::string& path)
      : path_(path), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {}

  void Step(std::string_view& input, std::string& output) override {
    const size_t before = output.size();
    output.resize(before + kChunkBytes);
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output.data() + before, kChunkBytes, 0};
    const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
    if (ZSTD_isError(left)) FailDamaged("zstd", ZSTD_getErrorName(left), path_);
    input.remove_prefix(in.pos);
    output.resize(before + out.pos);
    at_end_ = left == 0;
  }
  bool AtEnd() const override { return at_end_; }

 private:
  const std::string& path_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  bool at_end_ = false;
};

}  // namespace

ByteSource::ByteSource(const std::string& path)
    : path_(path == "-" ? "standard input" : path),
      descriptor_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw Error({.what = fmt::format("cannot open the input: {}", std::strerror(errno)),
                 .where = path_,
                 .remedy = "check the path and its permissions"});
  }
}

ByteSource::~ByteSource() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

bool ByteSource::Refill() {
  buffer_.resize(kChunkBytes);
  size_t filled = 0;
  while (filled < buffer_.size()) {  // a pipe gives little at a time
    const ssize_t count = ::read(descriptor_, buffer_.data() + filled, buffer_.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(
          {.what = fmt::format("cannot read the input: {}", std::strerror(errno)), .where = path_});
    }
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  consumed_bytes_ += filled;
  unread_ = std::string_view(buffer_).substr(0, filled);
  return filled > 0;
}

bool ByteSource::Read(std::string& output) {
  if (unread_.empty() && !Refill()) {
    if (decompressor_ != nullptr && !decompressor_->AtEnd()) {
      // All input is taken, but the decoder may still hold output back.
      const size_t before = output.size();
      decompressor_->Step(unread_, output);
      if (output.size() > before || decompressor_->AtEnd()) return true;
      throw Error({.what = "the compressed file ends too early",
                   .where = path_,
                   .expected = "a complete gzip or zstd file",
                   .remedy = "get the file again; it was probably cut off while being copied"});
    }
    return false;
  }
  if (!started_) {
    started_ = true;
    if (unread_.starts_with(kGzipMagic)) {
      decompressor_ = std::make_unique<GzipDecompressor>(path_);
    } else if (unread_.starts_with(kZstdMagic)) {
      decompressor_ = std::make_unique<ZstdDecompressor>(path_);
    }
  }
  if (decompressor_ != nullptr) {
    decompressor_->Step(unread_, output);
  } else {
    output += unread_;
    unread_ = {};
  }
  return true;
}

}  // namespace sandglass
