#include "model/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/testing.h"

namespace sandglass {
namespace {

ModelConfig Config(std::optional<RopeScaling> scaling) {
  ModelConfig config{.shape = Shape::Parse("L1-d8-a1x8-f1x8"), .vocabulary = 4};
  config.rope_scaling = scaling;
  return config;
}

// theta = 10000 and E = 8: frequencies 1, 0.1, 0.01, 0.001.
TEST(Rotary, PlainAndLinearFrequencies) {
  const std::vector<double> plain = RotaryFrequencies(Config({}));
  const std::vector<double> slower =
      RotaryFrequencies(Config(RopeScaling{RopeScalingKind::kLinear, 4.0}));
  ASSERT_EQ(plain.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(plain[i], std::pow(10.0, -i));
    EXPECT_DOUBLE_EQ(slower[i], std::pow(10.0, -i) / 4);
  }
}

TEST(Rotary, Llama3FrequenciesByHand) {
  // Wavelengths 6.28, 62.8, 628 and 6283. With 1000 original positions, below 1000/4 = 250 nothing
  // is scaled, above 1000/1 everything. 628.3 lies between: 1000/628.3 = 1.59155 waves, of which
  // (1.59155 - 1) / (4 - 1) = 0.197183 is kept: 0.01 * (0.197183 + 0.802817/8) = 0.002975353.
  const std::vector<double> scaled =
      RotaryFrequencies(Config(RopeScaling{RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 1000}));
  EXPECT_DOUBLE_EQ(scaled[0], 1.0);
  EXPECT_DOUBLE_EQ(scaled[1], 0.1);
  EXPECT_NEAR(scaled[2], 0.002975353, 1e-9);
  EXPECT_DOUBLE_EQ(scaled[3], 0.001 / 8);
}

TEST(Rotary, TablesHoldTheAngles) {
  std::vector<float> cosines(3 * 4), sines(3 * 4);
  FillRotaryTables(ViewOf(cosines.data(), 3, 4), ViewOf(sines.data(), 3, 4),
                   Config(RopeScaling{RopeScalingKind::kLinear, 2.0}));
  EXPECT_EQ(cosines[0], 1.0f);
  EXPECT_EQ(sines[0], 0.0f);
  EXPECT_FLOAT_EQ(cosines[2 * 4], std::cos(1.0f));    // position 2, frequency 1/2
  EXPECT_FLOAT_EQ(sines[2 * 4 + 1], std::sin(0.1f));  // position 2, frequency 0.1/2
}

TEST(Rotary, ScalingIsReadAndChecked) {
  ModelConfig config = Config({});
  ReadFields(config, ParseToml("rope_scaling = {kind = \"llama3\", factor = 8}", "run.toml"));
  EXPECT_EQ(config.rope_scaling, (RopeScaling{RopeScalingKind::kLlama3, 8.0, 1.0, 4.0, 8192}));
  EXPECT_NO_THROW(config.Validate());
  ModelConfig again = Config({});
  ReadFields(again, ParseToml(ToToml(WriteFields(config)), "again.toml"));
  EXPECT_EQ(again.rope_scaling, config.rope_scaling);

  config.rope_scaling->factor = 0.5;
  EXPECT_EQ(FailureOf([&] { config.Validate(); }).what, "the model's rope_scaling.factor is 0.5");
  config.rope_scaling->factor = 8;
  config.rope_scaling->high_freq_factor = 1;
  EXPECT_EQ(FailureOf([&] { config.Validate(); }).what,
            "the model's rope_scaling.high_freq_factor is 1");
  EXPECT_NE(FailureOf([&] {
              ReadFields(config, ParseToml("rope_scaling = {kind = \"yarn\"}", "run.toml"));
            }).what.find("yarn"),
            std::string::npos);
}

}  // namespace
}  // namespace sandglass
