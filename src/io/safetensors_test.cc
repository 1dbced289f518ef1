#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace sandglass {
namespace {

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// A file with this header text and this many bytes of data.
std::string FileWith(const std::string& header, size_t data_bytes, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'x');
}

std::string FailureOf(const std::string& contents) {
  const std::string path = PathOf("bad.safetensors");
  WriteFileAtomically(path, contents);
  try {
    SafetensorsFile file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.parts().where, path);
    return error.parts().what;
  }
  return "accepted";
}

std::string FailureOfHeader(const std::string& header, size_t data_bytes) {
  return FailureOf(FileWith(header, data_bytes, header.size()));
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
  EXPECT_NE(FailureOf("abc").find("shorter"), std::string::npos);
  EXPECT_NE(FailureOf(FileWith("{}", 0, uint64_t{1} << 62)).find("does not fit"),
            std::string::npos);
  EXPECT_NE(FailureOf(FileWith("{}", 0, 3)).find("does not fit"), std::string::npos);
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
}

}  // namespace
}  // namespace sandglass
