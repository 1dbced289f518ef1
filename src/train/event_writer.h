// Scalars as TensorBoard event files.
//
// A file is a sequence of TFRecord frames, each
//   u64 length | u32 masked CRC32C of the length | data | u32 masked CRC32C of the data
// (little-endian), whose data is an Event message of event.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sandglass {

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t Crc32c(std::string_view bytes);

// The checksum as TFRecord frames store it: rotated and offset, so that a checksum of data that
// holds checksums is sound.
uint32_t MaskedCrc32c(std::string_view bytes);

// Appends scalars to an event file of its own, new for every writer: a resumed run continues its
// steps in a second file and TensorBoard joins the two.
class EventWriter {
 public:
  // Creates `directory` if needed. Throws Error if the file cannot be created.
  explicit EventWriter(const std::string& directory);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // `tag` groups by the part before its last slash: "train/loss". Any value is kept, NaN too.
  // Throws Error if the disk is full.
  void Scalar(int64_t step, const std::string& tag, double value);
  // Makes what was written visible to readers.
  void Flush();

  const std::string& path() const { return path_; }

 private:
  void WriteFrame(const std::string& data);
  [[noreturn]] void Fail(const char* what);

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace sandglass
