// How a backend divides work among its threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "ops/cpu/workers.h"

namespace sandglass::cpu {

// How work divides: into ranges of at least `minimum`, cut at multiples of `multiple`.
struct Split {
  int64_t count = 0;
  int64_t minimum = 1;
  int64_t multiple = 1;
};

// Runs work on `threads` threads (workers.h says how), one caller at a time; bodies do not throw
// and do not use the team. What is done depends on the number of threads, never on which of them
// are free. A copy is the same team.
class Team {
 public:
  explicit Team(int threads) : workers_(std::make_shared<Workers>(threads)) {}
  int threads() const { return workers_->threads(); }

  // Calls body(part, begin, end) for at most threads() parts that cover [0, split.count), and
  // returns how many there were.
  template <class Body>
  int Ranges(const Split& split, const Body& body) const {
    if (split.count <= 0) return 0;
    const int64_t parts =
        std::clamp<int64_t>(split.count / std::max<int64_t>(1, split.minimum), 1, threads());
    const auto boundary = [&](int64_t part) {
      return part == parts ? split.count
                           : split.count * part / parts / split.multiple * split.multiple;
    };
    Run(parts, [&](int part) { body(part, boundary(part), boundary(part + 1)); });
    return static_cast<int>(parts);
  }

  // Calls body(thread, item) for every item in [0, count), each on whichever thread is free. Only
  // for items whose results do not depend on the thread or on each other.
  template <class Body>
  void Items(int64_t count, const Body& body) const {
    if (count <= 0) return;
    // Apart from what the threads only read.
    struct alignas(64) {
      std::atomic<int64_t> item = 0;
    } next;
    Run(std::min<int64_t>(count, threads()), [&](int thread) {
      while (true) {
        const int64_t item = next.item.fetch_add(1, std::memory_order_relaxed);
        if (item >= count) return;
        body(thread, item);
      }
    });
  }

 private:
  // Calls body(thread) once for every thread in [0, count).
  template <class Body>
  void Run(int64_t count, const Body& body) const {
    workers_->Run(
        static_cast<int>(count),
        [](const void* context, int thread) { (*static_cast<const Body*>(context))(thread); },
        &body);
  }

  std::shared_ptr<Workers> workers_;
};

}  // namespace sandglass::cpu
