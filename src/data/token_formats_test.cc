#include "data/token_formats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "data/data_set.h"
#include "data/testing.h"
#include "data/token_shard.h"

namespace sandglass {
namespace {

template <class T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<TokenId> ReadAll(const TokenStream& stream) {
  std::vector<TokenId> ids(static_cast<size_t>(stream.tokens()));
  stream.Read(0, ids);
  return ids;
}

std::string LlmCHeader(int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = version;
  header[2] = tokens;
  return Bytes(header);
}

std::string NumpyHeader(const std::string& type, const std::string& shape) {
  std::string dictionary =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  dictionary.resize((10 + dictionary.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  dictionary += '\n';
  return std::string("\x93NUMPY\x01\0", 8) +
         Bytes<uint16_t>({static_cast<uint16_t>(dictionary.size())}) + dictionary;
}

std::string MegatronIndex(uint8_t type, const std::vector<int32_t>& lengths, int width) {
  std::string index = std::string("MMIDIDX\0\0", 9) + Bytes<uint64_t>({1}) +
                      static_cast<char>(type) + Bytes<uint64_t>({lengths.size()}) +
                      Bytes<uint64_t>({lengths.size() + 1}) + Bytes(lengths);
  std::vector<int64_t> pointers, documents = {0};
  int64_t at = 0;
  for (const int32_t length : lengths) {
    pointers.push_back(at);
    at += int64_t{length} * width;
    documents.push_back(documents.back() + 1);
  }
  return index + Bytes(pointers) + Bytes(documents);
}

const std::vector<TokenId> kIds = {65535, 65536, 100277, 0, 7};
constexpr int64_t kVocabulary = 100278;

TEST(TokenFormats, IdsAround65536SurviveInEveryFormat) {
  const TestDirectory directory;
  const std::vector<uint32_t> wide(kIds.begin(), kIds.end());
  const std::vector<int64_t> widest(kIds.begin(), kIds.end());
  directory.Write("raw.bin", Bytes(wide));
  directory.Write("olmo.npy", Bytes(wide));
  directory.Write("numpy4.npy", NumpyHeader("<u4", "(5,)") + Bytes(wide));
  directory.Write("numpy8.npy", NumpyHeader("<i8", "(5,)") + Bytes(widest));
  directory.Write("llama.bin", LlmCHeader(7, 5) + Bytes(wide));
  directory.Write("megatron.bin", Bytes(wide));
  directory.Write("megatron.idx", MegatronIndex(4, {3, 2}, 4));
  TokenShardWriter writer(directory / "own.bin", {.vocabulary = kVocabulary});
  writer.AddDocument(kIds, 0);
  writer.Commit();
  const std::pair<const char*, TokenFormat> cases[] = {
      {"raw.bin", TokenFormat::kRaw},       {"olmo.npy", TokenFormat::kRaw},
      {"numpy4.npy", TokenFormat::kNumpy},  {"numpy8.npy", TokenFormat::kNumpy},
      {"llama.bin", TokenFormat::kLlmC},    {"megatron.bin", TokenFormat::kMegatron},
      {"own.bin", TokenFormat::kSandglass},
  };
  for (const auto& [name, format] : cases) {
    const std::string path = directory / name;
    EXPECT_EQ(DetectTokenFormat(path), format) << name;
    EXPECT_EQ(ReadAll(*OpenTokenFile(path, {.vocabulary = kVocabulary})), kIds) << name;
    EXPECT_EQ(ReadAll(*OpenTokenFile(path, {.format = format, .vocabulary = kVocabulary})), kIds);
  }
}

TEST(TokenFormats, SixteenBitIds) {
  const TestDirectory directory;
  const std::vector<uint16_t> ids = {50256, 1, 2, 65535};
  const std::vector<TokenId> expected(ids.begin(), ids.end());
  directory.Write("nanogpt.bin", Bytes(ids));
  directory.Write("gpt2.bin", LlmCHeader(1, 4) + Bytes(ids));
  directory.Write("numpy.npy", NumpyHeader("<u2", "(4,)") + Bytes(ids));
  directory.Write("megatron.bin", Bytes(ids));
  directory.Write("megatron.idx", MegatronIndex(8, {4}, 2));
  for (const char* name : {"nanogpt.bin", "gpt2.bin", "numpy.npy", "megatron.bin"}) {
    EXPECT_EQ(ReadAll(*OpenTokenFile(directory / name, {.vocabulary = 65536})), expected) << name;
  }
}

TEST(TokenFormats, AnIdBeyondTheVocabularyNamesFileAndOffset) {
  const TestDirectory directory;
  const std::string path =
      directory.Write("x.bin", LlmCHeader(7, 3) + Bytes<uint32_t>({1, 100277, 100278}));
  const auto stream = OpenTokenFile(path, {.vocabulary = 100278});
  std::vector<TokenId> ids(2);
  stream->Read(0, ids);
  const ErrorParts parts = FailureOf([&] { stream->Read(1, ids); });
  EXPECT_TRUE(Contains(parts.what, "100278"));
  EXPECT_EQ(parts.where, path + ", token 2 (byte 1032)");
  // A negative int32.
  const std::string negative =
      directory.Write("y.npy", NumpyHeader("<i4", "(1,)") + Bytes<int32_t>({-1}));
  const auto other = OpenTokenFile(negative, {.vocabulary = 100});
  EXPECT_TRUE(
      Contains(FailureOf([&] { other->Read(0, std::span(ids).first(1)); }).what, "4294967295"));
}

TEST(TokenFormats, AFileOfTheWrongWidthIsRefused) {
  const TestDirectory directory;
  std::vector<uint32_t> wide(100);
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<uint32_t>(i + 1);
  const std::string path = directory.Write("wide.bin", Bytes(wide));
  const ErrorParts parts = FailureOf([&] { OpenTokenFile(path, {.vocabulary = 50257}); });
  EXPECT_TRUE(Contains(parts.what, "another width")) << parts.what;
  EXPECT_TRUE(Contains(parts.remedy, "uint32"));
  EXPECT_EQ(OpenTokenFile(path, {.type = TokenType::kUint32, .vocabulary = 50257})->tokens(), 100);
  const std::vector<uint16_t> narrow(101, 300);
  directory.Write("narrow.bin", Bytes(narrow));
  EXPECT_TRUE(Contains(
      FailureOf([&] { OpenTokenFile(directory / "narrow.bin", {.vocabulary = 100278}); }).what,
      "no whole number"));
  directory.Write("narrow.bin", Bytes(std::vector<uint16_t>(100, 300)));
  const auto read = OpenTokenFile(directory / "narrow.bin", {.vocabulary = 100278});
  std::vector<TokenId> ids(4);
  EXPECT_TRUE(Contains(FailureOf([&] { read->Read(0, ids); }).what, "outside the vocabulary"));
}

TEST(TokenFormats, DamagedFilesAreErrors) {
  const TestDirectory directory;
  const TokenFileOptions options = {.vocabulary = 65536};
  const auto what = [&](const std::string& name, std::string_view contents,
                        TokenFormat format = TokenFormat::kAuto) {
    directory.Write(name, contents);
    TokenFileOptions with_format = options;
    with_format.format = format;
    return FailureOf([&] { OpenTokenFile(directory / name, with_format); }).what;
  };
  const std::string ids = Bytes<uint16_t>({1, 2, 3, 4});
  EXPECT_TRUE(Contains(what("a.bin", LlmCHeader(1, 5) + ids), "holds 4 tokens"));
  EXPECT_TRUE(Contains(what("b.bin", LlmCHeader(3, 4) + ids, TokenFormat::kLlmC), "version 3"));
  EXPECT_TRUE(Contains(what("c.bin", ids, TokenFormat::kLlmC), "not a token file of llm.c"));
  EXPECT_TRUE(Contains(what("d.npy", NumpyHeader("<u2", "(5,)") + ids), "shorter"));
  EXPECT_TRUE(Contains(what("e.npy", NumpyHeader("<u2", "(2, 2)") + ids), "shape (2, 2)"));
  EXPECT_TRUE(Contains(what("f.npy", NumpyHeader("<f4", "(2,)") + ids), "type '<f4'"));
  EXPECT_TRUE(Contains(what("g.npy", NumpyHeader("<u2", "(4,)").substr(0, 60)), "damaged"));
  EXPECT_TRUE(Contains(what("h.npy", "\x93NUMPY\x01", TokenFormat::kNumpy), "not a NumPy file"));
  EXPECT_TRUE(Contains(what("i.npy", NumpyHeader("<u2", "()") + ids), "no stream"));
  EXPECT_TRUE(Contains(what("j.bin", ""), "no tokens"));
  directory.Write("k.idx", MegatronIndex(8, {3}, 2));
  EXPECT_TRUE(Contains(what("k.bin", ids), "8 bytes"));
  directory.Write("k.idx", MegatronIndex(6, {4}, 2));
  EXPECT_TRUE(Contains(what("k.bin", ids), "type code 6"));
  directory.Write("k.idx", MegatronIndex(8, {4}, 2).substr(0, 40));
  EXPECT_TRUE(Contains(what("k.bin", ids), "shorter than its header"));
  EXPECT_TRUE(Contains(FailureOf([&] { OpenTokenFiles(directory / "z_*.bin", options); }).what,
                       "no such token file"));
}

TEST(TokenFormats, RandomBytesNeverCrash) {
  const TestDirectory directory;
  RandomStream random(5, "bytes");
  const std::string starts[] = {"", LlmCHeader(7, 3), NumpyHeader("<u4", "(3,)"),
                                MegatronIndex(8, {4}, 2)};
  for (int round = 0; round < 200; ++round) {
    std::string bytes = starts[random.NextBelow(4)] + RandomBytes(random, 20);
    if (!bytes.empty())
      bytes[random.NextBelow(bytes.size())] ^= static_cast<char>(random.NextU32());
    directory.Write(round % 3 == 0 ? "x.npy" : "x.bin", bytes);
    if (round % 2 == 0) directory.Write("x.idx", MegatronIndex(8, {4}, 2) + RandomBytes(random, 9));
    try {
      const auto stream =
          OpenTokenFile(directory / (round % 3 == 0 ? "x.npy" : "x.bin"), {.vocabulary = 65536});
      ReadAll(*stream);
    } catch (const Error&) {
    }
  }
}

// 3 GiB that take no room on the disk; the last ids lie behind 2^32 bytes in the second file.
TEST(TokenFormats, SparseFilesAndOffsetsBeyondFourGibibytes) {
  const TestDirectory directory;
  const std::vector<uint32_t> last = {65535, 65536, 100277};
  for (const auto& [name, bytes] :
       {std::pair{"three.bin", int64_t{3} << 30}, {"five.npy", (int64_t{5} << 30)}}) {
    const std::string path = directory.Write(name, "");
    ASSERT_EQ(::truncate(path.c_str(), bytes - 12), 0);
    GrowingFile file(path, bytes - 12);
    file.Write(last.data(), 12);
    file.Sync();
    const auto stream = OpenTokenFile(path, {.vocabulary = kVocabulary});
    ASSERT_EQ(stream->tokens(), bytes / 4);
    std::vector<TokenId> ids(4);
    stream->Read(stream->tokens() - 4, ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{0, 65535, 65536, 100277}));
    // The last sample of an epoch is the last one of the file.
    const TrainSamples samples(*stream, 1 << 20, 1);
    EXPECT_EQ(samples.per_epoch(), bytes / 4 / (1 << 20) - 1);
  }
}

TEST(TokenFormats, FilesOfAPatternAreOneStream) {
  const TestDirectory directory;
  directory.Write("train_2.bin", LlmCHeader(1, 2) + Bytes<uint16_t>({4, 5}));
  directory.Write("train_1.bin", LlmCHeader(1, 3) + Bytes<uint16_t>({1, 2, 3}));
  const auto stream = OpenTokenFiles(directory / "train_*.bin", {.vocabulary = 10});
  EXPECT_EQ(ReadAll(*stream), (std::vector<TokenId>{1, 2, 3, 4, 5}));
  std::vector<TokenId> ids(2);
  stream->Read(2, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{3, 4}));
}

}  // namespace
}  // namespace sandglass
