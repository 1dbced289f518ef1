// For tests alone: opens a page in headless Chromium and says what a reader's browser makes of it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace sandglass {

struct OpenedPage {
  int status = -1;
  std::string dom;  // after the scripts have run
  std::string log;
};

// --no-sandbox lets Chromium run as root, as it does in containers.
inline OpenedPage OpenInBrowser(const std::string& html) {
  const std::string directory = fmt::format("{}sandglass-page-{}", testing::TempDir(), ::getpid());
  CreateDirectories(directory);
  WriteFileAtomically(directory + "/page.html", html);
  const std::string command = fmt::format(
      "{0} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--user-data-dir='{1}/profile' --virtual-time-budget=10000 --enable-logging=stderr --v=0 "
      "--window-size=1280,2000 --dump-dom 'file://{1}/page.html' >'{1}/dom' 2>'{1}/log'",
      SANDGLASS_CHROMIUM, directory);
  OpenedPage opened;
  opened.status = std::system(command.c_str());
  opened.dom = ReadFile(directory + "/dom");
  opened.log = ReadFile(directory + "/log");
  std::filesystem::remove_all(directory);
  return opened;
}

inline int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// The lines that pages write: errors, exceptions, refused requests.
inline std::string ConsoleLines(const std::string& log) {
  std::string out;
  for (size_t at = 0; (at = log.find("CONSOLE", at)) != std::string::npos;) {
    const size_t end = std::min(log.find('\n', at), log.size());
    out += log.substr(at, end - at) + '\n';
    at = end;
  }
  return out;
}

// The page ran without a word of complaint and left nothing blank.
inline void ExpectDrawn(const OpenedPage& opened, int charts) {
  EXPECT_EQ(opened.status, 0) << opened.log;
  EXPECT_EQ(ConsoleLines(opened.log), "");
  EXPECT_EQ(CountOf(opened.dom, "data-charts=\"ready\""), 1);
  EXPECT_EQ(CountOf(opened.dom, "data-drawn=\"yes\""), charts);
  EXPECT_EQ(CountOf(opened.dom, "data-drawn=\"blank\""), 0);
}

}  // namespace sandglass
