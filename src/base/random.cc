#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"

namespace sandglass {
namespace {

std::array<uint32_t, 2> KeyOf(uint64_t seed, std::string_view name) {
  const uint64_t key = HashBytes(name, seed);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  // Multipliers and Weyl increments from the paper's table for 4x32.
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, std::string_view name) : key_(KeyOf(seed, name)) {}

uint32_t RandomStream::NextU32() {
  const uint64_t index = position_ / 4;
  if (index != block_index_) {
    block_ = Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key_);
    block_index_ = index;
  }
  return block_[position_++ % 4];
}

double RandomStream::NextUniform() {
  const uint64_t high = NextU32();
  const uint64_t low = NextU32();
  return static_cast<double>(((high << 32) | low) >> 11) * 0x1.0p-53;
}

double RandomStream::NextNormal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - NextUniform()));
  return radius * std::cos(2.0 * std::numbers::pi * NextUniform());
}

uint64_t RandomStream::NextBelow(uint64_t bound) {
  SANDGLASS_CHECK(bound >= 1, "an empty range has no random element");
  const uint64_t high = NextU32();
  const uint64_t bits = (high << 32) | NextU32();
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

void RandomStream::Seek(uint64_t position) { position_ = position; }

Permutation::Permutation(uint64_t size, uint64_t seed, std::string_view name)
    : size_(size), key_(KeyOf(seed, name)) {
  SANDGLASS_CHECK(size >= 1, "a permutation needs at least one element");
  const int bits = size == 1 ? 1 : std::bit_width(size - 1);
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t index) const {
  SANDGLASS_CHECK(index < size_, "permutation index out of range");
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const auto mixed = Philox(
          {static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 1}, key_);
      const uint64_t next = left ^ (mixed[0] & mask);
      left = right;
      right = next;
    }
    index = (left << half_bits_) | right;
  } while (index >= size_);
  return index;
}

}  // namespace sandglass
