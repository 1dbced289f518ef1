#include "base/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"

namespace sandglass {
namespace {

class TreeBuilder {
 public:
  explicit TreeBuilder(ConfigTree& tree) : tree_(tree) {}

  Json Convert(const toml::node& node, const std::string& path) {
    tree_.lines[path] = static_cast<int>(node.source().begin.line);
    if (const auto* table = node.as_table()) {
      // toml++ sorts keys; restore the order of the file.
      std::vector<std::pair<toml::source_position, std::string>> keys;
      for (const auto& [key, value] : *table)
        keys.push_back({value.source().begin, std::string(key.str())});
      std::stable_sort(keys.begin(), keys.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      Json object = Json::object();
      for (const auto& [position, key] : keys) {
        object[key] = Convert(*table->get(key), path.empty() ? key : path + "." + key);
      }
      return object;
    }
    if (const auto* array = node.as_array()) {
      Json list = Json::array();
      for (size_t i = 0; i < array->size(); ++i) {
        list.push_back(Convert(*array->get(i), fmt::format("{}[{}]", path, i)));
      }
      return list;
    }
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return integer->get();
    if (const auto* real = node.as_floating_point()) return real->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    throw Error({.what = "dates and times have no use in this configuration",
                 .where = fmt::format("{}:{}, {}", tree_.source, node.source().begin.line, path),
                 .expected = "a string, number, boolean, array or table"});
  }

 private:
  ConfigTree& tree_;
};

void WriteTomlTable(const Json& table, const std::string& path, std::string& out) {
  const auto is_table_list = [](const Json& value) {
    return value.is_array() && !value.empty() && value.front().is_object();
  };
  for (const auto& [key, value] : table.items()) {
    if (value.is_object() || is_table_list(value) || value.is_null()) continue;
    out += fmt::format("{} = {}\n", key, value.dump());
  }
  for (const auto& [key, value] : table.items()) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      out += fmt::format("\n[{}]\n", name);
      WriteTomlTable(value, name, out);
    } else if (is_table_list(value)) {
      for (const Json& element : value) {
        out += fmt::format("\n[[{}]]\n", name);
        WriteTomlTable(element, name, out);
      }
    }
  }
}

}  // namespace

ConfigTree ParseToml(std::string_view text, std::string source) {
  ConfigTree tree;
  tree.source = std::move(source);
  try {
    const toml::table table = toml::parse(text);
    tree.values = TreeBuilder(tree).Convert(table, "");
  } catch (const toml::parse_error& failure) {
    throw Error({.what = fmt::format("not valid TOML: {}", failure.description()),
                 .where = fmt::format("{}:{}:{}", tree.source, failure.source().begin.line,
                                      failure.source().begin.column),
                 .expected = "key = value lines under [table] headings (https://toml.io)"});
  }
  return tree;
}

ConfigTree LoadToml(const std::string& path) { return ParseToml(ReadFile(path), path); }

ConfigTree ParseAssignment(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error({.what = fmt::format("\"{}\" assigns nothing", assignment),
                 .where = "--set",
                 .expected = "key=value, for example train.tokens=2e6"});
  }
  const std::string key = assignment.substr(0, equals);
  const std::string text = assignment.substr(equals + 1);
  Json value;
  try {
    value = ParseToml("value = " + text, "--set").values.at("value");
  } catch (const Error&) {
    value = text;
  }
  ConfigTree tree;
  tree.source = "--set " + assignment;
  std::string pointer;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    if (end == begin) {
      throw Error({.what = fmt::format("\"{}\" is not a key", key),
                   .where = tree.source,
                   .expected = "names joined by single dots, for example train.tokens"});
    }
    pointer += "/" + key.substr(begin, end - begin);
    begin = end + 1;
  }
  tree.values[Json::json_pointer(pointer)] = std::move(value);
  return tree;
}

std::string ToToml(const Json& values) {
  std::string out;
  WriteTomlTable(values, "", out);
  return out;
}

}  // namespace sandglass
