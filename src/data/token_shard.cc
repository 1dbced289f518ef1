#include "data/token_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/fields.h"
#include "base/format.h"
#include "base/hash.h"

namespace sandglass {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie on disk");

// Checking this much takes well under a second, so it is done whenever a shard is opened.
constexpr int64_t kCheckedAtOpenBytes = int64_t{256} << 20;

ShardInfo ReadSidecar(const std::string& shard_path) {
  const std::string path = SidecarPath(shard_path);
  ConfigTree tree;
  tree.source = path;
  tree.values = Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  const auto fail = [&](std::string what) {
    throw Error({.what = std::move(what),
                 .where = path,
                 .expected = fmt::format("the sidecar of {}, format {} version {}", shard_path,
                                         kShardFormat, kShardVersion),
                 .remedy = "make the shard again with `sandglass prepare`"});
  };
  if (!tree.values.is_object()) fail("not a JSON object");
  const auto has = [&](const char* key, const Json& expected) {
    return tree.values.contains(key) && tree.values[key] == expected;
  };
  if (!has("format", kShardFormat)) fail("not the sidecar of a token shard");
  if (!has("version", kShardVersion)) fail("another version of the format");
  ShardInfo info;
  ReadAllFields(info, tree);
  // No file is as long as 2^60 bytes; sizes computed from the counts cannot overflow then.
  if (info.vocabulary < 1 || info.tokens < 0 || info.tokens > int64_t{1} << 58) {
    fail("the vocabulary or the token count is impossible");
  }
  return info;
}

}  // namespace

std::string SidecarPath(const std::string& shard_path) {
  return std::filesystem::path(shard_path).replace_extension(".json").string();
}

TokenShardWriter::TokenShardWriter(std::string path, ShardInfo info)
    : file_(std::move(path)), info_(std::move(info)) {
  info_.dtype = TokenTypeFor(info_.vocabulary);
}

void TokenShardWriter::AddDocument(std::span<const TokenId> tokens, int64_t text_bytes) {
  info_.dtype == TokenType::kUint16 ? WriteAs<uint16_t>(tokens) : WriteAs<uint32_t>(tokens);
  ++info_.documents;
  info_.tokens += static_cast<int64_t>(tokens.size());
  info_.text_bytes += text_bytes;
}

template <class T>
void TokenShardWriter::WriteAs(std::span<const TokenId> tokens) {
  std::vector<T> narrow(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    SANDGLASS_CHECK(tokens[i] >= 0 && tokens[i] < info_.vocabulary, "token outside the vocabulary");
    narrow[i] = static_cast<T>(tokens[i]);
  }
  file_.Write(narrow.data(), narrow.size() * sizeof(T));
}

ShardInfo TokenShardWriter::Commit() {
  file_.Commit();
  info_.content_hash = HashHex(HashFile(file_.path()));
  // File names in `source` need not be valid UTF-8.
  const std::string sidecar =
      WriteFields(info_).dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  WriteFileAtomically(SidecarPath(file_.path()), sidecar + "\n");
  return info_;
}

TokenShard::TokenShard(const std::string& path)
    : path_(path), info_(ReadSidecar(path)), file_(path) {
  const auto size = static_cast<int64_t>(file_.bytes().size());
  if (size != info_.tokens * BytesPerToken(info_.dtype)) {
    const TokenType other =
        info_.dtype == TokenType::kUint16 ? TokenType::kUint32 : TokenType::kUint16;
    const bool other_width = size == info_.tokens * BytesPerToken(other);
    throw Error({.what = fmt::format("the token shard has {} bytes{}", WithThousands(size),
                                     other_width ? ", as if its ids had another width" : ""),
                 .where = path_,
                 .expected = fmt::format("{} bytes: {} tokens of type {}, as {} says",
                                         WithThousands(info_.tokens * BytesPerToken(info_.dtype)),
                                         WithThousands(info_.tokens), EnumName(info_.dtype),
                                         SidecarPath(path_)),
                 .remedy = "copy both files again, or make them with `sandglass prepare`"});
  }
  if (size <= kCheckedAtOpenBytes) Verify();
}

template <class T>
void TokenShard::ReadAs(int64_t begin, std::span<TokenId> out) const {
  const char* const bytes = file_.bytes().data() + begin * static_cast<int64_t>(sizeof(T));
  T largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, bytes + i * sizeof(T), sizeof(T));
    largest = std::max(largest, id);
    out[i] = static_cast<TokenId>(id);
  }
  if (static_cast<int64_t>(largest) < info_.vocabulary) return;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto id = static_cast<uint32_t>(out[i]);
    if (id < info_.vocabulary) continue;
    const int64_t index = begin + static_cast<int64_t>(i);
    throw Error({.what = fmt::format("token id {} is outside the vocabulary", id),
                 .where = fmt::format("{}, token {} (byte {})", path_, index,
                                      index * static_cast<int64_t>(sizeof(T))),
                 .expected = fmt::format("ids below {}", info_.vocabulary),
                 .remedy = "the file is damaged or belongs to another tokenizer; make it again "
                           "with `sandglass prepare`"});
  }
}

void TokenShard::Read(int64_t begin, std::span<TokenId> out) const {
  SANDGLASS_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= info_.tokens,
                  "read past the end of a token shard");
  info_.dtype == TokenType::kUint16 ? ReadAs<uint16_t>(begin, out) : ReadAs<uint32_t>(begin, out);
}

void TokenShard::CheckIds() const {
  std::vector<TokenId> ids(size_t{1} << 16);
  for (int64_t begin = 0; begin < tokens(); begin += static_cast<int64_t>(ids.size())) {
    const auto count = std::min<int64_t>(static_cast<int64_t>(ids.size()), tokens() - begin);
    Read(begin, std::span(ids).first(static_cast<size_t>(count)));
  }
}

void TokenShard::Verify() const {
  CheckIds();
  const std::string hash = HashHex(HashBytes(file_.bytes()));
  if (hash != info_.content_hash) {
    throw Error({.what = "the token shard is not the one its sidecar describes",
                 .where = path_,
                 .expected = fmt::format("contents with hash {}, not {}", info_.content_hash, hash),
                 .remedy = "copy both files again, or make them with `sandglass prepare`"});
  }
}

void TokenShard::RequireTokenizer(const Tokenizer& tokenizer) const {
  if (tokenizer.hash() == info_.tokenizer_hash && tokenizer.vocabulary() == info_.vocabulary) {
    return;
  }
  throw Error(
      {.what = "the tokenizer does not belong to the data",
       .where = path_,
       .expected = fmt::format("the tokenizer with hash {} and {} ids; the one given has {} "
                               "and {}",
                               info_.tokenizer_hash, info_.vocabulary, tokenizer.hash(),
                               tokenizer.vocabulary()),
       .remedy = "use the tokenizer.json that lies beside the shard"});
}

}  // namespace sandglass
