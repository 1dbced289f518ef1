#include "train/event_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/testing.h"
#include "event.pb.h"

namespace sandglass {
namespace {

class EventWriterTest : public testing::Test {
 protected:
  const TestDirectory place_;
  const std::string directory_ = place_ / "events";
};

template <class Integer>
Integer LoadLittleEndian(std::string_view bytes) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= Integer{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// The data of every frame; both checksums of each are verified.
std::vector<std::string> ReadFrames(const std::string& path) {
  const std::string file = ReadFile(path);
  std::vector<std::string> frames;
  for (std::string_view rest = file; !rest.empty();) {
    if (rest.size() < 16) throw std::runtime_error("truncated frame");
    const uint64_t length = LoadLittleEndian<uint64_t>(rest);
    EXPECT_EQ(LoadLittleEndian<uint32_t>(rest.substr(8)), MaskedCrc32c(rest.substr(0, 8)));
    if (rest.size() < 16 + length) throw std::runtime_error("truncated frame");
    const std::string_view data = rest.substr(12, length);
    EXPECT_EQ(LoadLittleEndian<uint32_t>(rest.substr(12 + length)), MaskedCrc32c(data));
    frames.emplace_back(data);
    rest.remove_prefix(16 + length);
  }
  return frames;
}

std::vector<events::Event> ReadEvents(const std::string& path) {
  std::vector<events::Event> out;
  for (const std::string& frame : ReadFrames(path)) {
    EXPECT_TRUE(out.emplace_back().ParseFromString(frame));
  }
  return out;
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32cTest, PublishedValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST_F(EventWriterTest, ScalarsReadBackWithTheirStepsAndTimes) {
  EventWriter writer(directory_);
  writer.Scalar(0, "train/loss", 7.625);
  writer.Scalar(20'000'000'000, "validation/loss", std::numeric_limits<double>::quiet_NaN());
  writer.Scalar(3, "train/skipped", 0.0);
  writer.Flush();

  const std::vector<events::Event> read = ReadEvents(writer.path());
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[0].file_version(), "brain.Event:2");
  ASSERT_EQ(read[1].summary().value_size(), 1);
  EXPECT_EQ(read[1].step(), 0);
  EXPECT_EQ(read[1].summary().value(0).tag(), "train/loss");
  EXPECT_EQ(read[1].summary().value(0).simple_value(), 7.625f);
  EXPECT_GE(read[1].wall_time(), read[0].wall_time());
  EXPECT_GT(read[0].wall_time(), 1.7e9);  // seconds, not another unit: after November 2023
  EXPECT_EQ(read[2].step(), 20'000'000'000);
  EXPECT_TRUE(std::isnan(read[2].summary().value(0).simple_value()));
  // A zero is a value, not an absent one.
  EXPECT_EQ(read[3].summary().value(0).value_case(), events::Summary::Value::kSimpleValue);
}

// The bytes of the wire format, which the message definition above cannot vouch for itself.
TEST_F(EventWriterTest, BytesAreThoseOfTheFormat) {
  EventWriter writer(directory_);
  writer.Scalar(5, "loss", 1.0);
  writer.Flush();
  const std::vector<std::string> frames = ReadFrames(writer.path());
  ASSERT_EQ(frames.size(), 2u);
  const std::string time = "\x09";                     // field 1, 64 bits
  const std::string version = "\x1a\x0d";              // field 3, 13 characters
  const std::string step = "\x10\x05";                 // field 2: 5
  const std::string summary = "\x2a\x0d\x0a\x0b";      // field 5, in it field 1
  const std::string tag = "\x0a\x04";                  // field 1, 4 characters
  const std::string value("\x15\x00\x00\x80\x3f", 5);  // field 2: 1.0 in 32 bits
  EXPECT_EQ(frames[0].substr(0, 1), time);
  EXPECT_EQ(frames[0].substr(9), version + "brain.Event:2");
  EXPECT_EQ(frames[1].substr(0, 1), time);
  EXPECT_EQ(frames[1].substr(9), step + summary + tag + "loss" + value);
}

TEST_F(EventWriterTest, AResumedRunContinuesInAFileOfItsOwn) {
  std::string first_path;
  {
    EventWriter first(directory_);
    first.Scalar(5, "train/loss", 3.0);
    first_path = first.path();
  }
  EventWriter second(directory_);
  second.Scalar(6, "train/loss", 2.5);
  second.Flush();
  EXPECT_NE(first_path, second.path());
  EXPECT_EQ(ReadEvents(first_path).back().step(), 5);
  EXPECT_EQ(ReadEvents(second.path()).back().step(), 6);
  EXPECT_LT(first_path, second.path());  // readers take the files in the order of their names
  EXPECT_EQ(second.path().rfind(directory_ + "/events.out.tfevents.", 0), 0u);
}

// Steps and tags of a directory's events, the opening ones left out.
std::vector<std::pair<int64_t, std::string>> StepsAndTags(const std::string& directory) {
  std::vector<std::pair<int64_t, std::string>> out;
  for (const std::string& path : ListEventFiles(directory)) {
    for (const events::Event& event : ReadEvents(path)) {
      if (event.has_session_log()) out.emplace_back(event.step(), "start");
      if (event.has_summary()) out.emplace_back(event.step(), event.summary().value(0).tag());
    }
  }
  return out;
}

TEST_F(EventWriterTest, HistogramsReadBackAndCountEveryValue) {
  const std::vector<float> values = {-3.0f, -0.5f, 0.0f, 1e-20f, 0.5f, 0.5f, 0.55f, 7.0f};
  {
    EventWriter writer(directory_);
    writer.Histogram(4, "weights/w", MakeHistogram(ViewOf(values.data(), 2, 4)));
    // Nothing to show: readers would choke on an empty one.
    const float nothing = std::nanf("");
    writer.Histogram(5, "weights/w", MakeHistogram(ViewOf(&nothing, 1, 1)));
  }
  const std::vector<events::Event> read = ReadEvents(ListEventFiles(directory_)[0]);
  ASSERT_EQ(read.size(), 2u);
  const events::Histogram& histo = read[1].summary().value(0).histo();
  EXPECT_EQ(histo.min(), -3.0);
  EXPECT_EQ(histo.max(), 7.0);
  EXPECT_EQ(histo.num(), 8.0);
  EXPECT_NEAR(histo.sum(), 5.05, 1e-6);
  EXPECT_NEAR(histo.sum_squares(), 9 + 0.25 + 0.25 + 0.25 + 0.3025 + 49, 1e-6);
  ASSERT_EQ(histo.bucket_size(), histo.bucket_limit_size());
  double counted = 0;
  for (int i = 0; i < histo.bucket_size(); ++i) {
    counted += histo.bucket(i);
    if (i > 0) {
      EXPECT_GT(histo.bucket_limit(i), histo.bucket_limit(i - 1));
    }
  }
  EXPECT_EQ(counted, 8.0);
}

// The bytes that the real reader's message definition gives, so that field numbers cannot drift.
TEST_F(EventWriterTest, HistogramBytesAreThoseOfTheFormat) {
  EventWriter writer(directory_);
  Histogram histogram;
  histogram.min = histogram.max = histogram.sum = histogram.sum_squares = 1.0;
  histogram.count = 1;
  histogram.limits = {1.0, 2.0};
  histogram.counts = {0, 1};
  writer.Histogram(5, "w", histogram);
  writer.Flush();
  const std::string one("\x00\x00\x00\x00\x00\x00\xf0\x3f", 8);
  const std::string two("\x00\x00\x00\x00\x00\x00\x00\x40", 8);
  const std::string histo = "\x09" + one + "\x11" + one + "\x19" + one + "\x21" + one + "\x29" +
                            one + "\x32\x10" + one + two +            // field 6, packed: 1, 2
                            "\x3a\x10" + std::string(8, '\0') + one;  // field 7, packed: 0, 1
  const std::string value = "\x0a\x01w\x2a\x51" + histo;              // tag, then field 5: 81 bytes
  EXPECT_EQ(histo.size(), 81u);
  EXPECT_EQ(ReadFrames(writer.path())[1].substr(9),
            "\x10\x05\x2a" + std::string("\x58\x0a\x56") + value);
}

TEST_F(EventWriterTest, AResumedRunTakesBackTheLaterSteps) {
  {
    EventWriter first(directory_);
    for (int step = 1; step <= 5; ++step) first.Scalar(step, "loss", 3.0);
  }
  {
    CutEventFiles(directory_, 4);
    EventWriter second(directory_, 4);  // killed before it wrote a step
  }
  CutEventFiles(directory_, 3);
  EventWriter third(directory_, 3);
  third.Scalar(4, "loss", 2.5);
  third.Flush();
  const std::vector<std::pair<int64_t, std::string>> expected = {
      {1, "loss"}, {2, "loss"}, {3, "loss"}, {4, "start"}, {4, "loss"}};
  EXPECT_EQ(StepsAndTags(directory_), expected);
  EXPECT_EQ(ListEventFiles(directory_).size(), 2u);  // nothing is left of the second
}

TEST_F(EventWriterTest, WhatACrashCutOffIsTakenBack) {
  std::string path;
  {
    EventWriter writer(directory_);
    for (int step = 1; step <= 3; ++step) writer.Scalar(step, "loss", 3.0);
    path = writer.path();
  }
  const std::string whole = ReadFile(path);
  const size_t frame = (whole.size() - 40) / 3;  // three frames of one size after the opening one
  WriteFileAtomically(path, whole.substr(0, whole.size() - 5));
  CutEventFiles(directory_, 3);
  EXPECT_EQ(StepsAndTags(directory_).size(), 2u);
  EXPECT_EQ(ReadFile(path), whole.substr(0, ReadFile(path).size()));
  EXPECT_NEAR(double(whole.size() - ReadFile(path).size()), double(frame), 1.0);

  std::string damaged = whole;
  damaged[whole.size() - 10] ^= 1;
  WriteFileAtomically(path, damaged);
  CutEventFiles(directory_, 3);
  EXPECT_EQ(StepsAndTags(directory_).size(), 2u);

  WriteFileAtomically(path, std::string(200, '\xff'));  // a length beyond all memory
  CutEventFiles(directory_, 3);
  EXPECT_TRUE(ListEventFiles(directory_).empty());
}

TEST_F(EventWriterTest, AnImpossibleDirectoryIsAUserError) {
  CreateDirectories(directory_);
  WriteFileAtomically(directory_ + "/taken", "a file");
  EXPECT_THROW(EventWriter(directory_ + "/taken"), Error);
}

// A limit on the file's size stands in for a full disk.
TEST_F(EventWriterTest, AFullDiskIsAUserError) {
  EventWriter writer(directory_);
  const auto previous_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit previous{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &previous), 0);
  const rlimit tight{64, previous.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  writer.Scalar(1, "train/loss", 3.0);
  writer.Scalar(2, "train/loss", 3.0);
  EXPECT_THROW(writer.Flush(), Error);
  ::setrlimit(RLIMIT_FSIZE, &previous);
  std::signal(SIGXFSZ, previous_handler);
}

}  // namespace
}  // namespace sandglass
