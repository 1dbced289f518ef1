#include "base/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sandglass::fields_internal {

std::string Where(const ConfigTree& tree, const std::string& path) {
  const auto line = tree.lines.find(path);
  std::string where = tree.source;
  if (line != tree.lines.end() && line->second > 0) where += fmt::format(":{}", line->second);
  // A path that begins with an index is an element of a flag's list: the flag says enough.
  const bool element_of_flag = path.starts_with('[') && !where.empty();
  if (!path.empty() && !element_of_flag) where += (where.empty() ? "" : ", ") + path;
  return where;
}

std::string ValueText(const Json& value) {
  if (!value.is_number_float()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text = fmt::format("{}", value.get<double>());
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  std::erase(text, '+');
  return text;
}

void FailType(const Json& value, const char* expected, const std::string& where) {
  throw Error(
      {.what = ValueText(value) + " has the wrong type", .where = where, .expected = expected});
}

void FailWhole(const Json& value, int64_t lowest, uint64_t highest, const std::string& where) {
  std::string number = ValueText(value);
  if (value.is_string()) {
    // `--set` keeps as text what TOML cannot hold: an integer beyond 64 bits.
    number = value.get<std::string>();
    const size_t sign = number.starts_with('-') || number.starts_with('+') ? 1 : 0;
    if (number.size() == sign ||
        number.find_first_not_of("0123456789_", sign) != std::string::npos) {
      FailType(value, "a whole number", where);
    }
  } else if (!value.is_number()) {
    FailType(value, "a whole number", where);
  }
  bool whole = true;
  if (value.is_number_float()) {
    const double real = value.get<double>();
    whole = std::isinf(real) || std::floor(real) == real;
  }
  const bool negative = lowest == 0 && number.starts_with('-');
  throw Error({.what = number + (!whole     ? " is not a whole number"
                                 : negative ? " is negative"
                                            : " is out of range"),
               .where = where,
               .expected = fmt::format("a whole number from {} to {}", lowest, highest)});
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
      out.push_back(fmt::format("{} ({}, now {})", name, ValueText(old), ValueText(value)));
    }
  }
}

}  // namespace sandglass::fields_internal
