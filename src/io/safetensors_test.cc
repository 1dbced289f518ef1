#include "io/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/testing.h"
#include "tensor/half.h"

namespace sandglass {
namespace {

// Other programs may run the same tests at the same time.
std::string PathOf(const std::string& name) {
  return fmt::format("{}/{}-{}", ::testing::TempDir(), ::getpid(), name);
}

// A file with this header text and this many bytes of data.
std::string FileWith(const std::string& header, size_t data_bytes, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'x');
}

std::string RefusalOf(const std::string& contents) {
  const ErrorParts parts =
      sandglass::FailureOf([&] { SafetensorsFile(contents, "bad.safetensors"); });
  EXPECT_EQ(parts.where, "bad.safetensors");
  return parts.what;
}

std::string FailureOfHeader(const std::string& header, size_t data_bytes) {
  return RefusalOf(FileWith(header, data_bytes, header.size()));
}

TEST(Safetensors, RoundTrip) {
  const std::string path = PathOf("round_trip.safetensors");
  const std::vector<float> a = {1, -2, 3.5f, 0, 1e-30f, 7};
  const std::vector<double> b = {0.1};
  WriteSafetensors(path,
                   {{"a", {2, 3}, ViewOf(a.data(), 2, 3)}, {"b", {1}, ViewOf(b.data(), 1, 1)}},
                   {{"step", "12"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.metadata().at("step"), "12");
  std::vector<float> again(6);
  file.CopyTo("a", ViewOf(again.data(), 2, 3));
  EXPECT_EQ(again, a);
  double value = 0;
  file.CopyTo("b", ViewOf(&value, 1, 1));
  EXPECT_EQ(value, 0.1);
  EXPECT_THROW(file.CopyTo("a", ViewOf(again.data(), 1, 5)), Error);
  EXPECT_THROW(file.CopyTo("b", ViewOf(again.data(), 1, 1)), Error);
  EXPECT_THROW(file.Find("c"), Error);
}

TEST(Safetensors, HostileHeadersAreRefused) {
  EXPECT_NE(RefusalOf("abc").find("shorter"), std::string::npos);
  EXPECT_NE(RefusalOf(FileWith("{}", 0, uint64_t{1} << 62)).find("does not fit"),
            std::string::npos);
  EXPECT_NE(RefusalOf(FileWith("{}", 0, 3)).find("does not fit"), std::string::npos);
  EXPECT_NE(FailureOfHeader("{\"a\":", 0).find("not JSON"), std::string::npos);
  EXPECT_NE(FailureOfHeader("[1]", 0).find("not an object"), std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                               "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                            4)
                .find("appears twice"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4)
                .find("its shape needs 8"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4)
                .find("outside"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4)
                .find("outside"),
            std::string::npos);
  EXPECT_NE(
      FailureOfHeader(R"({"a":{"dtype":"I7","shape":[1],"data_offsets":[0,4]}})", 4).find("I7"),
      std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                            R"("data_offsets":[0,4]}})",
                            4)
                .find("overflows"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)
                .find("whole number"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                            4)
                .find("ends at 4"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5)
                .find("belong to no tensor"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(std::string(1000, '['), 0).find("header"), std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1]}})", 4)
                .find("\"dtype\" appears twice"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2,4]}})", 4)
                .find("not [begin, end]"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4)
                .find("needs dtype"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}})", 4)
                .find("\"dtype\" is an object"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"a":7})", 0).find("\"a\" is a number"), std::string::npos);
  EXPECT_NE(FailureOfHeader(R"({"__metadata__":{"k":1}})", 0).find("\"k\" is not a text"),
            std::string::npos);
  EXPECT_NE(FailureOfHeader("{\"\xff\":{}}", 0).find("not JSON"), std::string::npos);
}

