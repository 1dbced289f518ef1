// TOML files as a tree of JSON values, with the line of every key for error messages.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sandglass {

// A configuration and where each of its values was written.
struct ConfigTree {
  Json values = Json::object();
  std::string source;                // file name, or the command-line argument
  std::map<std::string, int> lines;  // "train.tokens" -> 12; "variant[1].name" for arrays
};

// Throws Error with file and line for a syntax error.
ConfigTree ParseToml(std::string_view text, std::string source);
ConfigTree LoadToml(const std::string& path);

// One `--set key.path=value`. The value is a TOML value; text that is not one counts as a string,
// so that `--set name=first-try` needs no quotes.
ConfigTree ParseAssignment(const std::string& assignment);

// A TOML document that reads back as `values`: plain keys first, then tables, in their order.
std::string ToToml(const Json& values);

}  // namespace sandglass
