// A backend's threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace sandglass::cpu {

// How work divides: into ranges of at least `minimum`, cut at multiples of `multiple`.
struct Split {
  int64_t count = 0;
  int64_t minimum = 1;
  int64_t multiple = 1;
};

// Runs work on `threads` OpenMP threads. What is done depends on the number of threads asked for,
// never on how many the runtime grants. Parallel regions always use the whole team: the runtime
// ends the threads that a smaller one leaves over, and starting them again costs more than an op.
class Team {
 public:
  explicit Team(int threads) : threads_(threads) {}
  int threads() const { return threads_; }

  // Calls body(part, begin, end) for at most threads() parts that cover [0, split.count), and
  // returns how many there were.
  template <class Body>
  int Ranges(const Split& split, const Body& body) const {
    if (split.count <= 0) return 0;
    const int64_t parts =
        std::clamp<int64_t>(split.count / std::max<int64_t>(1, split.minimum), 1, threads_);
    const auto boundary = [&](int64_t part) {
      return part == parts ? split.count
                           : split.count * part / parts / split.multiple * split.multiple;
    };
    if (parts == 1) {
      body(0, int64_t{0}, split.count);
      return 1;
    }
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part) {
      body(static_cast<int>(part), boundary(part), boundary(part + 1));
    }
    return static_cast<int>(parts);
  }

  // Calls body(thread, item) for every item in [0, count), each on whichever thread is free. Only
  // for items whose results do not depend on the thread or on each other.
  template <class Body>
  void Items(int64_t count, const Body& body) const {
    if (threads_ == 1 || count == 1) {
      for (int64_t item = 0; item < count; ++item) body(0, item);
      return;
    }
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (int64_t item = 0; item < count; ++item) body(omp_get_thread_num(), item);
  }

 private:
  int threads_;
};

}  // namespace sandglass::cpu
