#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "base/cpu.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/process.h"
#include "base/random.h"
#include "base/testing.h"
#include "base/toml.h"

namespace sandglass {
namespace {

enum class Color { kRed, kGreen };

struct Inner {
  double rate = 0.5;
  std::vector<int> sizes = {1, 2};
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("rate", self.rate, "a rate");
    field("sizes", self.sizes, "some sizes");
  }
};

struct Outer {
  int64_t tokens = 7;
  std::string name = "x";
  Color color = Color::kRed;
  std::optional<int> limit;
  Inner inner;
  std::vector<Inner> list;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokens", self.tokens, "how many tokens");
    field("name", self.name, "a name");
    field("color", self.color, "a color");
    field("limit", self.limit, "a limit");
    field("inner", self.inner, "nested");
    field("list", self.list, "a list of tables");
  }
};

}  // namespace

template <>
struct EnumNames<Color> {
  static constexpr std::array<std::pair<Color, const char*>, 2> kNames{
      {{Color::kRed, "red"}, {Color::kGreen, "green"}}};
};

namespace {

TEST(Fields, ReadWriteRoundTripThroughToml) {
  Outer value;
  ReadFields(value, ParseToml("tokens = 18e9\nname = \"kjv\"\ncolor = \"green\"\nlimit = 3\n"
                              "[inner]\nrate = 2\nsizes = [4, 5, 6]\n"
                              "[[list]]\nrate = 0.25\n[[list]]\n",
                              "run.toml"));
  EXPECT_EQ(value.tokens, 18'000'000'000);
  EXPECT_EQ(value.color, Color::kGreen);
  EXPECT_EQ(value.limit, 3);
  EXPECT_EQ(value.inner.rate, 2.0);
  EXPECT_EQ(value.inner.sizes, (std::vector<int>{4, 5, 6}));
  ASSERT_EQ(value.list.size(), 2u);
  EXPECT_EQ(value.list[0].rate, 0.25);

  Outer again;
  ReadFields(again, ParseToml(ToToml(WriteFields(value)), "written"));
  EXPECT_EQ(WriteFields(again), WriteFields(value));
}

TEST(Fields, UnknownKeyNamesLineAndSuggestion) {
  Outer value;
  const ErrorParts parts = FailureOf(
      [&] { ReadFields(value, ParseToml("name = \"a\"\n\n[inner]\nrat = 1.0\n", "run.toml")); });
  EXPECT_EQ(parts.what, "unknown key \"rat\"");
  EXPECT_EQ(parts.where, "run.toml:4, inner.rat");
  EXPECT_EQ(parts.remedy, "did you mean \"rate\"?");
}

TEST(Fields, WrongTypesAreRefused) {
  Outer value;
  for (const char* text : {"tokens = \"many\"", "tokens = 1.5", "color = \"gren\"", "inner = 3",
                           "name = 4", "[inner]\nsizes = 4", "limit = 3e12"}) {
    EXPECT_THROW(ReadFields(value, ParseToml(text, "run.toml")), Error) << text;
  }
  EXPECT_EQ(FailureOf([&] { ReadFields(value, ParseToml("color = \"gren\"", "f")); }).remedy,
            "did you mean \"green\"?");
}

struct Numbers {
  int small = 0;
  int64_t wide = 0;
  uint64_t seed = 0;
  uint8_t byte = 0;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("small", self.small, "32 bits");
    field("wide", self.wide, "64 bits");
    field("seed", self.seed, "64 bits without a sign");
    field("byte", self.byte, "8 bits without a sign");
  }
};

TEST(Fields, WrongWholeNumbersSayWhatIsWrong) {
  Numbers value;
  const auto failure = [&](const std::string& text) {
    return FailureOf([&] { ReadFields(value, ParseToml(text, "run.toml")); });
  };
  EXPECT_EQ(failure("small = 1.5").what, "1.5 is not a whole number");
  EXPECT_EQ(failure("small = nan").what, "nan is not a whole number");
  EXPECT_EQ(failure("small = 1e300").what, "1e300 is out of range");
  EXPECT_EQ(failure("wide = -1e300").what, "-1e300 is out of range");
  EXPECT_EQ(failure("wide = inf").what, "inf is out of range");
  EXPECT_EQ(failure("wide = 9223372036854775808e0").what, "9.223372036854776e18 is out of range");
  EXPECT_EQ(failure("small = 3e9").what, "3000000000 is out of range");
  EXPECT_EQ(failure("small = 3e9").expected, "a whole number from -2147483648 to 2147483647");
  EXPECT_EQ(failure("small = 3e9").where, "run.toml:1, small");
  EXPECT_EQ(failure("seed = -1").what, "-1 is negative");
  EXPECT_EQ(failure("byte = -2e0").what, "-2 is negative");
  EXPECT_EQ(failure("byte = 256").expected, "a whole number from 0 to 255");
  EXPECT_EQ(failure("small = \"3\"").expected.substr(0, 14), "a whole number");
  EXPECT_EQ(failure("small = true").what, "true has the wrong type");
  EXPECT_NE(failure("wide = 99999999999999999999").what.find("64 bits"), std::string::npos);
  const auto assign = [&](const char* text) {
    return FailureOf([&] { ReadFields(value, ParseAssignment(text)); }).what;
  };
  EXPECT_EQ(assign("wide=99999999999999999999"), "99999999999999999999 is out of range");
  EXPECT_EQ(assign("seed=-99999999999999999999"), "-99999999999999999999 is negative");
  EXPECT_EQ(assign("small=many"), "\"many\" has the wrong type");
  EXPECT_EQ(assign("small=\xff"), "\"\uFFFD\" has the wrong type");
}

TEST(Fields, WholeNumbersAreReadToTheirLimits) {
  Numbers value;
  ReadFields(value, ParseToml("small = -2147483648\nwide = 9223372036854775807\nseed = 18e18\n"
                              "byte = 255.0\n",
                              "run.toml"));
  EXPECT_EQ(value.small, std::numeric_limits<int>::min());
  EXPECT_EQ(value.wide, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(value.seed, 18'000'000'000'000'000'000u);
  EXPECT_EQ(value.byte, 255);
  value.seed = std::numeric_limits<uint64_t>::max();
  Numbers again;
  ReadFields(again, {.values = Json::parse(WriteFields(value).dump()), .source = "f"});
  EXPECT_EQ(again.seed, value.seed);
}

struct Word {
  std::string text;
  static Word Parse(std::string_view text) {
    if (text.size() > 4) throw Error({.what = "\"" + std::string(text) + "\" is too long"});
    return {std::string(text)};
  }
  std::string ToString() const { return text; }
};

TEST(Fields, ANumberReadsAsText) {
  const auto read = [](Json value) {
    Word word;
    ReadFields(word, {.values = std::move(value), .source = "--word"});
    return word.text;
  };
  EXPECT_EQ(read(4), "4");
  EXPECT_EQ(read(10.0), "10");
  EXPECT_EQ(read(0.4), "0.4");
  EXPECT_EQ(FailureOf([&] { read(1e9); }).what, "\"1000000000\" is too long");
  EXPECT_EQ(FailureOf([&] { read(1e300); }).what, "\"1e300\" is too long");
}

TEST(Fields, AnElementOfAFlagsListNamesTheFlag) {
  std::vector<Color> colors;
  EXPECT_EQ(FailureOf([&] {
              ReadFields(colors, {.values = {"red", "gren"}, .source = "--colors"});
            }).where,
            "--colors");
}

TEST(Fields, AssignmentOverridesOneKey) {
  Outer value;
  ReadFields(value, ParseAssignment("inner.rate=3e-4"));
  ReadFields(value, ParseAssignment("name=first-try"));
  EXPECT_EQ(value.inner.rate, 3e-4);
  EXPECT_EQ(value.inner.sizes, (std::vector<int>{1, 2}));
  EXPECT_EQ(value.name, "first-try");
  EXPECT_THROW(ReadFields(value, ParseAssignment("inner.rte=1")), Error);
  EXPECT_THROW(ParseAssignment("novalue"), Error);
  EXPECT_THROW(ParseAssignment("a..b=1"), Error);
}

TEST(Fields, ElementsOfAListKeepTheirDefaults) {
  Outer value;
  value.list = {{.rate = 0.1}, {.rate = 0.2}, {.rate = 0.3}};
  ReadFields(value, ParseToml("[[list]]\nsizes = [9]\n[[list]]\nrate = 7\n", "run.toml"));
  ASSERT_EQ(value.list.size(), 2u);
  EXPECT_EQ(value.list[0].rate, 0.1);
  EXPECT_EQ(value.list[0].sizes, (std::vector<int>{9}));
  EXPECT_EQ(value.list[1].rate, 7);
}

TEST(Fields, AWrittenFileMustBeWhole) {
  const Json whole = WriteFields(Outer{});
  Outer value;
  ReadAllFields(value, {.values = whole, .source = "result.json"});
  for (const char* key : {"tokens", "inner"}) {
    Json damaged = whole;
    damaged.erase(key);
    EXPECT_EQ(FailureOf([&] { ReadAllFields(value, {.values = damaged, .source = "f"}); }).what,
              "\"" + std::string(key) + "\" is missing");
  }
  Json damaged = whole;
  damaged["inner"].erase("rate");
  EXPECT_THROW(ReadAllFields(value, {.values = damaged, .source = "f"}), Error);
}

TEST(Fields, DifferencesNameKeysAndValues) {
  Outer before, after;
  after.tokens = 8;
  after.inner.rate = 1.5;
  after.name = "y";
  EXPECT_EQ(Differences(before, after, {"name"}),
            (std::vector<std::string>{"tokens (7, now 8)", "inner.rate (0.5, now 1.5)"}));
  EXPECT_EQ(Differences(before, after, {"name", "inner", "tokens"}), std::vector<std::string>{});
}

TEST(Fields, DescriptionsListNestedKeys) {
  std::vector<std::string> paths;
  for (const FieldDescription& field : DescribeFields<Outer>()) paths.push_back(field.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"tokens", "name", "color", "limit", "inner.rate",
                                             "inner.sizes", "list[].rate", "list[].sizes"}));
}

