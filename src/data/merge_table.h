// Looking up merges by the pair of tokens they join.
#pragma once

#include <cstdint>
#include <vector>

namespace sandglass {

using TokenId = int32_t;

// A pair of tokens as one number, ordered as the pairs are.
constexpr uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A hash table with open addressing: one line of memory for most look-ups.
class MergeTable {
 public:
  struct Entry {
    uint64_t key = kNoKey;
    int32_t rank = 0;
    TokenId merged = 0;
  };

  // Makes room for `merges` entries; must come before Set.
  void Reserve(size_t merges) {
    size_t slots = 16;
    shift_ = 60;
    for (; slots < 2 * merges; slots *= 2) --shift_;
    slots_.assign(slots, Entry{});
  }
  // A pair that is there already gets the new values.
  void Set(TokenId left, TokenId right, int32_t rank, TokenId merged) {
    const uint64_t key = PairKey(left, right);
    slots_[Slot(key)] = {key, rank, merged};
  }
  // The merge of the pair, or null.
  const Entry* Find(TokenId left, TokenId right) const {
    const Entry& entry = slots_[Slot(PairKey(left, right))];
    return entry.key == kNoKey ? nullptr : &entry;
  }

 private:
  static constexpr uint64_t kNoKey = ~uint64_t{0};  // ids are not negative

  // Where the key is, or the free slot where it belongs.
  size_t Slot(uint64_t key) const {
    size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[slot].key != key && slots_[slot].key != kNoKey) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  int shift_ = 60;
  std::vector<Entry> slots_ = std::vector<Entry>(16);
};

}  // namespace sandglass
