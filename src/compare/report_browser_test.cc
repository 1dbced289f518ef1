// Opens the report in headless Chromium: what a reader's browser makes of it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "compare/report.h"
#include "compare/report_example.h"

namespace sandglass {
namespace {

struct Opened {
  int status = -1;
  std::string dom;  // after the scripts have run
  std::string log;
};

// --no-sandbox lets Chromium run as root, as it does in containers.
Opened OpenInBrowser(const std::string& html) {
  const std::string directory =
      fmt::format("{}sandglass-report-{}", testing::TempDir(), ::getpid());
  CreateDirectories(directory);
  WriteFileAtomically(directory + "/report.html", html);
  const std::string command = fmt::format(
      "{0} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--user-data-dir='{1}/profile' --virtual-time-budget=10000 --enable-logging=stderr --v=0 "
      "--window-size=1280,2000 --dump-dom 'file://{1}/report.html' >'{1}/dom' 2>'{1}/log'",
      SANDGLASS_CHROMIUM, directory);
  Opened opened;
  opened.status = std::system(command.c_str());
  opened.dom = ReadFile(directory + "/dom");
  opened.log = ReadFile(directory + "/log");
  std::filesystem::remove_all(directory);
  return opened;
}

// The page in a frame as wide as a phone (a browser window has a larger minimum), with what the
// frame shows written on the outer page.
std::string OnAPhone(const std::string& html) {
  std::string source;
  for (const char c : html) {
    if (c == '&') {
      source += "&amp;";
    } else if (c == '"') {
      source += "&quot;";
    } else {
      source += c;
    }
  }
  return "<!doctype html><iframe width=390 height=2000 srcdoc=\"" + source +
         "\"></iframe><script>setTimeout(() => {"
         "const page = document.querySelector('iframe').contentDocument;"
         "const root = page.documentElement;"
         "const out = document.documentElement.dataset;"
         "out.charts = page.querySelectorAll('[data-drawn=yes]').length;"
         "out.sideways = root.scrollWidth > root.clientWidth ? 'yes' : 'no';"
         "}, 2000);</script>";
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// The lines that pages write: errors, exceptions, refused requests.
std::string ConsoleLines(const std::string& log) {
  std::string out;
  for (size_t at = 0; (at = log.find("CONSOLE", at)) != std::string::npos;) {
    const size_t end = std::min(log.find('\n', at), log.size());
    out += log.substr(at, end - at) + '\n';
    at = end;
  }
  return out;
}

void ExpectDrawn(const Opened& opened, int charts) {
  EXPECT_EQ(opened.status, 0) << opened.log;
  EXPECT_EQ(ConsoleLines(opened.log), "");
  EXPECT_EQ(Count(opened.dom, "data-charts=\"ready\""), 1);
  EXPECT_EQ(Count(opened.dom, "data-drawn=\"yes\""), charts);
  EXPECT_EQ(Count(opened.dom, "data-drawn=\"blank\""), 0);
}

TEST(ReportInBrowser, ARealisticReportDrawsEveryChart) {
  ExpectDrawn(OpenInBrowser(RenderHtml(ExampleReport())), 5);
}

TEST(ReportInBrowser, APhoneScrollsOnlyDownwards) {
  const Opened opened = OpenInBrowser(OnAPhone(RenderHtml(ExampleReport())));
  EXPECT_EQ(opened.status, 0) << opened.log;
  EXPECT_EQ(ConsoleLines(opened.log), "");
  EXPECT_EQ(Count(opened.dom, "<html data-charts=\"5\" data-sideways=\"no\">"), 1);
}

TEST(ReportInBrowser, HostileNamesAndMissingResultsDoNoHarm) {
  ReportData data = ExampleReport();
  data.baseline = data.variants[0].name = "</script><script>throw 'x'</script>\"'&<!--";
  data.variants[1].runs.clear();
  data.variants[2].runs[0].bits_per_byte = std::nan("");
  data.variants[3].runs[0].status = RunStatus::kFailed;
  ExpectDrawn(OpenInBrowser(RenderHtml(data)), 4);
}

// The checks above can fail: a page that throws is noticed, and an empty canvas is.
TEST(ReportInBrowser, ABrokenPageIsNoticed) {
  std::string html = RenderHtml(ExampleReport());
  html.replace(html.find("</body>"), 7,
               "<canvas></canvas><script>nosuchfunction()</script></body>");
  const Opened opened = OpenInBrowser(html);
  EXPECT_NE(ConsoleLines(opened.log).find("nosuchfunction"), std::string::npos);
  EXPECT_EQ(Count(opened.dom, "data-drawn=\"blank\""), 1);
}

}  // namespace
}  // namespace sandglass
