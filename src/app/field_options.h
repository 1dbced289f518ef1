// Command-line options from declared fields (base/fields.h), so that a recipe and the command line
// know the same names, defaults and help.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <type_traits>

#include "base/fields.h"

namespace sandglass {

// A visitor for VisitFields: field `text_key` becomes `--text-key`, a list `names` the repeatable
// `--name`, and the list `inputs` the positional arguments INPUT.
class FieldOptions {
 public:
  explicit FieldOptions(CLI::App& verb) : verb_(verb) {}

  template <class T>
  void operator()(const char* name, T& field, const char* help) const {
    std::string flag = "--" + std::string(name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    if constexpr (std::is_enum_v<T>) {
      verb_
          .add_option_function<std::string>(
              flag, [&field, flag](const std::string& text) { field = ParseEnum<T>(text, flag); },
              help)
          ->default_str(EnumName(field));
    } else if constexpr (fields_internal::IsVector<T>::value) {
      if (flag == "--inputs") {
        verb_.add_option("INPUT", field, help);
      } else {
        flag.pop_back();
        verb_.add_option(flag, field, help)->allow_extra_args(false);
      }
    } else {
      verb_.add_option(flag, field, help)->capture_default_str();
    }
  }

 private:
  CLI::App& verb_;
};

}  // namespace sandglass
