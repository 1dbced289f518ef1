#include "html/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace sandglass {

// Embedded at build time.
extern const std::string_view kChartLibrary;
extern const std::string_view kPageScript;
extern const std::string_view kPageStyle;
extern const std::string_view kPageTemplate;

namespace {

// JSON that cannot end the script element it stands in: '<' occurs in strings only, where it can
// be written as an escape. Bytes that are not UTF-8 become U+FFFD.
std::string ScriptJson(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  while (true) {
    const size_t open = text.find("{{");
    out += text.substr(0, open);
    if (open == std::string_view::npos) return out;
    const size_t close = text.find("}}", open);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    const auto value = std::find_if(values.begin(), values.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    SANDGLASS_CHECK(value != values.end(), "the template names a value that is not given");
    out += value->second;
    text.remove_prefix(close + 2);
  }
}

std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"scroll\"><table>\n<thead><tr>";
  for (const std::string& cell : header) out += "<th scope=\"col\">" + cell + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr><th scope=\"row\">" + row[0] + "</th>";
    for (size_t i = 1; i < row.size(); ++i) out += "<td>" + row[i] + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table></div>";
}

std::string Definitions(const std::vector<Definition>& entries) {
  std::string out;
  for (const Definition& entry : entries) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", Escaped(entry.name),
                       Escaped(entry.value));
  }
  return out;
}

std::string Small(const std::string& html) { return "<small>" + html + "</small>"; }

std::string RenderPage(const Page& page) {
  return Filled(kPageTemplate, {{"title", Escaped(page.title)},
                                {"kicker", Escaped(page.kicker)},
                                {"lead", Escaped(page.lead)},
                                {"version", Escaped(page.version)},
                                {"date", Escaped(page.date)},
                                {"style", std::string(kPageStyle)},
                                {"body", page.body},
                                {"data", ScriptJson(page.data)},
                                {"chart_library", std::string(kChartLibrary)},
                                {"page_script", std::string(kPageScript)},
                                {"script", std::string(page.script)}});
}

}  // namespace sandglass
