#include "train/event_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
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

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "host";
}

// The seconds come first in the name because TensorBoard reads a directory's files in that order;
// the process and the counter keep writers of the same second apart.
std::string FileName() {
  static std::atomic<int> counter = 0;
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{:04}", static_cast<int64_t>(NowSeconds()),
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

EventWriter::EventWriter(const std::string& directory) {
  CreateDirectories(directory);
  path_ = directory + "/" + FileName();
  file_ = std::fopen(path_.c_str(), "wbx");
  if (file_ == nullptr) Fail("cannot create the event file");
  events::Event event;
  event.set_wall_time(NowSeconds());
  event.set_file_version("brain.Event:2");
  WriteFrame(event.SerializeAsString());
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