TEST(Toml, SyntaxErrorNamesFileAndLine) {
  EXPECT_EQ(FailureOf([] { ParseToml("a = 1\nb = = 2\n", "bad.toml"); }).where.substr(0, 10),
            "bad.toml:2");
}

TEST(Error, SuggestsOnlyLikelyMisspellings) {
  const std::vector<std::string> names = {"tokens", "learning_rate", "batch"};
  EXPECT_EQ(ClosestMatch("token", names), "tokens");
  EXPECT_EQ(ClosestMatch("learning_rte", names), "learning_rate");
  EXPECT_EQ(ClosestMatch("zzz", names), "");
}

TEST(Error, SwappedLettersAreOneMistake) {
  EXPECT_EQ(ClosestMatch("trian", {"train", "trip"}), "train");
  EXPECT_EQ(ClosestMatch("pelase", {"please"}), "please");
  EXPECT_EQ(ClosestMatch("ab", {"ba"}), "ba");
  EXPECT_EQ(ClosestMatch("abc", {"cab"}), "");
  EXPECT_EQ(DidYouMean("trian", {"plan", "train"}), "did you mean \"train\"?");
}

TEST(Random, PhiloxMatchesPublishedVectors) {
  // Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10 rounds).
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, StreamsAreRepeatableSeekableAndApart) {
  RandomStream a(1, "a"), again(1, "a"), b(1, "b"), other_seed(2, "a");
  std::vector<uint32_t> first, same, named, seeded;
  for (int i = 0; i < 9; ++i) {
    first.push_back(a.NextU32());
    same.push_back(again.NextU32());
    named.push_back(b.NextU32());
    seeded.push_back(other_seed.NextU32());
  }
  EXPECT_EQ(first, same);
  EXPECT_NE(first, named);
  EXPECT_NE(first, seeded);
  again.Seek(5);
  EXPECT_EQ(again.NextU32(), first[5]);
}

