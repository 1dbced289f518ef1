#include "model/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"
#include "base/testing.h"
#include "model/config.h"

namespace sandglass {
namespace {

TEST(Shape, ReadsEveryPart) {
  const Shape shape = Shape::Parse("L12-d768-a16x96-kv4-f3x384,400");
  EXPECT_EQ(shape, (Shape{12, 768, 16, 96, 4, {384, 384, 384, 400}}));
  EXPECT_EQ(shape.attention_width(), 1536);
  EXPECT_EQ(shape.kv_width(), 384);
  EXPECT_EQ(shape.ffn_width(), 1552);
  EXPECT_EQ(shape.sub_mlps(), 4);
}

TEST(Shape, PartsMayComeInAnyOrderAndKvDefaultsToTheHeads) {
  EXPECT_EQ(Shape::Parse("L2-f64-a4x16-d32"), (Shape{2, 32, 4, 16, 4, {64}}));
  EXPECT_EQ(Shape::Parse("L2-kv2-f64-d32-a4x16"), (Shape{2, 32, 4, 16, 2, {64}}));
}

TEST(Shape, CanonicalText) {
  const auto canonical = [](const char* text) { return Shape::Parse(text).ToString(); };
  EXPECT_EQ(canonical("L12-d768-a12x64-f3072"), "L12-d768-a12x64-f1x3072");
  EXPECT_EQ(canonical("L12-a12x64-kv12-f384,384-d768"), "L12-d768-a12x64-f2x384");
  EXPECT_EQ(canonical("L1-d8-a2x4-kv1-f384,400,384"), "L1-d8-a2x4-kv1-f384,400,384");
  EXPECT_EQ(canonical("L1-d8-a2x4-f384,384,384,400,1x400"), "L1-d8-a2x4-f3x384,2x400");
}

TEST(Shape, RandomShapesRoundTrip) {
  RandomStream random(3, "shapes");
  const auto up_to = [&](int bound) { return 1 + static_cast<int>(random.NextBelow(bound)); };
  for (int i = 0; i < 2000; ++i) {
    Shape shape;
    shape.layers = up_to(64);
    shape.d_model = up_to(5000);
    shape.kv_heads = up_to(8);
    shape.heads = shape.kv_heads * up_to(8);
    shape.head_width = 2 * up_to(128);
    // Few distinct widths, so that runs of equal ones occur.
    for (int k = up_to(8); k > 0; --k) shape.ffn.push_back(100 + up_to(3));
    EXPECT_EQ(Shape::Parse(shape.ToString()), shape) << shape.ToString();
    EXPECT_NO_THROW(shape.Validate());
  }
}

struct BadShape {
  const char* text;
  size_t character;      // counted from 1
  const char* what;      // part of the message
  const char* expected;  // part of the expectation
};

TEST(Shape, ErrorsPointAtTheCharacter) {
  const std::vector<BadShape> cases = {
      {"", 1, "ends too early", "\"L\""},
      {"d768-L12", 1, "unexpected \"d\"", "\"L\""},
      {"L", 2, "ends too early", "number of layers"},
      {"Lx", 2, "unexpected \"x\"", "number of layers"},
      {"L-3-d8", 2, "unexpected \"-\"", "number of layers"},
      {"L12", 4, "ends too early", "\"-d\""},
      {"L12-d768", 9, "ends too early", "\"-a\""},
      {"L12-d768-a12x64", 16, "ends too early", "\"-f\""},
      {"L12d768", 4, "unexpected \"d\"", "\"-\""},
      {"L12-d768-", 10, "ends too early", "one of d"},
      {"L12-q768", 5, "unexpected \"q\"", "one of d"},
      {"L12-d-a12x64", 6, "unexpected \"-\"", "d_model"},
      {"L12-d768-a12-f384", 13, "unexpected \"-\"", "\"x\""},
      {"L12-d768-a12y64-f384", 13, "unexpected \"y\"", "\"x\""},
      {"L12-d768-a12x-f384", 14, "unexpected \"-\"", "head width"},
      {"L12-d768-a12x64-f", 18, "ends too early", "sub-MLP"},
      {"L12-d768-a12x64-f8x", 20, "ends too early", "sub-MLP width"},
      {"L12-d768-a12x64-f384,", 22, "ends too early", "sub-MLP"},
      {"L12-d768-a12x64-f384 ", 21, "unexpected \" \"", "\"-\""},
      {"L12-d768-a12x64-kv-f384", 19, "unexpected \"-\"", "KV heads"},
      {"L12-d768-d768", 10, "a second \"d\"", "once"},
      {"L12-d768-a12x64-f384-a12x64", 22, "a second \"a\"", "once"},
      {"L12-d768-a12x64-f384-f384", 22, "a second \"f\"", "once"},
      {"L12-d768-a12x64-kv4-kv4-f384", 21, "a second \"kv\"", "once"},
      {"L0-d768-a12x64-f384", 2, "zero", "from 1"},
      {"L12-d000-a12x64-f384", 6, "zero", "from 1"},
      {"L12-d99999999999999999999-a12x64-f384", 6, "far too large", "from 1"},
      {"L9999-d768-a12x64-f384", 2, "layers is 9999", "to 4096"},
      {"L12-d2000000-a12x64-f384", 6, "d_model is 2000000", "to 1048576"},
      {"L12-d768-a99999x64-f384", 11, "heads x head width", "to 1048576"},
      {"L12-d768-a12x63-f384", 14, "odd", "even"},
      {"L12-d768-a12x64-kv5-f384", 19, "evenly", "divisor of 12"},
      {"L12-d768-a12x64-kv24-f384", 19, "evenly", "divisor of 12"},
      {"L12-d768-a12x64-f9999x384", 18, "too many", "4096"},
      {"L12-d768-a12x64-f400x384", 22, "sub-layers", "4096"},
  };
  for (const BadShape& bad : cases) {
    SCOPED_TRACE(bad.text);
    const ErrorParts parts = FailureOf([&] { Shape::Parse(bad.text); });
    EXPECT_NE(parts.what.find(bad.what), std::string::npos) << parts.what;
    EXPECT_NE(parts.expected.find(bad.expected), std::string::npos) << parts.expected;
    const std::string where = "character " + std::to_string(bad.character) + "\n      " + bad.text +
                              "\n      " + std::string(bad.character - 1, ' ') + "^";
    EXPECT_EQ(parts.where, where);
  }
}

TEST(Shape, ValidateNamesTheFault) {
  const Shape good = Shape::Parse("L12-d768-a12x64-f8x384");
  const auto fault_of = [&](auto&& change) {
    Shape shape = good;
    change(shape);
    return FailureOf([&] { shape.Validate(); }).what;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.layers = 0; }), "layers is 0"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.d_model = -1; }), "d_model is -1"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.heads = 0; }), "heads is 0"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.head_width = 63; }), "63 is odd"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.kv_heads = 0; }), "KV heads is 0"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.kv_heads = 5; }), "5 KV heads evenly"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.ffn.clear(); }), "no sub-MLP"));
  EXPECT_TRUE(has(fault_of([](Shape& s) { s.ffn[2] = 0; }), "width is 0"));
}

