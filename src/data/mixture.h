// Which source of a mixture each training sample comes from.
#pragma once

#include <cstdint>
#include <vector>

namespace sandglass {

// Sources with shares a_0, a_1, ... take turns so that every window of positions holds each in
// proportion, to within one sample per source: of the first p positions source 0 has
// floor(p a_0 / sum), the others divide what is left in the same way. No memory, no state: the
// position alone says whose turn it is and how many turns that source had before.
class MixtureOrder {
 public:
  struct Turn {
    int source = 0;
    int64_t index = 0;  // turns of this source before
  };

  // At least one share, all of them above 0, with a sum below 2^62.
  explicit MixtureOrder(std::vector<uint64_t> shares);

  // position >= 0.
  Turn At(int64_t position) const;

 private:
  std::vector<uint64_t> shares_;
  std::vector<uint64_t> rest_;  // rest_[i]: sum of the shares from i on
};

}  // namespace sandglass
