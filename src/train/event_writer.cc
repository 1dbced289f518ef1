#include "train/event_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "event.pb.h"

namespace sandglass {
namespace {

// Remainders of every byte under the reflected Castagnoli polynomial 0x1EDC6F41.
constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kReflectedPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ (remainder & 1 ? kReflectedPolynomial : 0);
    }
    table[byte] = remainder;
  }
  return table;
}

template <class Integer>
std::string LittleEndian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

constexpr const char* kFilePrefix = "events.out.tfevents.";
constexpr size_t kLengthBytes = 8;
constexpr size_t kChecksumBytes = 4;
constexpr size_t kFrameBytes = kLengthBytes + 2 * kChecksumBytes;  // beside the data

template <class Integer>
Integer FromLittleEndian(std::string_view bytes) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= Integer{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// The data of the frame at the start of `bytes`; nothing if it is cut off or damaged.
std::optional<std::string_view> FrameData(std::string_view bytes) {
  if (bytes.size() < kFrameBytes) return std::nullopt;
  const std::string_view length_bytes = bytes.substr(0, kLengthBytes);
  const auto length = FromLittleEndian<uint64_t>(length_bytes);
  const auto checksum = FromLittleEndian<uint32_t>(bytes.substr(kLengthBytes));
  if (checksum != MaskedCrc32c(length_bytes) || length > bytes.size() - kFrameBytes) {
    return std::nullopt;
  }
  const std::string_view data = bytes.substr(kLengthBytes + kChecksumBytes, length);
  const auto data_checksum = FromLittleEndian<uint32_t>(bytes.substr(kFrameBytes - 4 + length));
  return data_checksum == MaskedCrc32c(data) ? std::optional(data) : std::nullopt;
}

// The frames of a file up to and including `last_step`, as they stand there; "" if none but the
// one that opens the file.
std::string FramesUpTo(std::string_view file, int64_t last_step) {
  std::string kept;
  bool holds_something = false;
  while (const auto data = FrameData(file)) {
    events::Event event;
    const bool sound = event.ParseFromArray(data->data(), static_cast<int>(data->size()));
    const bool opens = event.what_case() == events::Event::kFileVersion;
    if (sound && (opens || event.step() <= last_step)) {
      kept += file.substr(0, kFrameBytes + data->size());
      holds_something = holds_something || !opens;
    }
    file.remove_prefix(kFrameBytes + data->size());
  }
  return holds_something ? kept : "";
}

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The seconds come first in the name because TensorBoard reads a directory's files in that order;
// the process and the counter keep writers of the same second apart.
std::string FileName() {
  static std::atomic<int> counter = 0;
  return fmt::format("{}{:010}.{}.{}.{:04}", kFilePrefix, static_cast<int64_t>(NowSeconds()),
                     HostName(), ::getpid(), counter++);
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::vector<std::string> ListEventFiles(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(kFilePrefix)) {
      files.push_back(entry.path().string());
    }
  }
  std::ranges::sort(files);
  return files;
}

void CutEventFiles(const std::string& directory, int64_t last_step) {
  for (const std::string& path : ListEventFiles(directory)) {
    const std::string file = ReadFile(path);
    const std::string kept = FramesUpTo(file, last_step);
    if (kept.empty()) {
      std::filesystem::remove(path);
    } else if (kept != file) {
      WriteFileAtomically(path, kept);
    }
  }
}

EventWriter::EventWriter(const std::string& directory, int64_t step) {
  CreateDirectories(directory);
  path_ = directory + "/" + FileName();
  file_ = std::fopen(path_.c_str(), "wbx");
  if (file_ == nullptr) Fail("cannot create the event file");
  events::Event event;
  event.set_wall_time(NowSeconds());
  event.set_file_version("brain.Event:2");
  WriteFrame(event.SerializeAsString());
  if (step > 0) {
    event.set_step(step + 1);
    event.mutable_session_log()->set_status(events::SessionLog::START);
    WriteFrame(event.SerializeAsString());
  }
  Flush();
}

EventWriter::~EventWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventWriter::Scalar(int64_t step, const std::string& tag, double value) {
  events::Event event;
  event.set_wall_time(NowSeconds());
  event.set_step(step);
  events::Summary::Value& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(tag);
  scalar.set_simple_value(static_cast<float>(value));
  WriteFrame(event.SerializeAsString());
}

void EventWriter::Histogram(int64_t step, const std::string& tag,
                            const sandglass::Histogram& histogram) {
  if (histogram.count == 0) return;
  events::Event event;
  event.set_wall_time(NowSeconds());
  event.set_step(step);
  events::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  events::Histogram& histo = *value.mutable_histo();
  histo.set_min(histogram.min);
  histo.set_max(histogram.max);
  histo.set_num(static_cast<double>(histogram.count));
  histo.set_sum(histogram.sum);
  histo.set_sum_squares(histogram.sum_squares);
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    histo.add_bucket_limit(histogram.limits[i]);
    histo.add_bucket(static_cast<double>(histogram.counts[i]));
  }
  WriteFrame(event.SerializeAsString());
}

void EventWriter::Flush() {
  if (std::fflush(file_) != 0) Fail("cannot write the event file");
}

void EventWriter::WriteFrame(const std::string& data) {
  const std::string length = LittleEndian(uint64_t{data.size()});
  const std::string frame =
      length + LittleEndian(MaskedCrc32c(length)) + data + LittleEndian(MaskedCrc32c(data));
  if (std::fwrite(frame.data(), 1, frame.size(), file_) != frame.size()) {
    Fail("cannot write the event file");
  }
}

void EventWriter::Fail(const char* what) {
  const int error_number = errno;
  throw Error({.what = fmt::format("{}: {}", what, std::strerror(error_number)),
               .where = path_,
               .remedy = "free some space or choose another run directory; events already in the "
                         "file stay readable"});
}

}  // namespace sandglass