TEST(ModelConfig, PadsTheVocabulary) {
  ModelConfig config{.vocabulary = 100278};
  EXPECT_EQ(config.padded_vocabulary(), 100278);
  config.vocabulary_multiple = 128;
  EXPECT_EQ(config.padded_vocabulary(), 100352);
  config.vocabulary = 100352;
  EXPECT_EQ(config.padded_vocabulary(), 100352);
}

TEST(ModelConfig, Families) {
  const Shape shape = Shape::Parse("L2-d64-a4x16-f2x48");
  const ModelConfig llama = FamilyConfig(Family::kLlama, shape, 256);
  EXPECT_EQ(llama.shape, shape);
  EXPECT_EQ(llama.vocabulary, 256);
  EXPECT_EQ(llama.norm, NormPlacement::kPre);
  EXPECT_EQ(llama.qk_norm, QkNorm::kNone);
  EXPECT_EQ(llama.rope_theta, 10000.0);
  EXPECT_EQ(WriteFields(FamilyConfig(Family::kHourglass, shape, 256)), WriteFields(llama));
  const ModelConfig olmo2 = FamilyConfig(Family::kOlmo2, shape, 256);
  EXPECT_EQ(olmo2.norm, NormPlacement::kPost);
  EXPECT_EQ(olmo2.qk_norm, QkNorm::kFullWidth);
  EXPECT_EQ(olmo2.rope_theta, 500000.0);
}

TEST(ModelConfig, ValidateRefusesWhatCannotBe) {
  const ModelConfig good = FamilyConfig(Family::kLlama, Shape::Parse("L2-d64-a4x16-f2x48"), 256);
  EXPECT_NO_THROW(good.Validate());
  const auto fault_of = [&](auto&& change) {
    ModelConfig config = good;
    change(config);
    return FailureOf([&] { config.Validate(); }).what;
  };
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.vocabulary = 0; }), "the model's vocabulary is 0");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.vocabulary_multiple = 0; }),
            "the model's vocabulary_multiple is 0");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.rope_theta = 1; }), "the model's rope_theta is 1");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.norm_epsilon = 0; }), "the model's norm_epsilon is 0");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.init_std = -0.5; }), "the model's init_std is -0.5");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.init_std = std::numeric_limits<double>::quiet_NaN(); }),
            "the model's init_std is nan");
  EXPECT_EQ(fault_of([](ModelConfig& c) { c.z_loss = std::numeric_limits<double>::infinity(); }),
            "the model's z_loss is inf");
  EXPECT_NE(fault_of([](ModelConfig& c) { c.shape.ffn.clear(); }).find("impossible shape"),
            std::string::npos);
  EXPECT_NE(fault_of([](ModelConfig& c) {
              c.norm = NormPlacement::kPost;
              c.depth_scaled_norm = true;
            }).find("depth_scaled_norm"),
            std::string::npos);
}

}  // namespace
}  // namespace sandglass
