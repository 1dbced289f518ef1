#include "base/fields.h"

#include <fmt/format.h>

namespace sandglass::fields_internal {

std::string Where(const ConfigTree& tree, const std::string& path) {
  const auto line = tree.lines.find(path);
  std::string where = tree.source;
  if (line != tree.lines.end() && line->second > 0) where += fmt::format(":{}", line->second);
  if (!path.empty()) where += (where.empty() ? "" : ", ") + path;
  return where;
}

void FailType(const Json& value, const char* expected, const std::string& where) {
  throw Error({.what = fmt::format("{} has the wrong type", value.dump()),
               .where = where,
               .expected = expected});
}

void FailUnknownKey(const std::string& key, const std::string& where,
                    const std::vector<std::string>& known) {
  std::string expected = "one of";
  for (const std::string& name : known) expected += " " + name;
  throw Error({.what = fmt::format("unknown key \"{}\"", key),
               .where = where,
               .expected = expected,
               .remedy = DidYouMean(key, known)});
}

}  // namespace sandglass::fields_internal
