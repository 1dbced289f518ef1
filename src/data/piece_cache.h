// Remembering how pieces of text were encoded, in a fixed amount of memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "data/merge_table.h"

namespace sandglass {

// Every piece has one place, which the last one that came there keeps. Text repeats its words so
// much that 4 MiB of places answer for nearly all of it.
class PieceCache {
 public:
  // Longer pieces are rare and not remembered.
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;

  static bool Holds(std::string_view piece) { return piece.size() <= kMaxBytes; }

  class Place {
   public:
    bool Is(std::string_view piece) const {
      return piece_bytes_ == piece.size() && std::memcmp(piece_, piece.data(), piece.size()) == 0;
    }
    std::span<const TokenId> ids() const { return {ids_, count_}; }
    // Nothing is kept if there are too many ids.
    void Keep(std::string_view piece, std::span<const TokenId> ids) {
      if (ids.size() > kMaxIds) return;
      piece_bytes_ = static_cast<uint8_t>(piece.size());
      count_ = static_cast<uint8_t>(ids.size());
      std::memcpy(piece_, piece.data(), piece.size());
      std::memcpy(ids_, ids.data(), ids.size_bytes());
    }

   private:
    uint8_t piece_bytes_ = 0;  // 0: free, since no piece is empty
    uint8_t count_ = 0;
    char piece_[kMaxBytes];
    TokenId ids_[kMaxIds];
  };
  static_assert(sizeof(Place) == 64, "a place fills one line of memory");

  PieceCache() : places_(kPlaces) {}

  // The place of a piece that Holds says can be remembered.
  Place& At(std::string_view piece) { return places_[HashBytes(piece) & (kPlaces - 1)]; }

 private:
  static constexpr size_t kPlaces = size_t{1} << 16;

  std::vector<Place> places_;
};

}  // namespace sandglass