TEST(Random, NormalHasUnitMoments) {
  RandomStream stream(3, "normal");
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.NextNormal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
  EXPECT_NEAR(fourth / kDraws, 3.0, 0.15);
}

TEST(Random, PermutationVisitsEveryElementOnce) {
  for (uint64_t size : {1u, 2u, 3u, 10u, 64u, 100u, 1025u}) {
    const Permutation permutation(size, 7, "order");
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) seen.insert(permutation(i));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
  const Permutation a(1000, 7, "order"), b(1000, 8, "order");
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) same += a(i) == b(i);
  EXPECT_LT(same, 20);
}

TEST(File, AtomicWriteKeepsTheOldFileOnFailure) {
  const TestDirectory place;
  const std::string directory = place / "atomic";
  std::filesystem::remove_all(directory);
  CreateDirectories(directory);
  const std::string path = directory + "/file";
  WriteFileAtomically(path, "old");
  {
    AtomicFile abandoned(path);
    abandoned.Write("new");
  }
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1);
  WriteFileAtomically(path, "new");
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_EQ(HashFile(path), HashBytes("new"));
}

TEST(File, FullDiskLeavesTheOldFile) {
  const TestDirectory place;
  const std::string directory = place / "full_disk";
  std::filesystem::remove_all(directory);
  CreateDirectories(directory);
  const std::string path = directory + "/file";
  WriteFileAtomically(path, "old");
  // The temporary file leads to a device that answers every write with "no space left".
  std::filesystem::create_symlink("/dev/full", path + ".tmp" + std::to_string(::getpid()));
  const ErrorParts parts = FailureOf([&] { WriteFileAtomically(path, "new"); });
  EXPECT_NE(parts.what.find("No space left"), std::string::npos) << parts.what;
  EXPECT_EQ(parts.where, path);
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 1);
}

