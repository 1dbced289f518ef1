#include "base/fields.h"

#include <fmt/format.h>

#include <algorithm>

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

void RequireKeys(const Json& expected, const Json& actual, const ConfigTree& tree,
                 const std::string& path) {
  for (const auto& [key, value] : expected.items()) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (value.is_null()) continue;
    if (!actual.is_object() || !actual.contains(key)) {
      throw Error({.what = fmt::format("\"{}\" is missing", name),
                   .where = Where(tree, path),
                   .expected = "the file as the program wrote it",
                   .remedy = "the file is damaged; restore it, or remove what it belongs to and "
                             "make it again"});
    }
    if (value.is_object()) RequireKeys(value, actual[key], tree, name);
  }
}

void ListDifferences(const Json& before, const Json& after, const std::vector<std::string>& ignored,
                     const std::string& path, std::vector<std::string>& out) {
  for (const auto& [key, value] : after.items()) {
    const std::string name = path.empty() ? key : path + "." + key;
    const Json old = before.is_object() ? before.value(key, Json()) : Json();
    if (old == value || std::find(ignored.begin(), ignored.end(), name) != ignored.end()) continue;
    if (value.is_object() && old.is_object()) {
      ListDifferences(old, value, ignored, name, out);
    } else {
      out.push_back(fmt::format("{} ({}, now {})", name, old.dump(), value.dump()));
    }
  }
}

}  // namespace sandglass::fields_internal
