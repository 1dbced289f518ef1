#include "base/interrupt.h"

#include <atomic>
#include <csignal>

namespace sandglass {
namespace {

std::atomic<bool> interrupt_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void HandleSignal(int signal) {
  interrupt_requested = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void CatchInterrupts() {
  std::signal(SIGINT, HandleSignal);
  std::signal(SIGTERM, HandleSignal);
}

bool InterruptRequested() { return interrupt_requested; }

void SetInterruptRequested(bool requested) { interrupt_requested = requested; }

}  // namespace sandglass
