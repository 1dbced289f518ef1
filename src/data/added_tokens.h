// Finding the names of added tokens in text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sandglass {

class NameFinder {
 public:
  // `name` must not be empty. Of equal names the first counts.
  void Add(std::string name, int32_t id);

  bool empty() const { return ids_.empty(); }

  struct Found {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };
  // The first name in `text` from `from` on; where several begin, the longest.
  std::optional<Found> Find(std::string_view text, size_t from) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::array<std::vector<size_t>, 256> lengths_;  // of the names by first byte, descending
  std::vector<bool> openings_ = std::vector<bool>(size_t{1} << 16);  // first two bytes of a name
  std::array<bool, 256> single_{};                                   // names of one byte
  std::optional<unsigned char> only_first_byte_;
};

}  // namespace sandglass
