// Self-contained pages: tables are HTML that is written here, charts are drawn by Chart.js, which
// is part of every page. A page opens offline and loads nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace sandglass {

// For text and quoted attribute values.
std::string Escaped(std::string_view text);

// `text` with each {{name}} replaced by its value; values are not searched again. A name that is
// not among the values is a bug.
std::string Filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string>>& values);

// Rows of cells that are HTML already; the first cell of a row is its heading.
std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows);

struct Definition {
  std::string name;
  std::string value;
};
// Entries of a <dl>; name and value are text.
std::string Definitions(const std::vector<Definition>& entries);

std::string Small(const std::string& html);

struct Page {
  std::string title;   // text, as are the next four
  std::string kicker;  // what kind of page this is
  std::string lead;    // what it is about
  std::string version;
  std::string date;
  std::string body;         // HTML between heading and footer
  Json data;                // what `script` draws; NaN and infinity become null
  std::string_view script;  // sees `page`, the helpers of assets/page.js, and `page.data`
};

// The whole document.
std::string RenderPage(const Page& page);

}  // namespace sandglass
