// Random numbers that do not depend on order or threads: every stream is named by (seed, name) and
// every value in it by its index, so that any part can be recomputed alone.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sandglass {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
// a bijection of a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A stream of random numbers with a position that can be saved and set.
class RandomStream {
 public:
  // Streams of one seed with different names are independent.
  RandomStream(uint64_t seed, std::string_view name);

  uint32_t NextU32();
  // Uniform in [0, 1) with 53 bits.
  double NextUniform();
  // Normal with mean 0 and standard deviation 1 (Box-Muller).
  double NextNormal();
  // Uniform in [0, bound), bound >= 1, without modulo bias worth mentioning (64-bit multiply).
  uint64_t NextBelow(uint64_t bound);

  // Position in the stream, in 32-bit words.
  uint64_t position() const { return position_; }
  void Seek(uint64_t position);

 private:
  std::array<uint32_t, 2> key_;
  uint64_t position_ = 0;
  std::array<uint32_t, 4> block_{};
  uint64_t block_index_ = UINT64_MAX;
};

// A permutation of 0..size-1 that needs no memory: a Feistel network over the next power of four,
// walked until it lands inside (each walk takes fewer than four steps on average).
class Permutation {
 public:
  // size >= 1.
  Permutation(uint64_t size, uint64_t seed, std::string_view name);
  // The element at `index` < size.
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t size_;
  int half_bits_;
  std::array<uint32_t, 2> key_;
};

}  // namespace sandglass
