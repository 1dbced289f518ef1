// Work on a stream of items with several threads and bounded memory, results in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace sandglass {

// Threads that run tasks, callables that take the worker's number, in the order they were added.
template <class Task>
class WorkerPool {
 public:
  explicit WorkerPool(int threads) {
    for (int worker = 0; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] {
        while (auto task = Take()) (*task)(worker);
      });
    }
  }
  // Drops the tasks that have not begun and waits for the others.
  ~WorkerPool() {
    const std::lock_guard lock(mutex_);
    tasks_.clear();
    closed_ = true;
    changed_.notify_all();
  }

  void Add(Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

 private:
  std::optional<Task> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closed_ = false;
  std::vector<std::jthread> workers_;  // last, so that they are joined before the rest goes
};

// Calls produce() until it returns nothing, work(worker, item) on `threads` workers numbered from
// 0, and consume(result) for each result in the order of the items. Produce and consume run on the
// calling thread; at most four items per worker are in flight. The first exception from any of the
// three ends the work and is thrown here.
template <class Produce, class Work, class Consume>
void ParallelInOrder(int threads, Produce&& produce, Work&& work, Consume&& consume) {
  using Item = typename std::invoke_result_t<Produce&>::value_type;
  using Result = std::invoke_result_t<Work&, int, Item>;
  using Task = std::packaged_task<Result(int)>;

  std::deque<std::future<Result>> results;
  const auto consume_first = [&] {
    std::future<Result> result = std::move(results.front());
    results.pop_front();
    consume(result.get());
  };
  WorkerPool<Task> pool(threads);
  while (auto item = produce()) {
    Task task([&work, item = std::move(*item)](int worker) mutable {
      return work(worker, std::move(item));
    });
    results.push_back(task.get_future());
    pool.Add(std::move(task));
    if (results.size() >= static_cast<size_t>(4 * threads)) consume_first();
  }
  while (!results.empty()) consume_first();
}

}  // namespace sandglass