// A hundred thousand names are read in time that grows with their number, not with its square.
TEST(Safetensors, AHeaderOfManyTensorsIsQuick) {
  std::string header = "{";
  for (int i = 0; i < 100000; ++i) {
    header += (i > 0 ? "," : "") + ("\"t" + std::to_string(i)) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  header += "}";
  const SafetensorsFile file(FileWith(header, 0, header.size()), "many.safetensors");
  EXPECT_EQ(file.entries().size(), 100000u);
  EXPECT_EQ(file.Find("t99999").name, "t99999");
}

TEST(Safetensors, SixteenBitTypesAreWrittenAndRead) {
  const std::string path = PathOf("halves.safetensors");
  const std::vector<float> values = {1.0f, -2.5f, 0x1.004p0f, 1e5f};
  const ConstView view = ViewOf(values.data(), 2, 2);
  WriteSafetensors(path, {{"half", {2, 2}, view, DType::kF16}, {"brain", {4}, view, DType::kBF16}});
  const SafetensorsFile file(path);
  const auto read = [&](const char* name) {
    std::vector<float> out(4);
    file.ReadF32(file.Find(name), out);
    return out;
  };
  EXPECT_EQ(file.Find("half").dtype, DType::kF16);
  EXPECT_EQ(file.Find("brain").size_bytes, 8u);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(read("half")[i], FromF16(ToF16(values[i])));
    EXPECT_EQ(read("brain")[i], FromBf16(ToBf16(values[i])));
  }
}

class SafetensorsShards : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    CreateDirectories(root_);
    Shard("one.safetensors", {"a", "b"});
    Shard("two.safetensors", {"c"});
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Shard(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<NamedTensor> named;
    for (const std::string& tensor : tensors) {
      named.push_back({tensor, {2}, ViewOf(values_.data(), 1, 2)});
    }
    WriteSafetensors(root_ + "/" + name, named);
  }
  void Index(const std::string& json) {
    WriteFileAtomically(root_ + "/" + std::string(kSafetensorsIndex), json);
  }
  std::string Refusal() {
    return sandglass::FailureOf([&] { SafetensorsDirectory{root_}; }).what;
  }

  const std::vector<float> values_ = {1, 2};
  const std::string root_ = PathOf("shards");
};

TEST_F(SafetensorsShards, AreReadThroughTheirIndex) {
  Index(R"({"metadata": {"total_size": 24}, "weight_map":
            {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  const SafetensorsDirectory directory(root_);
  ASSERT_EQ(directory.tensors().size(), 3u);
  EXPECT_EQ(directory.tensors().at("c").file->path(), root_ + "/two.safetensors");
  std::vector<float> out(2);
  const auto& b = directory.tensors().at("b");
  b.file->ReadF32(*b.entry, out);
  EXPECT_EQ(out, values_);
}

TEST_F(SafetensorsShards, ThatDoNotFitTheirIndexAreRefused) {
  EXPECT_NE(Refusal().find("there are no weights"), std::string::npos);
  Index("[]");
  EXPECT_NE(Refusal().find("no weight_map"), std::string::npos);
  Index("{");
  EXPECT_NE(Refusal().find("not valid JSON"), std::string::npos);
  Index(R"({"weight_map": {"a": 1}})");
  EXPECT_NE(Refusal().find("the file of \"a\" is not a text"), std::string::npos);
  Index(R"({"weight_map": {"a": "../one.safetensors"}})");
  EXPECT_NE(Refusal().find("not the name of a safetensors file"), std::string::npos);
  Index(R"({"weight_map": {"a": "model.safetensors.index.json"}})");  // itself
  EXPECT_NE(Refusal().find("not the name of a safetensors file"), std::string::npos);
  Index(R"({"weight_map": {"a": "three.safetensors"}})");
  EXPECT_NE(Refusal().find("the shard three.safetensors is missing"), std::string::npos);
  Index(R"({"weight_map": {"a": "one.safetensors"}})");
  EXPECT_NE(Refusal().find("does not name one.safetensors for tensor \"b\""), std::string::npos);
  Index(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                           "d": "two.safetensors", "c": "two.safetensors"}})");
  EXPECT_NE(Refusal().find("two.safetensors has no tensor \"d\""), std::string::npos);
  Shard("two.safetensors", {"a"});
  Index(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                           "c": "two.safetensors"}})");
  EXPECT_NE(Refusal().find("\"a\" is in two shards"), std::string::npos);
}

}  // namespace
}  // namespace sandglass
