// Errors: a mistake the user can mend throws Error; a bug in Sandglass fails a check.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sandglass {

// What a user-caused failure has to say. Only `what` is required; empty parts are left out.
struct ErrorParts {
  std::string what;      // the value at fault: `unknown key "tokes"`
  std::string where;     // file, line, key or argument: `run.toml:12, [train]`
  std::string expected;  // what would have been right
  std::string remedy;    // what to try next
};

// Thrown for bad input of any kind. The app layer prints it and exits with a non-zero status;
// nothing below the app layer catches it to go on as if nothing had happened.
class Error : public std::runtime_error {
 public:
  explicit Error(ErrorParts parts);
  const ErrorParts& parts() const { return parts_; }

 private:
  ErrorParts parts_;
};

// Fails with a message and the place in the source; never returns. Used through SANDGLASS_CHECK.
[[noreturn]] void FailCheck(const char* file, int line, const char* condition,
                            std::string_view message);

// The candidate closest to `word` by edit distance, or "" if none is close enough to be a likely
// misspelling (more than a third of the letters differ).
std::string ClosestMatch(std::string_view word, const std::vector<std::string>& candidates);

// A remedy line from ClosestMatch: `did you mean "tokens"?`, or "" if nothing is close.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace sandglass

// For conditions that hold unless Sandglass itself has a bug. Kept in release builds.
#define SANDGLASS_CHECK(condition, message)                              \
  do {                                                                   \
    if (!(condition)) [[unlikely]] {                                     \
      ::sandglass::FailCheck(__FILE__, __LINE__, #condition, (message)); \
    }                                                                    \
  } while (false)
