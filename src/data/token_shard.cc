#include "data/token_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/format.h"
#include "base/hash.h"

namespace sandglass {
namespace {

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

TokenArray OpenIds(const std::string& path, const ShardInfo& info) {
  RandomAccessFile file(path);
  if (file.size_bytes() != info.tokens * BytesPerToken(info.dtype)) {
    const TokenType other =
        info.dtype == TokenType::kUint16 ? TokenType::kUint32 : TokenType::kUint16;
    const bool other_width = file.size_bytes() == info.tokens * BytesPerToken(other);
    throw Error(
        {.what = fmt::format("the token shard has {} bytes{}", WithThousands(file.size_bytes()),
                             other_width ? ", as if its ids had another width" : ""),
         .where = path,
         .expected =
             fmt::format("{} bytes: {} tokens of type {}, as {} says",
                         WithThousands(info.tokens * BytesPerToken(info.dtype)),
                         WithThousands(info.tokens), EnumName(info.dtype), SidecarPath(path)),
         .remedy = "copy both files again, or make them with `sandglass prepare`"});
  }
  return TokenArray(std::move(file),
                    {.type = info.dtype, .tokens = info.tokens, .vocabulary = info.vocabulary});
}

}  // namespace

std::string SidecarPath(const std::string& shard_path) {
  return std::filesystem::path(shard_path).replace_extension(".json").string();
}

namespace {

// The file that a writer of `path` fills. A process that was killed may have given it its name
// already.
std::string PartialPath(const std::string& path, const ShardInfo& info) {
  const std::string partial = path + ".partial";
  if (info.tokens > 0 && !std::filesystem::exists(partial) && std::filesystem::exists(path)) {
    std::filesystem::rename(path, partial);
  }
  return partial;
}

}  // namespace

TokenShardWriter::TokenShardWriter(std::string path, ShardInfo info)
    : path_(std::move(path)),
      info_(std::move(info)),
      file_(PartialPath(path_, info_),
            info_.tokens * BytesPerToken(TokenTypeFor(info_.vocabulary))),
      synced_(info_.tokens > 0) {
  info_.dtype = TokenTypeFor(info_.vocabulary);
}

TokenShardWriter::~TokenShardWriter() {
  if (synced_) return;
  std::error_code ignored;
  std::filesystem::remove(file_.path(), ignored);
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

ShardInfo TokenShardWriter::Sync() {
  file_.Sync();
  synced_ = true;
  return info_;
}

ShardInfo TokenShardWriter::Commit() {
  Sync();
  info_.content_hash = HashHex(HashFile(file_.path()));
  std::filesystem::rename(file_.path(), path_);
  // File names in `source` need not be valid UTF-8.
  const std::string sidecar =
      WriteFields(info_).dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  WriteFileAtomically(SidecarPath(path_), sidecar + "\n");
  return info_;
}

TokenShard::TokenShard(const std::string& path)
    : info_(ReadSidecar(path)), ids_(OpenIds(path, info_)) {
  if (info_.tokens * BytesPerToken(info_.dtype) <= kCheckedAtOpenBytes) Verify();
}

void TokenShard::Verify() const {
  std::vector<TokenId> ids(size_t{1} << 16);
  for (int64_t begin = 0; begin < tokens(); begin += std::ssize(ids)) {
    const int64_t count = std::min<int64_t>(std::ssize(ids), tokens() - begin);
    Read(begin, std::span(ids).first(static_cast<size_t>(count)));
  }
  const std::string hash = HashHex(HashFile(path()));
  if (hash != info_.content_hash) {
    throw Error({.what = "the token shard is not the one its sidecar describes",
                 .where = path(),
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
       .where = path(),
       .expected = fmt::format("the tokenizer with hash {} and {} ids; the one given has {} "
                               "and {}",
                               info_.tokenizer_hash, info_.vocabulary, tokenizer.hash(),
                               tokenizer.vocabulary()),
       .remedy = "use the tokenizer.json that lies beside the shard"});
}

}  // namespace sandglass
