// Token ids as they lie in a file: little-endian numbers of one width from some offset on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"
#include "data/token_stream.h"

namespace sandglass {

enum class TokenType { kUint16, kUint32, kUint64 };

template <class E>
struct EnumNames;  // base/fields.h
template <>
struct EnumNames<TokenType> {
  static constexpr std::array<std::pair<TokenType, const char*>, 3> kNames{
      {{TokenType::kUint16, "uint16"},
       {TokenType::kUint32, "uint32"},
       {TokenType::kUint64, "uint64"}}};
};

constexpr int64_t BytesPerToken(TokenType type) {
  return type == TokenType::kUint16 ? 2 : type == TokenType::kUint32 ? 4 : 8;
}
constexpr TokenType TokenTypeFor(int64_t vocabulary) {
  return vocabulary <= 65536 ? TokenType::kUint16 : TokenType::kUint32;
}

struct TokenLayout {
  TokenType type = TokenType::kUint16;
  int64_t offset_bytes = 0;  // of the first id
  int64_t tokens = 0;
  int64_t vocabulary = 0;  // all ids are below this
};

// Reads with pread, so that memory does not grow with the file and a file that shrinks is an Error.
class TokenArray final : public TokenStream {
 public:
  // Throws Error if the file is shorter than the layout says. Signed types may be read as unsigned:
  // a negative id is then outside the vocabulary.
  TokenArray(RandomAccessFile file, const TokenLayout& layout);

  const TokenLayout& layout() const { return layout_; }

  const std::string& path() const override { return file_.path(); }
  int64_t tokens() const override { return layout_.tokens; }
  void Read(int64_t begin, std::span<TokenId> out) const override;
  // Of the size and of the first and last mebibyte: the whole may be terabytes.
  std::string fingerprint() const override;

 private:
  template <class T>
  void ReadAs(int64_t begin, std::span<TokenId> out) const;
  [[noreturn]] void FailId(uint64_t id, int64_t index) const;

  RandomAccessFile file_;
  TokenLayout layout_;
};

}  // namespace sandglass
