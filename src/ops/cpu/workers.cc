#include "ops/cpu/workers.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>

#include "base/cpu.h"
#include "base/error.h"
#include "hwy/cache_control.h"

namespace sandglass::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread waits before it sleeps: longer than decoding computes on one thread between two
// tokens of a small model (docs/performance.md).
constexpr auto kSpin = std::chrono::microseconds(100);
// Looks at a mailbox between two at the clock, which costs as much as a few of them.
constexpr int kLooks = 64;

}  // namespace

Workers::~Workers() {
  for (size_t i = 0; i < threads_.size(); ++i) Post(mailboxes_[i], State::kEnd);
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Run(int count, Job job, const void* context) {
  SANDGLASS_CHECK(count >= 1 && count <= threads(), "more shares than threads");
  if (count > 1 && threads_.empty()) Start();
  for (int thread = 1; thread < count; ++thread) {
    Mailbox& mailbox = mailboxes_[thread - 1];
    mailbox.job = job;
    mailbox.context = context;
    Post(mailbox, State::kWaiting);
  }
  job(context, 0);
  // All that nobody has begun, before waiting for anyone.
  for (int thread = 1; thread < count; ++thread) {
    State state = State::kWaiting;
    if (mailboxes_[thread - 1].state.compare_exchange_strong(state, State::kIdle)) {
      job(context, thread);
    }
  }
  for (int thread = 1; thread < count; ++thread) Await(mailboxes_[thread - 1]);
}

void Workers::Start() {
  // Without a processor for each, a thread that spins keeps one from the thread it waits for.
  spins_ = threads() <= AvailableThreads();
  try {
    for (int thread = 1; thread < threads(); ++thread) {
      threads_.emplace_back([this, thread] { Serve(mailboxes_[thread - 1], thread); });
    }
  } catch (const std::system_error& error) {
    throw Error({.what = fmt::format("the system grants {} of {} threads: {}", threads_.size() + 1,
                                     threads(), error.what()),
                 .where = "system.threads",
                 .expected = "no more threads than the process may start (ulimit -u, pids.max)",
                 .remedy = "ask for fewer with --threads or system.threads"});
  }
}

void Workers::Serve(Mailbox& mailbox, int thread) const {
  std::atomic<State>& state = mailbox.state;
  while (true) {
    State idle = State::kIdle;
    if (!HoldsSoon([&] { return state.load(std::memory_order_relaxed) != State::kIdle; }) &&
        state.compare_exchange_strong(idle, State::kAsleep)) {
      state.wait(State::kAsleep);
    }
    State found = State::kWaiting;
    if (state.compare_exchange_strong(found, State::kRunning)) {
      mailbox.job(mailbox.context, thread);
      if (state.exchange(State::kIdle) == State::kAwaited) state.notify_one();
    } else if (found == State::kEnd) {
      return;
    }
  }
}

void Workers::Post(Mailbox& mailbox, State state) {
  const State before = mailbox.state.exchange(state);
  SANDGLASS_CHECK(before == State::kIdle || before == State::kAsleep, "one job at a time");
  if (before == State::kAsleep) mailbox.state.notify_one();
}

void Workers::Await(Mailbox& mailbox) const {
  std::atomic<State>& state = mailbox.state;
  if (HoldsSoon([&] { return state.load(std::memory_order_acquire) != State::kRunning; })) return;
  State running = State::kRunning;
  if (state.compare_exchange_strong(running, State::kAwaited)) state.wait(State::kAwaited);
}

// Whether condition() becomes true before it is time to sleep.
template <class Condition>
bool Workers::HoldsSoon(const Condition& condition) const {
  if (condition()) return true;
  if (!spins_) return false;
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (int look = 0; look < kLooks; ++look) {
      hwy::Pause();
      if (condition()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace sandglass::cpu
