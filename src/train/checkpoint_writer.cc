#include "train/checkpoint_writer.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/cpu.h"

namespace sandglass {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time until it is destroyed.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

int64_t PaddedBytes(ConstView view) {
  const int64_t bytes = view.elements() * SizeOf(view.dtype);
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// Whether so many bytes may be taken with a quarter of them to spare, for the pages that the file
// system holds back and whatever else grows.
bool MemoryAllows(int64_t bytes) {
  const std::optional<int64_t> available = AvailableMemoryBytes();
  return !available || *available / 5 * 4 >= bytes;
}

}  // namespace

CheckpointWriter::CheckpointWriter(Backend& ops, std::string run_directory,
                                   const Retention& retention, SaveMode mode)
    : ops_(ops), run_directory_(std::move(run_directory)), retention_(retention), mode_(mode) {}

CheckpointWriter::~CheckpointWriter() {
  if (going_on_.valid()) going_on_.wait();
}

void CheckpointWriter::Save(const CheckpointContents& contents) {
  Wait();
  const Stopwatch stopwatch(stalled_seconds_);
  std::optional<CheckpointContents> copy;
  if (mode_ == SaveMode::kBackground) copy = Copy(contents);
  if (!copy) return SaveCheckpoint(run_directory_, contents, retention_);
  going_on_ = std::async(std::launch::async, [this, copied = std::move(*copy)] {
    SaveCheckpoint(run_directory_, copied, retention_);
  });
}

void CheckpointWriter::Poll() {
  if (going_on_.valid() && going_on_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    going_on_.get();
}

void CheckpointWriter::Wait() {
  const Stopwatch stopwatch(stalled_seconds_);
  if (going_on_.valid()) going_on_.get();
}

std::optional<CheckpointContents> CheckpointWriter::Copy(const CheckpointContents& contents) {
  int64_t bytes = 0;
  for (const TensorFile& file : contents.files) {
    for (const NamedTensor& tensor : file.tensors) bytes += PaddedBytes(tensor.view);
  }
  if (copy_.size_bytes() < bytes) {
    if (!MemoryAllows(bytes)) return std::nullopt;
    try {
      copy_ = AlignedBytes(bytes);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  CheckpointContents copied = contents;
  std::byte* place = copy_.data();
  for (TensorFile& file : copied.files) {
    for (NamedTensor& tensor : file.tensors) {
      View to{place, tensor.view.dtype, tensor.view.rows, tensor.view.cols, tensor.view.cols};
      ops_.Copy(to, tensor.view);
      place += PaddedBytes(tensor.view);
      tensor.view = to;
    }
  }
  return copied;
}

}  // namespace sandglass