TEST(File, WhatAKilledWriterLeftIsRemovedAndNothingElse) {
  const TestDirectory place;
  const std::string directory = place / "unfinished";
  std::filesystem::remove_all(directory);
  CreateDirectories(directory);
  for (const char* name : {"a", "a.tmp12", "a.tmp", "a.tmp12x", "b.tmp12"}) {
    std::ofstream(directory + "/" + name) << "x";
  }
  RemoveUnfinished(directory + "/a");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"a", "a.tmp", "a.tmp12x", "b.tmp12"}));
  std::filesystem::remove_all(directory);
}

TEST(File, ADirectoryIsLockedForOneAtATime) {
  const TestDirectory place;
  const std::string directory = place / "locked";
  CreateDirectories(directory);
  {
    const DirectoryLock lock(directory, "writes");
    EXPECT_EQ(FailureOf([&] { DirectoryLock(directory, "writes"); }).what,
              "another process writes in this directory");
  }
  DirectoryLock(directory, "writes");
  EXPECT_EQ(FailureOf([&] { DirectoryLock(directory + "/none", "writes"); }).where,
            directory + "/none");
  std::filesystem::remove_all(directory);
}

TEST(Process, EndsAreTold) {
  const TestDirectory place;
  const std::string log = place / "process.log";
  ChildProcess fails({"/bin/sh", "-c", "echo out; echo error >&2; exit 3"}, log);
  const ProcessEnd end = fails.Wait();
  EXPECT_EQ(end.status, 3);
  EXPECT_FALSE(end.succeeded());
  EXPECT_EQ(ReadFile(log), "out\nerror\n");
  EXPECT_TRUE(ChildProcess({"/bin/sh", "-c", ":"}, log).Wait().succeeded());

  ChildProcess sleeps({"/bin/sh", "-c", "exec sleep 100"}, log);
  EXPECT_FALSE(sleeps.Poll().has_value());
  sleeps.Kill();
  EXPECT_EQ(sleeps.Wait().signal, SIGKILL);
  fails.Kill();  // ended long ago
  EXPECT_EQ(fails.Wait().status, 3);
  EXPECT_EQ(FailureOf([&] { ChildProcess({"/no/such/program"}, log).Wait(); }).where,
            "/no/such/program");
}

TEST(File, MissingPathsAreErrors) {
  EXPECT_THROW(ReadFile(TestDirectory() / "no-such-file"), Error);
  EXPECT_THROW(WriteFileAtomically("/no-such-directory/file", "x"), Error);
  EXPECT_THROW(ReadFile("/"), Error);
}

TEST(Format, ReadsLikeAPerson) {
  EXPECT_EQ(WithThousands(113246208), "113,246,208");
  EXPECT_EQ(WithThousands(-1000), "-1,000");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(Abbreviated(113246208), "113.2M");
  EXPECT_EQ(Abbreviated(4096), "4096");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanDuration(65), "1m05s");
  EXPECT_EQ(HumanDuration(3725), "1h02m");
}

