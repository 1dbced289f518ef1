#include "data/added_tokens.h"

#include <algorithm>
#include <cstring>

namespace sandglass {

void NameFinder::Add(std::string name, int32_t id) {
  const auto first = static_cast<unsigned char>(name[0]);
  only_first_byte_ = empty() || only_first_byte_ == first ? std::optional(first) : std::nullopt;
  if (name.size() == 1) {
    single_[first] = true;
  } else {
    openings_[first << 8 | static_cast<unsigned char>(name[1])] = true;
  }
  std::vector<size_t>& lengths = lengths_[first];
  if (std::ranges::find(lengths, name.size()) == lengths.end()) {
    lengths.insert(std::ranges::lower_bound(lengths, name.size(), std::greater{}), name.size());
  }
  ids_.emplace(std::move(name), id);
}

std::optional<NameFinder::Found> NameFinder::Find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t i = from; i < text.size(); ++i) {
    if (only_first_byte_) {
      const void* found = std::memchr(text.data() + i, *only_first_byte_, text.size() - i);
      if (found == nullptr) return std::nullopt;
      i = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    }
    const auto first = static_cast<unsigned char>(text[i]);
    if (lengths_[first].empty()) continue;
    const bool opens =
        i + 1 < text.size() && openings_[first << 8 | static_cast<unsigned char>(text[i + 1])];
    if (!opens && !single_[first]) continue;
    for (const size_t length : lengths_[first]) {
      if (length > text.size() - i) continue;
      if (const auto found = ids_.find(text.substr(i, length)); found != ids_.end()) {
        return Found{i, i + length, found->second};
      }
    }
  }
  return std::nullopt;
}

}  // namespace sandglass
