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

// A page of the given width. --no-sandbox lets Chromium run as root, as it does in containers.
Opened OpenInBrowser(const std::string& html, int width) {
  const std::string directory =
      fmt::format("{}sandglass-report-{}", testing::TempDir(), ::getpid());
  CreateDirectories(directory);
  WriteFileAtomically(directory + "/report.html", html);
  const std::string command = fmt::format(
      "{0} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--user-data-dir='{1}/profile' --virtual-time-budget=10000 --enable-logging=stderr --v=0 "
      "--window-size={2},2000 --dump-dom 'file://{1}/report.html' >'{1}/dom' 2>'{1}/log'",
      SANDGLASS_CHROMIUM, directory, width);
  Opened opened;
  opened.status = std::system(command.c_str());
  opened.dom = ReadFile(directory + "/dom");
  opened.log = ReadFile(directory + "/log");
  std::filesystem::remove_all(directory);
  return opened;
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
  ExpectDrawn(OpenInBrowser(RenderHtml(ExampleReport()), 1280), 5);
}

TEST(ReportInBrowser, APhoneScrollsOnlyDownwards) {
  std::string html = RenderHtml(ExampleReport());
  html.replace(html.find("</body>"), 7,
               "<script>document.documentElement.dataset.sideways = "
               "document.documentElement.scrollWidth > innerWidth;</script></body>");
  const Opened opened = OpenInBrowser(html, 390);
  ExpectDrawn(opened, 5);
  EXPECT_EQ(Count(opened.dom, "data-sideways=\"false\""), 1);
}

TEST(ReportInBrowser, HostileNamesAndMissingResultsDoNoHarm) {
  ReportData data = ExampleReport();
  data.baseline = data.variants[0].name = "</script><script>throw 'x'</script>\"'&<!--";
  data.variants[1].runs.clear();
  data.variants[2].runs[0].bits_per_byte = std::nan("");
  data.variants[3].runs[0].status = RunStatus::kFailed;
  ExpectDrawn(OpenInBrowser(RenderHtml(data), 1280), 4);
}

// The checks above can fail: a page that throws is noticed, and an empty canvas is.
TEST(ReportInBrowser, ABrokenPageIsNoticed) {
  std::string html = RenderHtml(ExampleReport());
  html.replace(html.find("</body>"), 7,
               "<canvas></canvas><script>nosuchfunction()</script></body>");
  const Opened opened = OpenInBrowser(html, 1280);
  EXPECT_NE(ConsoleLines(opened.log).find("nosuchfunction"), std::string::npos);
  EXPECT_EQ(Count(opened.dom, "data-drawn=\"blank\""), 1);
}

}  // namespace
}  // namespace sandglass
