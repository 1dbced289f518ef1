// Opens the report in headless Chromium: what a reader's browser makes of it.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/report.h"
#include "compare/report_example.h"
#include "html/browser_testing.h"

namespace sandglass {
namespace {

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
         "\"></iframe><script>const timer = setInterval(() => {"
         "const page = document.querySelector('iframe').contentDocument;"
         "const root = page.documentElement;"
         "if (root.dataset.charts !== 'ready') return;"
         "clearInterval(timer);"
         "const out = document.documentElement.dataset;"
         "out.charts = page.querySelectorAll('[data-drawn=yes]').length;"
         "out.sideways = root.scrollWidth > root.clientWidth ? 'yes' : 'no';"
         "}, 100);</script>";
}

TEST(ReportInBrowser, ARealisticReportDrawsEveryChart) {
  ExpectDrawn(OpenInBrowser(RenderHtml(ExampleReport())), 5);
}

TEST(ReportInBrowser, APhoneScrollsOnlyDownwards) {
  const OpenedPage opened = OpenInBrowser(OnAPhone(RenderHtml(ExampleReport())));
  EXPECT_EQ(opened.status, 0) << opened.log;
  EXPECT_EQ(ConsoleLines(opened.log), "");
  EXPECT_EQ(CountOf(opened.dom, "<html data-charts=\"5\" data-sideways=\"no\">"), 1)
      << opened.dom.substr(0, 200);
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
  const OpenedPage opened = OpenInBrowser(html);
  EXPECT_NE(ConsoleLines(opened.log).find("nosuchfunction"), std::string::npos);
  EXPECT_EQ(CountOf(opened.dom, "data-drawn=\"blank\""), 1);
}

}  // namespace
}  // namespace sandglass
