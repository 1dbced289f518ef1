#include "tensor/memory_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/format.h"

namespace sandglass {
namespace {

constexpr int64_t RoundUp(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

void MemoryPlan::Book(View& view, int64_t rows, int64_t cols, DType dtype, Lifetime lifetime) {
  SANDGLASS_CHECK(rows >= 0 && cols >= 0, "a buffer of negative size");
  view = {nullptr, dtype, rows, cols, cols};
  const int64_t bytes = RoundUp(rows * cols * SizeOf(dtype), kAlignmentBytes);
  int64_t& cursor = lifetime == Lifetime::kSaved   ? saved_cursor_
                    : lifetime == Lifetime::kState ? state_bytes_
                                                   : scratch_cursor_;
  bookings_.push_back({&view, lifetime, cursor});
  cursor += bytes;
  saved_peak_ = std::max(saved_peak_, saved_cursor_);
  scratch_peak_ = std::max(scratch_peak_, scratch_cursor_);
}

AlignedBytes::AlignedBytes(int64_t size_bytes) : size_bytes_(size_bytes) {
  // Two megabytes is the size of a huge page: fewer TLB misses in the large slabs. What does not
  // fill the last one stays in ordinary pages.
  constexpr int64_t kHugePageBytes = int64_t{2} << 20;
  const int64_t in_huge_pages = size_bytes / kHugePageBytes * kHugePageBytes;
  const int64_t alignment = in_huge_pages > 0 ? kHugePageBytes : kAlignmentBytes;
  void* data = nullptr;
  if (::posix_memalign(&data, alignment, std::max<int64_t>(1, size_bytes)) != 0) {
    throw Error({.what = "not enough memory for " + HumanBytes(static_cast<double>(size_bytes)),
                 .remedy = "use a smaller batch or model, or close other programs"});
  }
  data_.reset(static_cast<std::byte*>(data));
  if (in_huge_pages > 0) ::madvise(data, in_huge_pages, MADV_HUGEPAGE);
  std::memset(data, 0, size_bytes);
}

void AlignedBytes::Free::operator()(std::byte* data) const { std::free(data); }

Arena::Arena(MemoryPlan& plan) : bytes_(plan.total_bytes()) {
  std::byte* const state = bytes_.data();
  std::byte* const saved = state + plan.state_bytes_;
  std::byte* const scratch = saved + plan.saved_peak_;
  for (const MemoryPlan::Booking& booking : plan.bookings_) {
    std::byte* const base = booking.lifetime == Lifetime::kSaved   ? saved
                            : booking.lifetime == Lifetime::kState ? state
                                                                   : scratch;
    booking.view->data = base + booking.offset;
  }
}

}  // namespace sandglass