TEST(Interrupt, OneKeystrokeIsARequestAnotherEndsTheProcess) {
  EXPECT_EXIT(
      {
        CatchInterrupts();
        std::raise(SIGINT);
        std::raise(SIGINT);  // the same keystroke, by another way
        std::exit(InterruptRequested() ? 42 : 0);
      },
      ::testing::ExitedWithCode(42), "");
  EXPECT_EXIT(
      {
        CatchInterrupts();
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
        std::raise(SIGINT);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Cpu, ThreadsFollowTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableThreads(), 1);
  EXPECT_EQ(ResolveThreads(0, "threads"), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

namespace fs = std::filesystem;

// A file system with what the kernel says of control groups, and nothing else.
class CgroupTree {
 public:
  explicit CgroupTree(const std::string& membership) { Write("/proc/self/cgroup", membership); }
  CgroupTree& Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return *this;
  }
  int Threads() const { return AvailableThreads(root_); }

 private:
  const TestDirectory place_;
  const std::string root_ = place_.path();
};

TEST(Cpu, ThreadsFollowTheCgroupQuota) {
  const int all = CgroupTree("").Threads();
  EXPECT_EQ(CgroupTree("garbage\n\n").Threads(), all);
  const auto least = [&](int quota) { return std::min(all, quota); };
  const std::string mount = "/sys/fs/cgroup";
  // Version 2. The quota is that of the process's group or of one above it, whichever is less, and
  // is rounded up.
  const auto v2 = [&](const std::string& quota) {
    return CgroupTree("0::/a/b\n").Write(mount + "/a/b/cpu.max", quota).Threads();
  };
  EXPECT_EQ(v2("50000 100000\n"), 1);
  EXPECT_EQ(v2("1000 100000\n"), 1);
  EXPECT_EQ(v2("100000 100000\n"), 1);
  EXPECT_EQ(v2("150000 100000\n"), least(2));
  EXPECT_EQ(v2("100001 100000\n"), least(2));
  EXPECT_EQ(v2("100000000 100000\n"), all);
  EXPECT_EQ(v2("max 100000\n"), all);
  EXPECT_EQ(v2("max\n"), all);
  EXPECT_EQ(v2(""), all);
  EXPECT_EQ(v2("100000 0\n"), all);
  EXPECT_EQ(CgroupTree("0::/a/b\n")
                .Write(mount + "/a/cpu.max", "100000 100000\n")
                .Write(mount + "/a/b/cpu.max", "max 100000\n")
                .Threads(),
            1);
  EXPECT_EQ(CgroupTree("0::/a/b\n")
                .Write(mount + "/a/cpu.max", "max 100000\n")
                .Write(mount + "/a/b/cpu.max", "80000 100000\n")
                .Threads(),
            1);
  // In a container the group is the root of what is mounted.
  EXPECT_EQ(CgroupTree("0::/\n").Write(mount + "/cpu.max", "90000 100000\n").Threads(), 1);
  // A group beside the process's says nothing.
  EXPECT_EQ(CgroupTree("0::/a\n").Write(mount + "/b/cpu.max", "100000 100000\n").Threads(), all);
  // Version 1: two files below the controller's mount, -1 without a quota.
  const auto v1 = [&](const std::string& quota, const std::string& group) {
    return CgroupTree("5:cpuset:/\n4:cpu,cpuacct:/a/b\n1:name=systemd:/a\n0::/a\n")
        .Write(mount + "/cpu,cpuacct" + group + "/cpu.cfs_quota_us", quota)
        .Write(mount + "/cpu,cpuacct" + group + "/cpu.cfs_period_us", "100000\n")
        .Threads();
  };
  EXPECT_EQ(v1("100000\n", "/a/b"), 1);
  EXPECT_EQ(v1("150000\n", "/a/b"), least(2));
  EXPECT_EQ(v1("30000\n", "/a"), 1);
  EXPECT_EQ(v1("30000\n", ""), 1);  // the path is the host's, the mount the container's
  EXPECT_EQ(v1("-1\n", "/a/b"), all);
}

TEST(Cpu, ThreadsAndMemoryAreKnown) {
  EXPECT_GE(AvailableThreads(), 1);
  EXPECT_EQ(ResolveThreads(0, "threads"), AvailableThreads());
  EXPECT_EQ(ResolveThreads(3, "threads"), 3);
  EXPECT_EQ(FailureOf([] { ResolveThreads(100000, "threads"); }).where, "threads");
  EXPECT_THROW(ResolveThreads(-1, "threads"), Error);
  ASSERT_TRUE(PeakMemoryBytes().has_value());
  EXPECT_GT(*PeakMemoryBytes(), 1 << 20);
  ASSERT_TRUE(AvailableMemoryBytes().has_value());
  EXPECT_GT(*AvailableMemoryBytes(), 1 << 20);
}

}  // namespace
}  // namespace sandglass
