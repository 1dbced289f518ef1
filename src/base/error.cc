#include "base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace sandglass {
namespace {

std::string Render(const ErrorParts& parts) {
  std::string text = parts.what;
  const auto add = [&text](const char* label, const std::string& value) {
    if (!value.empty()) text += std::string("\n  ") + label + value;
  };
  add("where:    ", parts.where);
  add("expected: ", parts.expected);
  add("try:      ", parts.remedy);
  return text;
}

// Edits that turn a into b: a letter put in, left out or replaced, or two neighbours swapped.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

Error::Error(ErrorParts parts) : std::runtime_error(Render(parts)), parts_(std::move(parts)) {}

void FailCheck(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "sandglass: internal error at %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

std::string ClosestMatch(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best == nullptr) return "";
  const size_t longer = std::max(word.size(), best->size());
  return best_distance <= std::max<size_t>(1, longer / 3) ? *best : "";
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string match = ClosestMatch(word, candidates);
  return match.empty() ? "" : "did you mean \"" + match + "\"?";
}

}  // namespace sandglass
