#include "data/token_formats.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/format.h"
#include "data/token_shard.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr int32_t kLlmCMagic = 20240520;
constexpr int64_t kLlmCHeaderBytes = 256 * sizeof(int32_t);

std::string IndexPath(const std::string& path) {
  return fs::path(path).replace_extension(".idx").string();
}

[[noreturn]] void Fail(const std::string& path, std::string what, std::string expected) {
  throw Error({.what = std::move(what),
               .where = path,
               .expected = std::move(expected),
               .remedy = "get the file again, or name its format (format = \"raw\", \"numpy\", "
                         "\"llm.c\", \"megatron\")"});
}

// The first bytes of a file, fewer if it is shorter.
std::string Beginning(const RandomAccessFile& file, int64_t bytes) {
  std::string text(static_cast<size_t>(std::min(bytes, file.size_bytes())), '\0');
  file.ReadAt(0, text.data(), text.size());
  return text;
}

template <class T>
T NumberAt(std::string_view bytes, size_t offset) {
  SANDGLASS_CHECK(offset + sizeof(T) <= bytes.size(), "a number beyond the header");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// In a file of the other width every second id would be 0, or two ids would read as one. The latter
// is far above any vocabulary and found where it is read; the former is found here.
void RefuseWiderIds(const TokenArray& ids) {
  if (ids.layout().type != TokenType::kUint16) return;
  std::vector<TokenId> sample(static_cast<size_t>(std::min<int64_t>(ids.tokens(), 4096)));
  ids.Read(0, sample);
  int64_t zeros[2] = {0, 0};
  for (size_t i = 0; i < sample.size(); ++i) zeros[i % 2] += sample[i] == 0 ? 1 : 0;
  const auto half = std::ssize(sample) / 2;
  if (half >= 8 && zeros[1] == half && zeros[0] < half) {
    throw Error({.what = "every second id is 0, as if the ids had another width",
                 .where = ids.path(),
                 .expected = "ids of 2 bytes",
                 .remedy = "set dtype = \"uint32\" for this source"});
  }
}

TokenArray OpenRaw(RandomAccessFile file, const TokenFileOptions& options) {
  const TokenType type = options.type.value_or(TokenTypeFor(options.vocabulary));
  const int64_t width = BytesPerToken(type);
  if (file.size_bytes() % width != 0) {
    Fail(file.path(),
         fmt::format("{} bytes are no whole number of ids", WithThousands(file.size_bytes())),
         fmt::format("ids of {} bytes ({})", width, EnumName(type)));
  }
  const int64_t tokens = file.size_bytes() / width;
  TokenArray ids(std::move(file),
                 {.type = type, .tokens = tokens, .vocabulary = options.vocabulary});
  RefuseWiderIds(ids);
  return ids;
}

TokenArray OpenLlmC(RandomAccessFile file, const TokenFileOptions& options) {
  const std::string header = Beginning(file, kLlmCHeaderBytes);
  if (std::ssize(header) < kLlmCHeaderBytes || NumberAt<int32_t>(header, 0) != kLlmCMagic) {
    Fail(file.path(), "this is not a token file of llm.c",
         fmt::format("a header of {} bytes that begins with the number {}", kLlmCHeaderBytes,
                     kLlmCMagic));
  }
  const auto version = NumberAt<int32_t>(header, 4);
  if (version != 1 && version != 7) {
    Fail(file.path(), fmt::format("version {} of the llm.c format is unknown", version),
         "version 1 (uint16, GPT-2) or 7 (uint32, Llama 3)");
  }
  const TokenType type = version == 1 ? TokenType::kUint16 : TokenType::kUint32;
  // The count is an int32 that may have overflowed; the size of the file tells the truth.
  const int64_t tokens = (file.size_bytes() - kLlmCHeaderBytes) / BytesPerToken(type);
  const auto counted = NumberAt<uint32_t>(header, 8);
  if (static_cast<uint32_t>(tokens) != counted ||
      (file.size_bytes() - kLlmCHeaderBytes) % BytesPerToken(type) != 0) {
    Fail(file.path(), fmt::format("the file holds {} tokens", WithThousands(tokens)),
         fmt::format("{}, as its header says", WithThousands(counted)));
  }
  return TokenArray(std::move(file), {.type = type,
                                      .offset_bytes = kLlmCHeaderBytes,
                                      .tokens = tokens,
                                      .vocabulary = options.vocabulary});
}

// The value of a key in the header of a .npy file, which is a Python dictionary.
std::string_view NumpyValue(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

TokenArray OpenNumpy(RandomAccessFile file, const TokenFileOptions& options) {
  // Magic, two bytes of version, the length of the header in two or four bytes.
  const std::string start = Beginning(file, 12);
  if (start.size() < 12 || !start.starts_with(kNumpyMagic)) {
    Fail(file.path(), "this is not a NumPy file", "a .npy file that numpy.save wrote");
  }
  const bool version1 = start[6] == 1;
  const int64_t header_begin = version1 ? 10 : 12;
  const int64_t header_bytes =
      version1 ? int64_t{NumberAt<uint16_t>(start, 8)} : int64_t{NumberAt<uint32_t>(start, 8)};
  const int64_t offset = header_begin + header_bytes;
  constexpr int64_t kLongestHeader = 1 << 16;
  if (header_bytes > kLongestHeader || offset > file.size_bytes()) {
    Fail(file.path(), "the header of the NumPy file is damaged", "a file that numpy.save wrote");
  }
  const std::string header = Beginning(file, offset);
  const std::string_view type_name = NumpyValue(header, "descr").substr(0, 5);
  std::optional<TokenType> type;
  if (type_name == "'<u2'" || type_name == "'<i2'") type = TokenType::kUint16;
  if (type_name == "'<u4'" || type_name == "'<i4'") type = TokenType::kUint32;
  if (type_name == "'<u8'" || type_name == "'<i8'") type = TokenType::kUint64;
  if (!type) {
    Fail(file.path(), fmt::format("a NumPy array of type {} is read by no one here", type_name),
         "little-endian integers of 2, 4 or 8 bytes: array.astype('<u4')");
  }
  const std::string_view shape = NumpyValue(header, "shape");
  int64_t tokens = -1;
  const char* const end = shape.data() + shape.size();
  const auto number = std::from_chars(std::min(shape.data() + 1, end), end, tokens);
  const std::string_view rest(number.ptr, static_cast<size_t>(end - number.ptr));
  if (!shape.starts_with('(') || number.ec != std::errc() || tokens < 0 ||
      !(rest.starts_with(",)") || rest.starts_with(", )"))) {
    Fail(file.path(),
         fmt::format("a NumPy array of shape {} is no stream",
                     shape.substr(0, std::min(shape.find(')'), shape.size() - 1) + 1)),
         "one dimension: array.ravel()");
  }
  if (tokens > (file.size_bytes() - offset) / BytesPerToken(*type)) {
    Fail(file.path(), "the NumPy file is shorter than its header says",
         fmt::format("{} ids of {} bytes", WithThousands(tokens), BytesPerToken(*type)));
  }
  return TokenArray(
      std::move(file),
      {.type = *type, .offset_bytes = offset, .tokens = tokens, .vocabulary = options.vocabulary});
}

TokenArray OpenMegatron(RandomAccessFile file, const TokenFileOptions& options) {
  const RandomAccessFile index(IndexPath(file.path()));
  // Magic, u64 version, u8 type code, u64 sequences, u64 documents.
  constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
  const std::string header = Beginning(index, kHeaderBytes);
  if (std::ssize(header) < kHeaderBytes || !header.starts_with(kMegatronMagic)) {
    Fail(index.path(), "this is not an index of Megatron", "a file that begins with MMIDIDX");
  }
  if (NumberAt<uint64_t>(header, 9) != 1) {
    Fail(index.path(), "another version of the index of Megatron", "version 1");
  }
  std::optional<TokenType> type;
  const int code = static_cast<uint8_t>(header[17]);
  if (code == 8) type = TokenType::kUint16;
  if (code == 4) type = TokenType::kUint32;
  if (code == 5) type = TokenType::kUint64;
  if (!type) {
    Fail(index.path(), fmt::format("type code {} of the index is no type of ids", code),
         "8 (uint16), 4 (int32) or 5 (int64)");
  }
  // Then an int32 length and an int64 byte offset for each sequence, and int64 document borders.
  const auto sequences = NumberAt<uint64_t>(header, 18);
  const auto documents = NumberAt<uint64_t>(header, 26);
  const auto index_bytes = static_cast<uint64_t>(index.size_bytes());
  if (sequences > index_bytes / 12 || documents > index_bytes / 8 ||
      index_bytes < kHeaderBytes + 12 * sequences + 8 * documents) {
    Fail(index.path(), "the index is shorter than its header says",
         fmt::format("{} sequences and {} document borders", sequences, documents));
  }
  int64_t indexed_bytes = 0;
  if (sequences > 0) {
    int32_t length = 0;
    const auto lengths_end = kHeaderBytes + 4 * static_cast<int64_t>(sequences);
    index.ReadAt(lengths_end - 4, &length, sizeof(length));
    int64_t pointer = 0;
    index.ReadAt(lengths_end + 8 * (static_cast<int64_t>(sequences) - 1), &pointer,
                 sizeof(pointer));
    if (length >= 0 && pointer >= 0) indexed_bytes = pointer + length * BytesPerToken(*type);
  }
  if (indexed_bytes != file.size_bytes()) {
    Fail(file.path(), fmt::format("the file has {} bytes", WithThousands(file.size_bytes())),
         fmt::format("{} bytes, as {} says", WithThousands(indexed_bytes), index.path()));
  }
  const int64_t tokens = file.size_bytes() / BytesPerToken(*type);
  return TokenArray(std::move(file),
                    {.type = *type, .tokens = tokens, .vocabulary = options.vocabulary});
}

}  // namespace

TokenFormat DetectTokenFormat(const std::string& path) {
  if (fs::exists(IndexPath(path)) && IndexPath(path) != path &&
      Beginning(RandomAccessFile(IndexPath(path)), 9) == kMegatronMagic) {
    return TokenFormat::kMegatron;
  }
  const std::string start = Beginning(RandomAccessFile(path), 8);
  if (start.starts_with(kNumpyMagic)) return TokenFormat::kNumpy;
  if (start.size() == 8 && NumberAt<int32_t>(start, 0) == kLlmCMagic) {
    const auto version = NumberAt<int32_t>(start, 4);
    if (version == 1 || version == 7) return TokenFormat::kLlmC;
  }
  if (fs::path(path).extension() == ".bin" && fs::exists(SidecarPath(path))) {
    return TokenFormat::kSandglass;
  }
  return TokenFormat::kRaw;
}

std::unique_ptr<TokenStream> OpenTokenFile(const std::string& path,
                                           const TokenFileOptions& options) {
  SANDGLASS_CHECK(options.vocabulary > 0, "the vocabulary must be known");
  const auto open = [&]() -> std::unique_ptr<TokenStream> {
    const TokenFormat format =
        options.format == TokenFormat::kAuto ? DetectTokenFormat(path) : options.format;
    if (format == TokenFormat::kSandglass) return std::make_unique<TokenShard>(path);
    RandomAccessFile file(path);
    switch (format) {
      case TokenFormat::kNumpy:
        return std::make_unique<TokenArray>(OpenNumpy(std::move(file), options));
      case TokenFormat::kLlmC:
        return std::make_unique<TokenArray>(OpenLlmC(std::move(file), options));
      case TokenFormat::kMegatron:
        return std::make_unique<TokenArray>(OpenMegatron(std::move(file), options));
      default:
        return std::make_unique<TokenArray>(OpenRaw(std::move(file), options));
    }
  };
  std::unique_ptr<TokenStream> stream = open();
  if (stream->tokens() == 0) {
    throw Error({.what = "the file holds no tokens", .where = path, .expected = "at least one id"});
  }
  return stream;
}

std::vector<std::string> FindTokenFiles(const std::string& pattern) {
  if (fs::exists(pattern)) return {pattern};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty()) {
    throw Error({.what = "there is no such token file",
                 .where = pattern,
                 .expected = "a file, or a pattern such as \"tokens/train_*.bin\"",
                 .remedy = "check the path; relative paths start at the current directory"});
  }
  return paths;
}

std::unique_ptr<TokenStream> OpenTokenFiles(const std::string& pattern,
                                            const TokenFileOptions& options) {
  std::vector<std::unique_ptr<TokenStream>> parts;
  for (const std::string& path : FindTokenFiles(pattern)) {
    parts.push_back(OpenTokenFile(path, options));
  }
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedStream>(pattern, std::move(parts));
}

}  // namespace sandglass
