// The bytes of a file or of standard input, decompressed if they are gzip or zstd.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sandglass {

// Undoes one kind of compression, piece by piece.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Consumes from the front of `input` and appends to `output` (some of both, not necessarily all).
  virtual void Step(std::string_view& input, std::string& output) = 0;
  // Whether the stream could end here.
  virtual bool AtEnd() const = 0;
};

// Compression is recognised by the first bytes, whatever the file is called.
class ByteSource {
 public:
  // `path` "-" is standard input. Throws Error if the file cannot be opened.
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Appends some more bytes to `output`; false at the end. Throws Error for a read error, and for
  // compressed data that is damaged or ends too early.
  bool Read(std::string& output);

  // Bytes taken from the file so far, before decompression.
  uint64_t consumed_bytes() const { return consumed_bytes_; }

 private:
  bool Refill();

  std::string path_;
  int descriptor_;
  uint64_t consumed_bytes_ = 0;
  bool started_ = false;
  std::string buffer_;
  std::string_view unread_;  // of buffer_
  std::unique_ptr<Decompressor> decompressor_;
};

}  // namespace sandglass
