#include "io/gguf_file.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "io/testing.h"

namespace sandglass {
namespace {

std::string FailureOfBytes(const std::string& bytes) {
  const ErrorParts parts = FailureOf([&] { GgufFile(bytes, "bad.gguf"); });
  EXPECT_EQ(parts.where, "bad.gguf");
  return parts.what;
}

void ExpectRefused(const std::string& bytes, const std::string& text) {
  const std::string what = FailureOfBytes(bytes);
  EXPECT_NE(what.find(text), std::string::npos) << what;
}

GgufTestFile SoundFile() {
  GgufTestFile file;
  file.Text("general.architecture", "llama")
      .U32("llama.block_count", 2)
      .F32("llama.rope.freq_base", 10000.0f)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .I32s("llama.feed_forward_length", {3, -4})
      .Texts("tokenizer.ggml.tokens", {"a", "bc", ""});
  file.F32Tensor("a", {2, 3}, {1, 2, 3, 4, 5, 6}).F32Tensor("b", {1}, {7});
  return file;
}

TEST(GgufFile, ReadsKeysAndTensors) {
  const std::string bytes = SoundFile().bytes();
  const GgufFile file(bytes, "sound.gguf");
  EXPECT_EQ(file.Require<std::string_view>("general.architecture"), "llama");
  EXPECT_EQ(file.Get<int64_t>("llama.block_count"), 2);
  EXPECT_EQ(file.Get<double>("llama.block_count"), 2.0);
  EXPECT_EQ(file.Get<double>("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(file.Get<bool>("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(file.Get<std::vector<int64_t>>("llama.feed_forward_length"),
            (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(file.Get<std::vector<std::string_view>>("tokenizer.ggml.tokens"),
            (std::vector<std::string_view>{"a", "bc", ""}));
  EXPECT_EQ(file.Get<int64_t>("absent"), std::nullopt);
  EXPECT_EQ(FailureOf([&] { file.Require<int64_t>("absent"); }).what, "the file has no key absent");
  EXPECT_EQ(FailureOf([&] { file.Get<int64_t>("general.architecture"); }).what,
            "the key general.architecture holds a text");

  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufFile::Tensor* a = file.Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a->elements(), 6);
  float last;
  std::memcpy(&last, file.Bytes(*a).data() + 5 * sizeof(float), sizeof(last));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(file.Bytes(*file.Find("b")).size(), 4u);
  EXPECT_EQ(file.Find("c"), nullptr);
}

TEST(GgufFile, EveryTruncationIsRefused) {
  const std::string bytes = SoundFile().bytes();
  // The last tensor ends where its padding begins: 28 bytes may be missing.
  for (size_t size = 0; size < bytes.size() - 28; ++size) {
    EXPECT_THROW(GgufFile(std::string_view(bytes).substr(0, size), "cut.gguf"), Error) << size;
  }
  EXPECT_NO_THROW(GgufFile(std::string_view(bytes).substr(0, bytes.size() - 28), "cut.gguf"));
}

GgufBytes Header(uint64_t tensors, uint64_t keys, uint32_t version = kGgufVersion) {
  GgufBytes file;
  file.Raw(kGgufMagic).Number(version).Number(tensors).Number(keys);
  return file;
}

TEST(GgufFile, WrongBeginningsAreRefused) {
  ExpectRefused("", "does not begin with \"GGUF\"");
  ExpectRefused("PK\x03\x04", "does not begin with \"GGUF\"");
  ExpectRefused(Header(0, 0, 1).bytes(), "version 1");
  ExpectRefused(Header(0, 0, 0x03000000).bytes(), "big-endian");
}

TEST(GgufFile, HostileCountsAreRefused) {
  ExpectRefused(Header(uint64_t{1} << 60, 0).bytes(), "the number of tensors is");
  ExpectRefused(Header(static_cast<uint64_t>(-1), 0).bytes(), "the number of tensors is -1");
  ExpectRefused(Header(0, uint64_t{1} << 63).bytes(), "the number of keys is");
  ExpectRefused(Header(0, 1)
                    .Text("key")
                    .Type(GgufValueType::kArray)
                    .Type(GgufValueType::kU8)
                    .Number(uint64_t{1} << 40)
                    .bytes(),
                "key is 1099511627776, more than the file has room for");
  ExpectRefused(Header(0, 1).Number(uint64_t{1} << 40).PadTo(64).bytes(), "a key at byte 32 needs");
}

TEST(GgufFile, ValuesThatAreNoneAreRefused) {
  const auto with_type = [](uint32_t type) {
    return Header(0, 1).Text("key").Number(type).PadTo(128).bytes();
  };
  ExpectRefused(with_type(13), "key has value type 13, which does not exist");
  ExpectRefused(Header(0, 1)
                    .Text("key")
                    .Type(GgufValueType::kArray)
                    .Type(GgufValueType::kArray)
                    .PadTo(128)
                    .bytes(),
                "key is an array of value type 9");
  ExpectRefused(Header(0, 1).Text("key").Type(GgufValueType::kU64).Number(~uint64_t{0}).bytes(),
                "out of range");
  ExpectRefused(GgufTestFile().U32("key", 1).U32("key", 2).bytes(), "key \"key\" appears twice");
  ExpectRefused(GgufTestFile().U32("general.alignment", 12).bytes(), "alignment is 12");
  ExpectRefused(GgufTestFile().U32("general.alignment", 0).bytes(), "alignment is 0");
}

// A file of one tensor, put together by hand.
std::string TensorFile(std::string_view name, uint32_t dimensions, int64_t size, uint32_t type,
                       uint64_t offset) {
  GgufBytes file = Header(1, 0);
  file.Text(name).Number(dimensions);
  for (uint32_t i = 0; i < std::min(dimensions, 8u); ++i) file.Number(size);
  return file.Number(type).Number(offset).PadTo(512).bytes();
}

TEST(GgufFile, WrongTensorsAreRefusedByName) {
  EXPECT_NO_THROW(GgufFile(TensorFile("t", 1, 4, 0, 0), "good.gguf"));
  ExpectRefused(TensorFile("t", 0, 4, 0, 0), "tensor \"t\": 0 dimensions");
  ExpectRefused(TensorFile("t", 5, 4, 0, 0), "tensor \"t\": 5 dimensions");
  ExpectRefused(TensorFile("t", 2, -4, 0, 0), "tensor \"t\": a dimension of -4");
  ExpectRefused(TensorFile("t", 2, 0, 0, 0), "tensor \"t\": a dimension of 0");
  ExpectRefused(TensorFile("t", 4, 1 << 20, 0, 0), "tensor \"t\": its size overflows");
  ExpectRefused(TensorFile("t", 1, 33, 8, 0), "no whole blocks of 32, as Q8_0 needs");
  ExpectRefused(TensorFile("t", 1, 32, 20, 0), "tensor \"t\" is of IQ4_NL (id 20)");
  ExpectRefused(TensorFile("t", 1, 32, 99, 0), "an unknown type (id 99)");
  ExpectRefused(TensorFile("t", 1, 4, 0, 32), "begins at 32");
  ExpectRefused(TensorFile("t", 1, 4096, 0, 0), "takes bytes 0 to 16384 of");
  ExpectRefused(TensorFile(std::string(64, 'n'), 1, 4, 0, 0), "its name has 64 bytes");
  ExpectRefused(GgufTestFile().F32Tensor("t", {1}, {1}).F32Tensor("t", {1}, {1}).bytes(),
                "tensor \"t\" appears twice");
}

}  // namespace
}  // namespace sandglass
