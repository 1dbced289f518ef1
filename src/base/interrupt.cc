#include "base/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace sandglass {
namespace {

std::atomic<bool> interrupt_requested{false};
std::atomic<int64_t> first_signal_ms{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "used in a signal handler");

// One keystroke can arrive as several signals: to the process and to its group, or through a
// program that passes it on.
constexpr int64_t kSameKeystrokeMs = 500;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a signal handler
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void HandleSignal(int signal) {
  if (!interrupt_requested.exchange(true)) {
    first_signal_ms = NowMs();
  } else if (NowMs() - first_signal_ms > kSameKeystrokeMs) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void CatchInterrupts() {
  std::signal(SIGINT, HandleSignal);
  std::signal(SIGTERM, HandleSignal);
}

bool InterruptRequested() { return interrupt_requested; }

void SetInterruptRequested(bool requested) { interrupt_requested = requested; }

}  // namespace sandglass
