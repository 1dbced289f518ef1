// For tests alone.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace sandglass {

// The parts of the Error that `action` throws; a test failure if it throws none.
ErrorParts FailureOf(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.parts();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

// A directory of its own, also where several programs run the same tests; empty at first and
// removed at the end.
class TestDirectory {
 public:
  TestDirectory() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    static int made = 0;
    std::string name = fmt::format("sandglass-{}-{}-{}-{}", test->test_suite_name(), test->name(),
                                   ::getpid(), ++made);
    std::ranges::replace(name, '/', '-');  // in the names of parameterised tests
    path_ = std::filesystem::path(::testing::TempDir()) / name;
    CreateDirectories(path_.string());
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file, with the directories it needs, and returns its path.
  std::string Write(const std::string& name, std::string_view contents) const {
    const std::filesystem::path path = path_ / name;
    CreateDirectories(path.parent_path().string());
    WriteFileAtomically(path.string(), contents);
    return path.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Text to train small models on: words drawn from a short list, thirty to a paragraph.
inline std::string RandomText(int paragraphs) {
  constexpr const char* kWords[] = {"in",  "the",   "beginning", "was",   "a",    "word",
                                    "and", "light", "shines",    "still", "here", "again"};
  RandomStream random(1, "text");
  std::string text;
  for (int paragraph = 0; paragraph < paragraphs; ++paragraph) {
    for (int word = 0; word < 30; ++word) text += std::string(kWords[random.NextBelow(12)]) + " ";
    text += "\n\n";
  }
  return text;
}

}  // namespace sandglass
