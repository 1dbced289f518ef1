#include "data/mixture.h"

#include "base/error.h"

namespace sandglass {

MixtureOrder::MixtureOrder(std::vector<uint64_t> shares)
    : shares_(std::move(shares)), rest_(shares_) {
  SANDGLASS_CHECK(!shares_.empty(), "a mixture of nothing");
  for (size_t i = shares_.size() - 1; i > 0; --i) rest_[i - 1] += rest_[i];
  for (const uint64_t share : shares_) SANDGLASS_CHECK(share > 0, "a source without a share");
  SANDGLASS_CHECK(rest_.front() < uint64_t{1} << 62, "shares beyond 2^62");
}

MixtureOrder::Turn MixtureOrder::At(int64_t position) const {
  SANDGLASS_CHECK(position >= 0, "negative position");
  auto left = static_cast<uint64_t>(position);
  for (size_t i = 0; i + 1 < shares_.size(); ++i) {
    const auto turns = [&](uint64_t positions) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(positions) * shares_[i] /
                                   rest_[i]);
    };
    const uint64_t before = turns(left);
    if (turns(left + 1) > before) return {static_cast<int>(i), static_cast<int64_t>(before)};
    left -= before;
  }
  return {static_cast<int>(shares_.size()) - 1, static_cast<int64_t>(left)};
}

}  // namespace sandglass
