// A backend's threads: every share of a job is done once, whichever threads are free.
#include "ops/cpu/team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu.h"

namespace sandglass::cpu {
namespace {

using std::chrono::milliseconds;

// Longer than threads spin, with much to spare.
constexpr milliseconds kLong(2);

// How often ranges covered each of [0, split.count); parts that overlap make a race.
std::vector<int> Covered(const Team& team, const Split& split) {
  std::vector<int> covered(split.count);
  std::vector<int> parts(team.threads());
  const int ran = team.Ranges(split, [&](int part, int64_t begin, int64_t end) {
    ++parts.at(part);
    for (int64_t i = begin; i < end; ++i) ++covered.at(i);
  });
  for (int part = 0; part < team.threads(); ++part) EXPECT_EQ(parts[part], part < ran ? 1 : 0);
  return covered;
}

// How often each of `count` items was done, of which none may run on a thread that has one.
std::vector<int> Done(const Team& team, int64_t count) {
  std::vector<int> done(count);
  std::vector<std::atomic<bool>> occupied(team.threads());
  team.Items(count, [&](int thread, int64_t item) {
    EXPECT_FALSE(occupied.at(thread).exchange(true));
    ++done.at(item);
    occupied[thread] = false;
  });
  return done;
}

// Whether all of the team's threads run at the same time: none ends before the others have begun.
bool AllRunAtOnce(const Team& team) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::atomic<int> begun = 0;
  std::atomic<bool> late = false;
  team.Ranges({.count = team.threads()}, [&](int, int64_t, int64_t) {
    ++begun;
    while (begun < team.threads() && !late) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > end) late = true;
    }
  });
  return !late;
}

TEST(Team, CoversEveryRangeOnce) {
  for (int threads = 1; threads <= 7; ++threads) {
    const Team team(threads);
    for (int64_t count = 0; count <= 40; ++count) {
      for (const int64_t minimum : {1, 3, 10}) {
        for (const int64_t multiple : {1, 4}) {
          EXPECT_EQ(Covered(team, {count, minimum, multiple}), std::vector<int>(count, 1))
              << threads << " threads, " << count << " by " << minimum << ", " << multiple;
        }
      }
    }
  }
}

TEST(Team, CutsByTheNumberOfThreadsAlone) {
  const Team team(4);
  const auto parts = [&](const Split& split) {
    std::vector<std::pair<int64_t, int64_t>> parts(4);
    const int count = team.Ranges(split, [&](int part, int64_t begin, int64_t end) {
      parts[part] = {begin, end};
    });
    parts.resize(count);
    return parts;
  };
  using Parts = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(parts({.count = 10}), (Parts{{0, 2}, {2, 5}, {5, 7}, {7, 10}}));
  EXPECT_EQ(parts({.count = 100, .minimum = 40, .multiple = 16}), (Parts{{0, 48}, {48, 100}}));
  EXPECT_EQ(parts({.count = 100, .minimum = 101}), (Parts{{0, 100}}));
}

TEST(Team, DoesEveryItemOnce) {
  for (int threads = 1; threads <= 7; ++threads) {
    const Team team(threads);
    for (const int64_t count : {0, 1, 2, 3, 6, 7, 8, 100, 1000}) {
      EXPECT_EQ(Done(team, count), std::vector<int>(count, 1))
          << threads << " threads, " << count << " items";
    }
  }
}

// Of jobs this short the caller takes shares from workers at every stage of their waking.
TEST(Team, DoesThousandsOfShortJobs) {
  constexpr int kJobs = 20000;
  for (const int threads : {2, 3, 5}) {
    const Team team(threads);
    std::vector<int> done(threads);
    for (int job = 0; job < kJobs; ++job) {
      team.Ranges({.count = threads}, [&](int part, int64_t, int64_t) {
        ++done[part];
        for (std::atomic<int> i = 0; i < job % 128;) ++i;
      });
      for (const int times : done) ASSERT_EQ(times, job + 1);
    }
  }
}

TEST(Team, RunsOnAllThreadsAtOnce) {
  for (int threads = 1; threads <= 7; ++threads) {
    const Team team(threads);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(AllRunAtOnce(team)) << threads << " threads";
  }
}

