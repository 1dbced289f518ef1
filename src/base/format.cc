#include "base/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace sandglass {

std::string WithThousands(int64_t value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(at, ",");
  return value < 0 ? "-" + digits : digits;
}

std::string Abbreviated(double value) {
  constexpr std::array<const char*, 6> kSuffixes = {"", "K", "M", "G", "T", "P"};
  if (std::fabs(value) < 10000) {
    return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
  }
  size_t power = 0;
  while (std::fabs(value) >= 999.95 && power + 1 < kSuffixes.size()) {
    value /= 1000;
    ++power;
  }
  return fmt::format("{:.1f}{}", value, kSuffixes[power]);
}

std::string HumanBytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t power = 0;
  while (std::fabs(bytes) >= 1023.95 && power + 1 < kUnits.size()) {
    bytes /= 1024;
    ++power;
  }
  return power == 0 ? fmt::format("{:.0f} B", bytes)
                    : fmt::format("{:.1f} {}", bytes, kUnits[power]);
}

std::string HumanDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace sandglass
