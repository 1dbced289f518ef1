#include "data/token_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"

namespace sandglass {

static_assert(std::endian::native == std::endian::little, "ids are read as they lie on disk");

TokenArray::TokenArray(RandomAccessFile file, const TokenLayout& layout)
    : file_(std::move(file)), layout_(layout) {
  const int64_t needed = layout.offset_bytes + layout.tokens * BytesPerToken(layout.type);
  if (file_.size_bytes() < needed) {
    throw Error(
        {.what = fmt::format("the token file has only {} bytes", WithThousands(file_.size_bytes())),
         .where = path(),
         .expected = fmt::format("{} bytes: {} tokens of {} bytes from byte {} on",
                                 WithThousands(needed), WithThousands(layout.tokens),
                                 BytesPerToken(layout.type), layout.offset_bytes),
         .remedy = "copy the file again; it was probably cut off"});
  }
}

void TokenArray::Read(int64_t begin, std::span<TokenId> out) const {
  SANDGLASS_CHECK(begin >= 0 && begin + std::ssize(out) <= layout_.tokens,
                  "read past the end of a token file");
  switch (layout_.type) {
    case TokenType::kUint16:
      return ReadAs<uint16_t>(begin, out);
    case TokenType::kUint32:
      return ReadAs<uint32_t>(begin, out);
    case TokenType::kUint64:
      return ReadAs<uint64_t>(begin, out);
  }
}

template <class T>
void TokenArray::ReadAs(int64_t begin, std::span<TokenId> out) const {
  std::array<T, 4096> piece;
  for (size_t done = 0; done < out.size();) {
    const size_t count = std::min(piece.size(), out.size() - done);
    const int64_t first = begin + static_cast<int64_t>(done);
    file_.ReadAt(layout_.offset_bytes + first * static_cast<int64_t>(sizeof(T)), piece.data(),
                 count * sizeof(T));
    T largest = 0;
    for (size_t i = 0; i < count; ++i) {
      largest = std::max(largest, piece[i]);
      out[done + i] = static_cast<TokenId>(piece[i]);
    }
    if (largest >= static_cast<uint64_t>(layout_.vocabulary)) {
      const auto* const wrong = std::find_if(piece.begin(), piece.end(), [&](T id) {
        return id >= static_cast<uint64_t>(layout_.vocabulary);
      });
      FailId(*wrong, first + (wrong - piece.begin()));
    }
    done += count;
  }
}

void TokenArray::FailId(uint64_t id, int64_t index) const {
  throw Error({.what = fmt::format("token id {} is outside the vocabulary", id),
               .where = fmt::format("{}, token {} (byte {})", path(), index,
                                    layout_.offset_bytes + index * BytesPerToken(layout_.type)),
               .expected = fmt::format("ids below {}, {} bytes each", layout_.vocabulary,
                                       BytesPerToken(layout_.type)),
               .remedy = "the file is damaged, has ids of another width, or belongs to another "
                         "tokenizer"});
}

std::string TokenArray::fingerprint() const {
  const int64_t piece = std::min<int64_t>(file_.size_bytes(), int64_t{1} << 20);
  std::string bytes(2 * static_cast<size_t>(piece), '\0');
  file_.ReadAt(0, bytes.data(), static_cast<size_t>(piece));
  file_.ReadAt(file_.size_bytes() - piece, bytes.data() + piece, static_cast<size_t>(piece));
  return HashHex(HashBytes(bytes, static_cast<uint64_t>(file_.size_bytes())));
}

}  // namespace sandglass
