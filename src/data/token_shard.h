// Token shards: the token stream of a data set as a plain file of ids, with a JSON sidecar.
//
// x.bin holds little-endian ids without a header, 16 bits wide for vocabularies up to 65,536 and
// 32 bits beyond. x.json says what they are. Every document is end-of-text followed by its tokens,
// so each token of text has a predecessor and can be scored.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "data/token_array.h"
#include "data/tokenizer.h"

namespace sandglass {

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

// Writes a shard; both files appear under their names at Commit. Until then ids stand in
// <path>.partial, which is removed unless Sync was called.
class TokenShardWriter {
 public:
  // `info` says vocabulary, tokenizer_hash and source; the writer finds out the rest. An `info`
  // that Sync returned, perhaps in a process that was killed since, continues there.
  TokenShardWriter(std::string path, ShardInfo info);
  ~TokenShardWriter();

  // `tokens` begins with end-of-text; `text_bytes` is the length of the document.
  void AddDocument(std::span<const TokenId> tokens, int64_t text_bytes);

  // What was added so far, now safe on disk.
  ShardInfo Sync();
  ShardInfo Commit();

 private:
  template <class T>
  void WriteAs(std::span<const TokenId> tokens);

  std::string path_;
  ShardInfo info_;
  GrowingFile file_;
  bool synced_ = false;
};

// A shard on disk.
class TokenShard final : public TokenStream {
 public:
  // Throws Error if a file is missing or the sidecar does not fit the ids (truncated, other width).
  // Shards of up to 256 MiB are verified as well.
  explicit TokenShard(const std::string& path);

  const ShardInfo& info() const { return info_; }
  int64_t vocabulary() const { return info_.vocabulary; }

  const std::string& path() const override { return ids_.path(); }
  int64_t tokens() const override { return info_.tokens; }
  void Read(int64_t begin, std::span<TokenId> out) const override { ids_.Read(begin, out); }
  std::string fingerprint() const override { return info_.content_hash; }

  // Checks every id and the hash of the contents.
  void Verify() const;

  // Throws Error unless the shard was made with `tokenizer`.
  void RequireTokenizer(const Tokenizer& tokenizer) const;

 private:
  ShardInfo info_;
  TokenArray ids_;
};

}  // namespace sandglass
