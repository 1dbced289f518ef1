// Scalars and histograms as TensorBoard event files.
//
// A file is a sequence of TFRecord frames, each
//   u64 length | u32 masked CRC32C of the length | data | u32 masked CRC32C of the data
// (little-endian), whose data is an Event message of event.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "train/histogram.h"

namespace sandglass {

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t Crc32c(std::string_view bytes);

// The checksum as TFRecord frames store it: rotated and offset, so that a checksum of data that
// holds checksums is sound.
uint32_t MaskedCrc32c(std::string_view bytes);

// The event files of a directory, in the order in which readers take them.
std::vector<std::string> ListEventFiles(const std::string& directory);

// Takes back what the event files of a directory say of steps after `last_step`, so that a run that
// resumes there does not say it twice; a frame that a crash cut off goes too, and files that hold
// nothing any more. Files are replaced whole or not at all. Throws Error if that fails.
void CutEventFiles(const std::string& directory, int64_t last_step);

// Appends to an event file of its own, new for every writer: a resumed run continues its steps in a
// second file and TensorBoard joins the two.
class EventWriter {
 public:
  // Creates `directory` if needed. A run that resumes after `step` > 0 also says so in the file: a
  // TensorBoard that has been reading all the while then forgets the later steps, which were cut.
  // Throws Error if the file cannot be created.
  explicit EventWriter(const std::string& directory, int64_t step = 0);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // `tag` groups by the part before its last slash: "train/loss". Any value is kept, NaN too.
  // Throws Error if the disk is full.
  void Scalar(int64_t step, const std::string& tag, double value);
  // Values that are not finite are left out; nothing is written if none is.
  void Histogram(int64_t step, const std::string& tag, const sandglass::Histogram& histogram);
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
