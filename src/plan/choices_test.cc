#include "plan/choices.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sandglass {
namespace {

TEST(Choices, ReadsNumbersListsAndRanges) {
  const auto values = [](const char* text) { return Choices::Parse(text).values(); };
  EXPECT_EQ(values("4"), (std::vector<int>{4}));
  EXPECT_EQ(values("8..11"), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(values("256..500:64"), (std::vector<int>{256, 320, 384, 448}));
  EXPECT_EQ(values("8,2,4..6,5"), (std::vector<int>{2, 4, 5, 6, 8}));
  EXPECT_TRUE(Choices::Parse("").empty());
  EXPECT_EQ(Choices::Parse("8,2,4..6").ToString(), "8,2,4..6");
  EXPECT_EQ(Choices::Of(12).ToString(), "12");
}

TEST(Choices, RefusesEverythingElse) {
  for (const char* text : {"x", "4x", "-4", "0", "4.5", " 4", "4..", "..4", "8..4", "4:2", "4..8:0",
                           "4..8:", "4,,8", ",", "4,", "1048577", "99999999999"}) {
    EXPECT_THROW(Choices::Parse(text), Error) << text;
  }
}

TEST(Range, ReadsBoundsOrOneNumber) {
  EXPECT_EQ(Range::Parse("0.3..0.5").low, 0.3);
  EXPECT_EQ(Range::Parse("0.3..0.5").high, 0.5);
  EXPECT_EQ(Range::Parse("0.4").low, 0.4);
  EXPECT_EQ(Range::Parse("0.4").high, 0.4);
  EXPECT_TRUE(Range::Parse("").any());
  for (const char* text : {"", "0.4", "0.3..0.5"}) EXPECT_EQ(Range::Parse(text).ToString(), text);
}

TEST(Range, RefusesEverythingElse) {
  for (const char* text : {"x", "0", "-1", "0.5..0.3", "0.3..", "..0.5", "nan", "1..inf"}) {
    EXPECT_THROW(Range::Parse(text), Error) << text;
  }
}

}  // namespace
}  // namespace sandglass
