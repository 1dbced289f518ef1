// How verbs show results.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace sandglass {

enum class OutputFormat { kText, kJson };

// Standard output did not take a result: a full disk, say.
inline Error CannotWriteResult() {
  return Error({.what = "cannot write the result to standard output",
                .remedy = "free some space, or write to another place"});
}

inline void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw CannotWriteResult();
  }
}

inline void PrintJson(const Json& value) { Print(value.dump(2) + "\n"); }

// Notes go to standard error, so that standard output holds results alone.
inline void PrintNote(std::string_view note) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(note.size()), note.data());
}

// Every key of a configuration file, with its help and its default.
inline void PrintKeys(const std::vector<FieldDescription>& fields) {
  for (const FieldDescription& field : fields) {
    Print(
        fmt::format("{:36} {}{}\n", field.path, field.help,
                    field.default_value.empty() ? "" : fmt::format(" [{}]", field.default_value)));
  }
}

}  // namespace sandglass
