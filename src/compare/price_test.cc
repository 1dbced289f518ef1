#include "compare/price.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace sandglass {
namespace {

std::vector<TrainingPrice> PriceRecipe(const std::string& name) {
  return PricesOf(Recipe::Load(std::string(SANDGLASS_SOURCE_DIR) + "/recipes/" + name, {}));
}

// Counts and steps as published (arXiv 2602.06471 and the authors' configurations).
TEST(PaperRecipes, HaveThePublishedSizesAndSteps) {
  struct Published {
    const char* recipe;
    int64_t conventional, hourglass;  // matrix parameters
    int64_t steps;                    // 0: not published
  };
  for (const Published& published : {Published{"paper-113m.toml", 113'246'208, 113'246'208, 0},
                                     {"paper-906m.toml", 905'969'664, 908'623'872, 4297},
                                     {"paper-3b.toml", 3'170'893'824, 3'167'797'248, 14305},
                                     {"paper-8b.toml", 7'784'628'224, 7'787'839'488, 23842}}) {
    SCOPED_TRACE(published.recipe);
    const std::vector<TrainingPrice> prices = PriceRecipe(published.recipe);
    ASSERT_EQ(prices.size(), 2u);
    EXPECT_EQ(prices[0].parameters.matrices(), published.conventional);
    EXPECT_EQ(prices[1].parameters.matrices(), published.hourglass);
    for (const TrainingPrice& price : prices) {
      if (published.steps > 0) {
        EXPECT_EQ(price.steps, published.steps);
      }
      EXPECT_EQ(price.config.vocabulary, 100'278);
      // About 20 tokens per non-embedding parameter.
      EXPECT_NEAR(price.tokens() / static_cast<double>(price.parameters.non_embedding()), 20.0,
                  8.0);
    }
  }
}

TEST(PaperRecipes, HaveTheAuthorsHyperParameters) {
  const Recipe recipe =
      Recipe::Load(std::string(SANDGLASS_SOURCE_DIR) + "/recipes/paper-906m.toml", {});
  EXPECT_EQ(recipe.train.options.tokens_per_step(), 1024 * 4096);
  EXPECT_EQ(recipe.optimizer.learning_rate, 2.5e-4);
  EXPECT_EQ(recipe.optimizer.min_learning_rate, 6e-5);
  EXPECT_EQ(recipe.optimizer.beta2, 0.95);
  EXPECT_EQ(recipe.optimizer.WeightDecayOf(ParamRole::kQkNorm), 0.1);
  EXPECT_EQ(recipe.optimizer.WeightDecayOf(ParamRole::kNorm), 0.0);
  EXPECT_EQ(recipe.seeds, std::vector<int64_t>{6198});
  for (const VariantOptions& variant : recipe.variants) {
    EXPECT_EQ(variant.model.config.init_std, 0.02);
    EXPECT_FALSE(variant.model.config.depth_scaled_init);
    EXPECT_EQ(variant.model.config.qk_norm, QkNorm::kPerHead);
  }
}

TEST(TrainingPrice, AddsUpBytesFlopsAndDays) {
  RunConfig config;
  config.model.config = FamilyConfig(Family::kHourglass, Shape::Parse("L2-d32-a2x16-f2x16"), 64);
  config.train = {.tokens = 1000, .batch = 4, .micro_batch = 2, .length = 16};
  const TrainingPrice price = PriceOf(config);
  EXPECT_EQ(price.steps, 16);  // of 64 tokens
  EXPECT_EQ(price.tokens(), 1024);
  EXPECT_EQ(price.flops(), 1024 * price.flops_per_token);
  EXPECT_DOUBLE_EQ(price.days(price.flops() / 86400), 1.0);
  const int64_t slab = price.memory.weights;
  EXPECT_EQ(price.memory.optimizer, 2 * slab);
  EXPECT_EQ(price.average_bytes, 0);
  EXPECT_EQ(price.snapshot_bytes, 3 * slab);

  config.train.average_decay = 0.99;
  EXPECT_EQ(PriceOf(config).average_bytes, slab);
  EXPECT_EQ(PriceOf(config).snapshot_bytes, 4 * slab);
  config.system.background_saves = false;
  EXPECT_EQ(PriceOf(config).snapshot_bytes, 0);
  config.optimizer.kind = OptimizerKind::kMuon;  // one momentum instead of two moments
  EXPECT_LT(PriceOf(config).memory.optimizer, 2 * slab);
  config.train.batch_start = 1;
  config.train.batch_warmup_steps = 10;
  EXPECT_GT(PriceOf(config).steps, 16);
}

}  // namespace
}  // namespace sandglass
