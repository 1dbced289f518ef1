// How a backend divides work among its threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

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
  explicit Team(int threads) : state_(std::make_shared<State>(threads)) {}
  int threads() const { return state_->workers.threads(); }

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

  // Calls body(thread, item) for every item in [0, count). A thread begins with its own part of
  // them, the same for every op of as many rows, so that it finds in its cache what it wrote there;
  // one that is done early takes over from the others. Only for items whose results do not depend
  // on the thread or on each other.
  template <class Body>
  void Items(int64_t count, const Body& body) const {
    if (count <= 0) return;
    const int64_t parts = std::min<int64_t>(count, threads());
    const auto begin = [&](int64_t part) { return count * part / parts; };
    for (int64_t part = 0; part < parts; ++part) {
      state_->next[part].item.store(begin(part), std::memory_order_relaxed);
    }
    Run(parts, [&](int thread) {
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t part = (thread + i) % parts;
        std::atomic<int64_t>& next = state_->next[part].item;
        while (true) {
          const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
          if (item >= begin(part + 1)) break;
          body(thread, item);
        }
      }
    });
  }

 private:
  // Calls body(thread) once for every thread in [0, count).
  template <class Body>
  void Run(int64_t count, const Body& body) const {
    state_->workers.Run(
        static_cast<int>(count),
        [](const void* context, int thread) { (*static_cast<const Body*>(context))(thread); },
        &body);
  }

  // Of a thread's part of the items, the next; on a cache line of its own.
  struct alignas(64) Next {
    std::atomic<int64_t> item = 0;
  };
  struct State {
    explicit State(int threads) : workers(threads), next(threads) {}
    Workers workers;
    std::vector<Next> next;
  };
  std::shared_ptr<State> state_;
};

}  // namespace sandglass::cpu