TEST(Team, MayHaveMoreThreadsThanThereAreCpus) {
  const Team team(AvailableThreads() + 2);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(AllRunAtOnce(team));
  for (int i = 0; i < 500; ++i) ASSERT_EQ(Done(team, 50), std::vector<int>(50, 1));
}

TEST(Team, WakesThreadsThatSleep) {
  for (const int threads : {2, 4}) {
    const Team team(threads);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(AllRunAtOnce(team));
      std::this_thread::sleep_for(kLong);
    }
  }
}

TEST(Team, WaitsForSharesThatTakeLong) {
  const Team team(3);
  for (int slow = 0; slow < 3; ++slow) {
    for (int i = 0; i < 10; ++i) {
      std::vector<int> done(3);
      std::atomic<int> begun = 0;
      team.Ranges({.count = 3}, [&](int part, int64_t, int64_t) {
        ++begun;
        while (begun < 3) std::this_thread::yield();
        if (part == slow) std::this_thread::sleep_for(kLong);
        done[part] = 1;
      });
      ASSERT_EQ(done, std::vector<int>(3, 1));
    }
  }
}

TEST(Team, OfOneIsTheCaller) {
  const Team team(1);
  const std::thread::id caller = std::this_thread::get_id();
  int done = 0;
  team.Items(10, [&](int thread, int64_t) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++done;
  });
  EXPECT_EQ(team.Ranges({.count = 10},
                        [&](int, int64_t begin, int64_t end) {
                          EXPECT_EQ(std::this_thread::get_id(), caller);
                          done += static_cast<int>(end - begin);
                        }),
            1);
  EXPECT_EQ(done, 20);
}

TEST(Team, StartsNoThreadBeforeItsFirstJob) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto before = count();
  const Team team(5);
  team.Ranges({.count = 1}, [](int, int64_t, int64_t) {});
  EXPECT_LE(count(), before);
}

TEST(Team, EndsUsedOrNot) {
  for (int i = 0; i < 300; ++i) {
    const Team unused(3);
    const Team team(3);
    for (int job = 0; job < i % 3; ++job) {
      EXPECT_EQ(Covered(team, {.count = 3}), std::vector<int>(3, 1));
    }
    if (i % 50 == 0) std::this_thread::sleep_for(kLong);
  }
}

TEST(Team, LastsAsLongAsItsCopies) {
  auto team = std::make_unique<Team>(3);
  EXPECT_TRUE(AllRunAtOnce(*team));
  const Team copy = *team;
  team.reset();
  EXPECT_TRUE(AllRunAtOnce(copy));
}

TEST(Team, SharesTheCallerWithAnother) {
  const Team one(2), other(3);
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 0) {
      ASSERT_TRUE(AllRunAtOnce(one) && AllRunAtOnce(other));
    }
    ASSERT_EQ(Done(one, 5), std::vector<int>(5, 1));
    ASSERT_EQ(Covered(other, {.count = 5}), std::vector<int>(5, 1));
  }
}

TEST(Team, WorksBesideAnother) {
  const auto work = [] {
    const Team team(3);
    for (int i = 0; i < 2000; ++i) {
      if (i % 100 == 0) {
        ASSERT_TRUE(AllRunAtOnce(team));
      }
      ASSERT_EQ(Done(team, 5), std::vector<int>(5, 1));
      ASSERT_EQ(Covered(team, {.count = 5}), std::vector<int>(5, 1));
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(Team, RefusesAJobWithinAJob) {
  const Team team(2);
  const auto job = [&](const auto& body) { team.Ranges({.count = 2}, body); };
  EXPECT_DEATH(job([&](auto...) { job([](auto...) {}); }), "one job at a time");
}

// A child process has the caller alone: no thread begins a share.
TEST(Team, DoesNotWaitForThreadsThatDoNotBegin) {
  const Team team(3);
  ASSERT_TRUE(AllRunAtOnce(team));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    bool right = true;
    for (int i = 0; i < 10; ++i) {
      right = right && Covered(team, {.count = 30}) == std::vector<int>(30, 1) &&
              Done(team, 30) == std::vector<int>(30, 1);
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace sandglass::cpu
