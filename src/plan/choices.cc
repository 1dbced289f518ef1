#include "plan/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace sandglass {
namespace {

template <class Number>
std::optional<Number> ReadNumber(std::string_view text) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Splits at the first `separator`; the second half is absent where there is none.
std::pair<std::string_view, std::optional<std::string_view>> SplitOnce(std::string_view text,
                                                                       std::string_view separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

}  // namespace

Choices Choices::Parse(std::string_view text) {
  constexpr int kMaxValue = 1 << 20;
  const auto fail = [&](std::string_view part) {
    throw Error({.what = fmt::format("cannot choose sizes from \"{}\"", part),
                 .where = part == text ? "" : fmt::format("\"{}\"", text),
                 .expected = "whole numbers from 1 to 1048576, such as 4 or 2,4,8, or ranges such "
                             "as 8..24 or 256..4096:64 (with a step)"});
  };
  const auto read = [&](std::string_view number, std::string_view part) {
    const auto value = ReadNumber<int>(number);
    if (!value || *value < 1 || *value > kMaxValue) fail(part);
    return *value;
  };
  Choices choices;
  choices.text_ = text;
  for (std::optional<std::string_view> rest = text; rest && !text.empty();) {
    const auto [part, after] = SplitOnce(*rest, ",");
    const auto [range, step_text] = SplitOnce(part, ":");
    const auto [first_text, last_text] = SplitOnce(range, "..");
    const int first = read(first_text, part);
    const int last = last_text ? read(*last_text, part) : first;
    const int step = step_text ? read(*step_text, part) : 1;
    if (last < first || (step_text && !last_text)) fail(part);
    for (int value = first; value <= last; value += step) choices.values_.push_back(value);
    rest = after;
  }
  std::sort(choices.values_.begin(), choices.values_.end());
  choices.values_.erase(std::unique(choices.values_.begin(), choices.values_.end()),
                        choices.values_.end());
  return choices;
}

Range Range::Parse(std::string_view text) {
  if (text.empty()) return {};
  const auto [low_text, high_text] = SplitOnce(text, "..");
  const auto low = ReadNumber<double>(low_text);
  const auto high = high_text ? ReadNumber<double>(*high_text) : low;
  if (!low || !high || !(*low > 0.0) || !(*high >= *low) || !std::isfinite(*high)) {
    throw Error({.what = fmt::format("\"{}\" is not a range of ratios", text),
                 .expected = "a positive number such as 0.4, or a range such as 0.3..0.5"});
  }
  return {*low, *high};
}

std::string Range::ToString() const {
  if (any()) return "";
  return low == high ? fmt::format("{}", low) : fmt::format("{}..{}", low, high);
}

}  // namespace sandglass
