// Memory is planned before it is taken: every buffer is booked with a lifetime, then one
// allocation grants them all. After that a training step allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/view.h"

namespace sandglass {

enum class Lifetime {
  kSaved,    // from the forward pass until the backward pass of the same step
  kScratch,  // inside one sub-layer's forward or backward; sub-layers share the same bytes
  kState,    // for as long as the model lives (rotary tables, the residual stream, KV cache)
};

class MemoryPlan {
 public:
  // Books rows x cols elements. The view's shape is set at once, its data when an Arena is made
  // from the plan, so the view must not move in between.
  void Book(View& view, int64_t rows, int64_t cols, DType dtype, Lifetime lifetime);

  // Scratch booked from here on may reuse the scratch bytes booked before.
  void BeginScratchScope() { scratch_cursor_ = 0; }
  // What is saved from here on may reuse the bytes saved since the first call.
  void BeginSavedScope() {
    if (!saved_base_) saved_base_ = saved_cursor_;
    saved_cursor_ = *saved_base_;
  }

  int64_t saved_bytes() const { return saved_peak_; }
  int64_t scratch_bytes() const { return scratch_peak_; }
  int64_t state_bytes() const { return state_bytes_; }
  int64_t total_bytes() const { return saved_peak_ + scratch_peak_ + state_bytes_; }

 private:
  friend class Arena;
  struct Booking {
    View* view;
    Lifetime lifetime;
    int64_t offset;
  };
  std::vector<Booking> bookings_;
  std::optional<int64_t> saved_base_;
  int64_t saved_cursor_ = 0;
  int64_t saved_peak_ = 0;
  int64_t state_bytes_ = 0;
  int64_t scratch_cursor_ = 0;
  int64_t scratch_peak_ = 0;
};

// Buffers start on cache-line boundaries.
inline constexpr int64_t kAlignmentBytes = 64;

// Zero-initialised bytes on a cache-line boundary. Large ones ask for huge pages.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(int64_t size_bytes);
  std::byte* data() const { return data_.get(); }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_bytes_ = 0;
};

// The one allocation behind a plan.
class Arena {
 public:
  Arena() = default;
  // Fills in the data of every booked view.
  explicit Arena(MemoryPlan& plan);
  int64_t size_bytes() const { return bytes_.size_bytes(); }

 private:
  AlignedBytes bytes_;
};

}  // namespace sandglass
