// Token shards: the token stream of a data set as a plain file of ids, with a JSON sidecar.
//
// x.bin holds little-endian ids without a header, 16 bits wide for vocabularies up to 65,536 and
// 32 bits beyond. x.json says what they are. Every document is end-of-text followed by its tokens,
// so each token of text has a predecessor and can be scored.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/tokenizer.h"

namespace sandglass {

enum class TokenType { kUint16, kUint32 };

template <class E>
struct EnumNames;  // base/fields.h
template <>
struct EnumNames<TokenType> {
  static constexpr std::array<std::pair<TokenType, const char*>, 2> kNames{
      {{TokenType::kUint16, "uint16"}, {TokenType::kUint32, "uint32"}}};
};

constexpr int64_t BytesPerToken(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }
constexpr TokenType TokenTypeFor(int64_t vocabulary) {
  return vocabulary <= 65536 ? TokenType::kUint16 : TokenType::kUint32;
}

inline constexpr const char* kShardFormat = "sandglass-tokens";
inline constexpr int kShardVersion = 1;

// The sidecar.
struct ShardInfo {
  std::string format = kShardFormat;
  int version = kShardVersion;
  TokenType dtype = TokenType::kUint16;
  int64_t vocabulary = 0;
  std::string tokenizer_hash;  // Tokenizer::hash()
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;    // UTF-8 bytes of the documents: what bits per byte divides by
  std::string source;        // where the text came from, for people
  std::string content_hash;  // XXH3 of the .bin file

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("format", self.format, "always sandglass-tokens");
    field("version", self.version, "of the format");
    field("dtype", self.dtype, "width of an id, little-endian");
    field("vocabulary", self.vocabulary, "all ids are below this");
    field("tokenizer_hash", self.tokenizer_hash, "hash of the canonical tokenizer.json");
    field("documents", self.documents, "number of documents");
    field("tokens", self.tokens, "number of ids, one end-of-text per document included");
    field("text_bytes", self.text_bytes, "UTF-8 bytes of the documents");
    field("source", self.source, "where the text came from");
    field("content_hash", self.content_hash, "XXH3 of the file of ids");
  }
};

// "data/train.bin" -> "data/train.json".
std::string SidecarPath(const std::string& shard_path);

// Writes a shard; both files appear under their names at Commit.
class TokenShardWriter {
 public:
  // `info` says vocabulary, tokenizer_hash and source; the writer finds out the rest.
  TokenShardWriter(std::string path, ShardInfo info);

  // `tokens` begins with end-of-text; `text_bytes` is the length of the document.
  void AddDocument(std::span<const TokenId> tokens, int64_t text_bytes);

  ShardInfo Commit();

 private:
  template <class T>
  void WriteAs(std::span<const TokenId> tokens);

  AtomicFile file_;
  ShardInfo info_;
};

// A shard mapped into memory. Movable, not copyable.
class TokenShard {
 public:
  // Throws Error if a file is missing or the sidecar does not fit the ids (truncated, other width).
  // Shards of up to 256 MiB are verified as well.
  explicit TokenShard(const std::string& path);

  const std::string& path() const { return path_; }
  const ShardInfo& info() const { return info_; }
  int64_t tokens() const { return info_.tokens; }
  int64_t vocabulary() const { return info_.vocabulary; }

  // Copies the ids from `begin` on; begin + out.size() <= tokens(). Throws Error, naming file and
  // offset, for an id outside the vocabulary: no such id leaves this class.
  void Read(int64_t begin, std::span<TokenId> out) const;

  // Checks every id and the hash of the contents.
  void Verify() const;

  // Throws Error unless the shard was made with `tokenizer`.
  void RequireTokenizer(const Tokenizer& tokenizer) const;

 private:
  template <class T>
  void ReadAs(int64_t begin, std::span<TokenId> out) const;
  void CheckIds() const;

  std::string path_;
  ShardInfo info_;
  MappedFile file_;
};

}  // namespace sandglass
