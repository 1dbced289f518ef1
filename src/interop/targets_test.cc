#include "interop/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace sandglass {
namespace {

using enum Architecture;

constexpr const char* kOne = "L2-d512-a8x64-f1x256";
constexpr const char* kFour = "L2-d512-a8x64-f4x256";

struct Case {
  const char* shape;
  NormPlacement norm;
  QkNorm qk_norm;
  // Architecture of the route, or part of the reason of the refusal.
  std::variant<Architecture, const char*> hf, vllm, gguf;
};

TEST(RouteTo, FollowsWhatTheProgramsCanRun) {
  using enum NormPlacement;
  using enum QkNorm;
  const char* const kNoVllm = "only as nemotron_nas";
  const std::vector<Case> cases = {
      {kOne, kPre, kNone, kHfLlama, kHfLlama, kGgufLlama},
      {kFour, kPre, kNone, kHfSandglass, kHfNemotronNas, kGgufDeci},
      {kOne, kPre, kPerHead, kHfQwen3, kHfQwen3, kGgufQwen3},
      {kFour, kPre, kPerHead, kHfSandglass, kNoVllm,
       "pre-norm with per-head QK-norm and 4 sub-MLPs"},
      {kOne, kPre, kFullWidth, kHfSandglass, kNoVllm, "full-width QK-norm"},
      {kFour, kPre, kFullWidth, kHfSandglass, kNoVllm, "full-width QK-norm"},
      {kOne, kPost, kFullWidth, kHfOlmo2, kHfOlmo2, kGgufOlmo2},
      {kFour, kPost, kFullWidth, kHfSandglass, kNoVllm, "only as olmo2"},
      {kOne, kPost, kNone, kHfSandglass, kNoVllm, "only as olmo2"},
      {kOne, kPost, kPerHead, kHfSandglass, kNoVllm, "only as olmo2"},
      // An attention narrower than d_model.
      {"L2-d512-a4x64-f1x256", kPost, kFullWidth, kHfOlmo2, kHfOlmo2,
       "an attention of 256 and a d_model of 512"},
      {"L2-d512-a4x64-f1x256", kPre, kPerHead, kHfQwen3, kHfQwen3, kGgufQwen3},
      // Heads that do not divide d_model: transformers' Llama refuses, the others do not.
      {"L2-d512-a6x64-f1x256", kPre, kNone, kHfSandglass, kHfNemotronNas, kGgufLlama},
      {"L129-d512-a8x64-f4x256", kPre, kNone, kHfSandglass, kHfNemotronNas,
       "at most 512, and this shape has 516"},
      {"L128-d512-a8x64-f4x256", kPre, kNone, kHfSandglass, kHfNemotronNas, kGgufDeci},
  };
  for (const Case& c : cases) {
    ModelConfig config{.shape = Shape::Parse(c.shape), .norm = c.norm, .qk_norm = c.qk_norm};
    const auto expect = [&](ExportTarget target, const auto& expected) {
      const ExportRoute route = RouteTo(target, ExportType::kF32, config);
      SCOPED_TRACE(fmt::format("{} {} {} to {}", c.shape, EnumName(c.norm), EnumName(c.qk_norm),
                               EnumName(target)));
      if (const Architecture* architecture = std::get_if<Architecture>(&expected)) {
        EXPECT_FALSE(route.limit.has_value()) << route.limit->reason;
        EXPECT_STREQ(EnumName(route.architecture), EnumName(*architecture));
      } else {
        ASSERT_TRUE(route.limit.has_value());
        EXPECT_NE(route.limit->reason.find(std::get<const char*>(expected)), std::string::npos)
            << route.limit->reason;
        EXPECT_NE(route.limit->remedy.find("--to hf"), std::string::npos) << route.limit->remedy;
      }
    };
    expect(ExportTarget::kHf, c.hf);
    expect(ExportTarget::kVllm, c.vllm);
    expect(ExportTarget::kGguf, c.gguf);
  }
}

TEST(RouteTo, Q8NeedsRowsOfWholeBlocksAndAGgufFile) {
  const auto limit = [](const char* shape, ExportTarget target) {
    const auto found = RouteTo(target, ExportType::kQ8_0, {.shape = Shape::Parse(shape)}).limit;
    return found ? found->reason + "; " + found->remedy : std::string();
  };
  EXPECT_EQ(limit("L2-d96-a2x64-f32,64", ExportTarget::kGguf), "");
  EXPECT_NE(limit("L2-d96-a2x64-f32,40", ExportTarget::kGguf).find("d_h = 40"), std::string::npos);
  EXPECT_NE(limit("L2-d90-a2x64-f2x64", ExportTarget::kGguf).find("d_model = 90"),
            std::string::npos);
  EXPECT_NE(limit("L2-d96-a1x48-f2x64", ExportTarget::kGguf).find("heads x head width = 48"),
            std::string::npos);
  EXPECT_NE(limit("L2-d96-a1x48-f2x64", ExportTarget::kGguf).find("--type bf16"),
            std::string::npos);
  EXPECT_NE(limit(kFour, ExportTarget::kHf).find("--to gguf"), std::string::npos);
  EXPECT_NE(limit(kFour, ExportTarget::kVllm).find("--to gguf"), std::string::npos);
}

TEST(RouteTo, Llama3RopeScalingWhereTheProgramKnowsIt) {
  ModelConfig config{.shape = Shape::Parse(kOne), .rope_scaling = RopeScaling{}};
  const auto has_limit = [&] {
    return RouteTo(ExportTarget::kGguf, ExportType::kF32, config).limit.has_value();
  };
  config.rope_scaling->kind = RopeScalingKind::kLlama3;
  EXPECT_FALSE(has_limit());
  config.qk_norm = QkNorm::kPerHead;
  EXPECT_TRUE(has_limit());
  config.rope_scaling->kind = RopeScalingKind::kLinear;
  EXPECT_FALSE(has_limit());
}

std::string Warnings(const char* shape, QkNorm qk_norm = QkNorm::kNone) {
  return fmt::format(
      "{}", fmt::join(ExportWarnings({.shape = Shape::Parse(shape), .qk_norm = qk_norm}), "\n"));
}

TEST(ExportWarnings, SayWhatADesignRulesOut) {
  EXPECT_EQ(Warnings(kOne), "");
  EXPECT_EQ(Warnings(kFour), "");
  const std::string narrow = Warnings("L2-d96-a8x64-f256,40");
  EXPECT_NE(narrow.find("d_model = 96 is not a multiple of 256"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("d_h = 40 is not a multiple of 32"), std::string::npos) << narrow;
  EXPECT_NE(Warnings("L2-d512-a6x64-f2x256").find("heads x head width = 384"), std::string::npos);
  EXPECT_NE(Warnings("L2-d512-a6x64-f1x256").find("refuses d_model = 512 with 6 heads"),
            std::string::npos);
  const std::string normed = Warnings(kFour, QkNorm::kPerHead);
  EXPECT_NE(normed.find("llama.cpp cannot run this model"), std::string::npos) << normed;
  EXPECT_NE(normed.find("vLLM cannot run this model"), std::string::npos) << normed;
  EXPECT_NE(normed.find("--to hf"), std::string::npos) << normed;
  EXPECT_NE(Warnings("L2-d512-a8x16-f1x256").find("no head width of 16"), std::string::npos);
}

}  // namespace
}  // namespace sandglass
