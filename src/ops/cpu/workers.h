// Threads that wait between the parts of ops: shortly without sleeping, so that an op starts on all
// of them within a microsecond, then in the kernel, so that other programs can have the processor.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace sandglass::cpu {

// Runs jobs on `threads` threads, one of which is the calling one. The others start with the first
// job that needs them and end with this object. One thread at a time calls Run, and no job does.
class Workers {
 public:
  // The share of a job that falls to `thread`. Must not throw.
  using Job = void (*)(const void* context, int thread);

  explicit Workers(int threads) : mailboxes_(threads - 1) {}
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(mailboxes_.size()) + 1; }

  // Calls job(context, thread) once for every thread in [0, count), count <= threads(), and returns
  // when all are done. The calling thread does share 0, then those that no other has begun: it does
  // not wait for one that another program keeps from the processor. Throws an Error if the system
  // grants no more threads.
  void Run(int count, Job job, const void* context);

 private:
  enum class State : int {
    kIdle,     // no job
    kAsleep,   // the same, and the worker sleeps
    kWaiting,  // a job that is not begun
    kRunning,  // a job that is begun
    kAwaited,  // the same, and the caller sleeps until it is done
    kEnd,      // the worker is to end
  };
  // A worker's, on a cache line of its own: that is all that two threads pass to each other.
  struct alignas(64) Mailbox {
    std::atomic<State> state = State::kIdle;
    Job job = nullptr;  // written in kIdle and kAsleep by the caller, read in kRunning
    const void* context = nullptr;
  };

  void Start();
  void Serve(Mailbox& mailbox, int thread) const;
  static void Post(Mailbox& mailbox, State state);
  void Await(Mailbox& mailbox) const;
  template <class Condition>
  bool HoldsSoon(const Condition& condition) const;

  bool spins_ = false;
  std::vector<Mailbox> mailboxes_;  // of threads 1, 2, ...
  std::vector<std::thread> threads_;
};

}  // namespace sandglass::cpu
