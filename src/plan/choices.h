// Sizes to choose from, as command lines and recipes write them.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace sandglass {

// Whole numbers: "4", "8..24", "256..4096:64" (a range with its step), or several of these with
// commas between them. Empty means that nothing was chosen.
class Choices {
 public:
  Choices() = default;
  // Throws Error for text that is not of this form, or numbers outside 1..2^20.
  static Choices Parse(std::string_view text);
  static Choices Of(int value) { return Parse(std::to_string(value)); }

  // As it was written; Parse reads it back.
  const std::string& ToString() const { return text_; }
  // Ascending, each once.
  const std::vector<int>& values() const { return values_; }
  bool empty() const { return values_.empty(); }

 private:
  std::string text_;
  std::vector<int> values_;
};

// Real numbers from `low` to `high`: "0.3..0.5", or "0.4" for that number alone. Empty text means
// any number.
struct Range {
  double low = 0.0;
  double high = std::numeric_limits<double>::infinity();

  // Throws Error for text that is not of this form, or numbers that are not positive.
  static Range Parse(std::string_view text);
  std::string ToString() const;
  bool any() const { return low == 0.0 && high == std::numeric_limits<double>::infinity(); }
};

}  // namespace sandglass
