#include "plan/solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/random.h"
#include "base/testing.h"

namespace sandglass {
namespace {

ModelConfig Llama(const char* shape, int vocabulary = 0) {
  return FamilyConfig(Family::kLlama, Shape::Parse(shape), vocabulary);
}

// A search among the shapes of `baseline`'s own family.
SearchResult Search(const ModelConfig& baseline, const BudgetSearch& search) {
  return SearchShapes(baseline, Budget::Of(baseline, search.match), search);
}

std::vector<std::string> Texts(const SearchResult& result) {
  std::vector<std::string> texts;
  for (const Solution& solution : result.solutions) texts.push_back(solution.shape.ToString());
  return texts;
}

template <class T>
bool Contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

TEST(Solver, FindsTheExactlyEqualTwinOfThe113MBaseline) {
  BudgetSearch search;
  search.hold = {Hold::kAttention};
  search.sub_mlps = Choices::Of(8);
  const SearchResult result = Search(Llama("L12-d768-a12x64-f1x3072"), search);
  EXPECT_TRUE(Contains<std::string>(Texts(result), "L12-d768-a12x64-f8x384"));
  for (const Solution& solution : result.solutions) EXPECT_EQ(solution.error, 0.0);

  search.hold = {Hold::kLayers, Hold::kDModel};
  EXPECT_EQ(Texts(Search(Llama("L12-d768-a12x64-f1x3072"), search)),
            std::vector<std::string>{"L12-d768-a12x64-f8x384"});
}

TEST(Solver, FindsPartnersCloserThanThePublishedPairs) {
  struct Pair {
    const char* baseline;
    const char* published;
    double published_error;
  };
  const std::vector<Pair> pairs = {
      {"L24-d1536-a16x96-f1x6144", "L12-d2496-a16x96-f4x2016", 0.00293},
      {"L28-d3072-a24x128-f1x8192", "L18-d3696-a24x128-f4x2944", -0.00098},
      {"L32-d4096-a32x128-f1x14336", "L22-d4992-a32x128-f4x4544", 0.00041},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.baseline);
    const ModelConfig baseline = Llama(pair.baseline);
    const auto budget = static_cast<double>(Budget::Of(baseline, Match::kMatrices).parameters);
    const auto published = static_cast<double>(CountParameters(Llama(pair.published)).matrices());
    EXPECT_NEAR(published / budget - 1.0, pair.published_error, 5e-6);  // published rounded

    BudgetSearch search;
    search.hold = {Hold::kHeads, Hold::kHeadWidth};
    search.layers = Choices::Parse("8..32");
    search.d_model = Choices::Parse("1536..6144:16");
    search.sub_mlps = Choices::Of(4);
    search.near = Shape::Parse(pair.published);
    const SearchResult result = Search(baseline, search);
    ASSERT_GT(result.found, 0);
    const Solution& best = result.solutions.front();
    EXPECT_LE(std::fabs(best.error), 1e-5);
    EXPECT_EQ(best.shape.sub_mlps(), 4);
    EXPECT_EQ(best.shape.heads, baseline.shape.heads);
    EXPECT_EQ(best.shape.head_width, baseline.shape.head_width);
    EXPECT_GE(WidthAlignment(best.shape), 8);
    EXPECT_EQ(best.parameters, CountParameters({.shape = best.shape}).matrices());
  }
}

// Every shape of a small search, by trying each list of widths of at most `widest`: no closed form
// and no pruning. K <= 3; heads and KV heads are given.
std::set<std::string> BruteForce(const ModelConfig& variant, const Budget& budget,
                                 const BudgetSearch& search, int widest) {
  std::set<std::string> found;
  ModelConfig config = variant;
  Shape& shape = config.shape;
  const auto holds_attention = !search.hold.empty();
  const auto try_shape = [&] {
    if (holds_attention && CountParameters(config).attention !=
                               CountParameters({.shape = *budget.baseline}).attention) {
      return;
    }
    for (const int width : shape.ffn) {
      const double half_step = 0.5 * search.d_h_step;
      if (width + half_step < search.d_h_ratio.low * shape.d_model) return;
      if (width - half_step > search.d_h_ratio.high * shape.d_model) return;
    }
    const int64_t off =
        std::abs(CountOf(CountParameters(config), search.match) - budget.parameters);
    if (static_cast<double>(off) <= search.tolerance * static_cast<double>(budget.parameters)) {
      found.insert(shape.ToString());
    }
  };
  const auto try_widths = [&](int sub_mlps) {
    for (int width = search.d_h_step; width <= widest; width += search.d_h_step) {
      for (int wider = 0; wider < (search.mix_widths ? sub_mlps : 1); ++wider) {
        shape.ffn.assign(sub_mlps - wider, width);
        shape.ffn.insert(shape.ffn.end(), wider, width + search.d_h_step);
        try_shape();
      }
    }
  };
  for (shape.layers = 1; shape.layers <= 64; ++shape.layers) {
    if (!Contains(search.layers.values(), shape.layers)) continue;
    for (shape.d_model = 1; shape.d_model <= 64; ++shape.d_model) {
      if (!Contains(search.d_model.values(), shape.d_model)) continue;
      for (const int heads : search.heads.values()) {
        for (const int head_width : search.head_width.values()) {
          for (const int kv_heads : search.kv_heads.values()) {
            shape.heads = heads;
            shape.head_width = head_width;
            shape.kv_heads = kv_heads;
            if (heads % kv_heads != 0) continue;
            if (search.attention_width == AttentionWidth::kDModel &&
                shape.attention_width() != shape.d_model) {
              continue;
            }
            for (const int sub_mlps : search.sub_mlps.values()) try_widths(sub_mlps);
          }
        }
      }
    }
  }
  return found;
}

TEST(Solver, FindsWhatBruteForceFinds) {
  RandomStream random(11, "searches");
  const auto one_of = [&](auto... values) {
    const std::array options{values...};
    return options[random.NextBelow(options.size())];
  };
  int64_t all_found = 0;
  for (int i = 0; i < 30; ++i) {
    ModelConfig variant = Llama("L6-d32-a4x8-f1x100", 50);
    variant.qk_norm = one_of(QkNorm::kNone, QkNorm::kPerHead, QkNorm::kFullWidth);
    variant.embeddings = one_of(Embeddings::kTied, Embeddings::kUntied);
    BudgetSearch search;
    search.match = one_of(Match::kMatrices, Match::kNonEmbedding, Match::kTotal);
    search.tolerance = one_of(0.0, 0.01, 0.1);
    search.layers = Choices::Parse(one_of("4..8", "6", "3..12:3"));
    search.d_model = Choices::Parse(one_of("24..40:4", "32", "16..64:16"));
    search.heads = Choices::Parse(one_of("2,4", "4", "1..6"));
    search.head_width = Choices::Parse(one_of("8", "4,8"));
    search.kv_heads = Choices::Parse(one_of("1,2", "1..4"));
    search.attention_width = one_of(AttentionWidth::kFree, AttentionWidth::kDModel);
    search.sub_mlps = Choices::Parse(one_of("1", "1..3", "3"));
    search.d_h_step = one_of(1, 2, 5);
    search.d_h_ratio = Range::Parse(one_of("", "0.3..1.5", "0.7"));
    search.mix_widths = one_of(false, true);
    if (one_of(0, 0, 1) == 1) search.hold = {Hold::kAttention};
    search.limit = 1'000'000;
    SCOPED_TRACE(WriteFields(search).dump());
    const Budget budget = Budget::Of(variant, search.match);

    const SearchResult result = SearchShapes(variant, budget, search);
    // The leanest shape has 3 layers of d_model 16, where a unit of width is 144 parameters;
    // budgets stay below 90,000, 99,000 with the tolerance: no width reaches 700.
    const std::set<std::string> expected = BruteForce(variant, budget, search, 700);
    const std::vector<std::string> texts = Texts(result);
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()), expected);
    EXPECT_EQ(result.found, static_cast<int64_t>(texts.size()));  // none twice
    all_found += result.found;
    for (const Solution& solution : result.solutions) {
      variant.shape = solution.shape;
      EXPECT_EQ(solution.parameters, CountOf(CountParameters(variant), search.match));
    }
  }
  EXPECT_GT(all_found, 500);  // the searches were not empty by mistake
}

TEST(Solver, RanksUniformWidthsThenCostThenError) {
  BudgetSearch search;
  search.tolerance = 0.003;
  search.mix_widths = true;
  search.layers = Choices::Parse("6..12");
  search.d_model = Choices::Parse("256..1024:32");
  search.limit = 100'000;
  const SearchResult result = Search(Llama("L12-d768-a12x64-f1x3072"), search);
  ASSERT_GT(result.found, 1000);
  const auto mixed = [](const Solution& s) { return s.shape.ffn.front() != s.shape.ffn.back(); };
  EXPECT_FALSE(mixed(result.solutions.front()));
  EXPECT_TRUE(mixed(result.solutions.back()));
  for (size_t i = 1; i < result.solutions.size(); ++i) {
    const Solution& before = result.solutions[i - 1];
    const Solution& after = result.solutions[i];
    ASSERT_LE(mixed(before), mixed(after));
    if (mixed(before) != mixed(after)) continue;
    ASSERT_LE(before.cost, after.cost);
    if (before.cost < after.cost) continue;
    ASSERT_LE(std::fabs(before.error), std::fabs(after.error));
  }
  // A shorter list is the beginning of the longer one.
  const std::vector<std::string> all = Texts(result);
  search.limit = 7;
  const SearchResult first = Search(Llama("L12-d768-a12x64-f1x3072"), search);
  EXPECT_EQ(Texts(first), std::vector<std::string>(all.begin(), all.begin() + 7));
  EXPECT_EQ(first.found, result.found);
}

TEST(Solver, TheCostPrefersTheRegionThatThePaperFoundBest) {
  // Exactly equal twins; d_model/L = 16, 64, 113.8, 256 and d_h/d_model = 1, 0.5, 0.375, 0.25.
  BudgetSearch search;
  search.hold = {Hold::kAttention};
  search.layers = Choices::Parse("6,9,12,24");
  search.d_model = Choices::Parse("384,768,1024,1536");
  search.sub_mlps = Choices::Of(8);
  const SearchResult result = Search(Llama("L12-d768-a12x64-f1x3072"), search);
  EXPECT_EQ(Texts(result),
            (std::vector<std::string>{"L9-d1024-a12x64-f8x384", "L6-d1536-a12x64-f8x384",
                                      "L12-d768-a12x64-f8x384", "L24-d384-a12x64-f8x384"}));
  // Aligned to 128, half of 256; 1e-12 allows for rounding.
  EXPECT_NEAR(result.solutions[0].cost, std::log(0.4 / 0.375) + 0.05, 1e-12);
  EXPECT_NEAR(result.solutions[2].cost, std::log(0.5 / 0.4) + std::log(100.0 / 64.0) + 0.05, 1e-12);
  search.near = Shape::Parse("L12-d768-a12x64-f8x384");
  EXPECT_EQ(Texts(Search(Llama("L12-d768-a12x64-f1x3072"), search)).front(),
            "L12-d768-a12x64-f8x384");
}

TEST(Solver, EqualCostsAreOrderedBySize) {
  // Two ways to cut the same attention into heads: nothing else tells the shapes apart.
  BudgetSearch search;
  search.layers = Choices::Of(2);
  search.d_model = Choices::Of(256);
  search.heads = Choices::Parse("2,4");
  search.head_width = Choices::Parse("64,128");
  search.kv_heads = Choices::Parse("2,4");
  search.sub_mlps = Choices::Of(2);
  search.tolerance = 0.0;
  const std::vector<std::string> texts = Texts(Search(Llama("L2-d256-a4x64-kv4-f2x384"), search));
  EXPECT_EQ(texts, (std::vector<std::string>{"L2-d256-a2x128-f2x384", "L2-d256-a4x64-f2x384"}));
}

TEST(Solver, MixingTwoAdjacentWidthsHitsBudgetsThatUniformOnesMiss) {
  const ModelConfig baseline = Llama("L12-d768-a12x64-f1x1160");
  BudgetSearch search;
  search.hold = {Hold::kLayers, Hold::kDModel};
  search.sub_mlps = Choices::Of(3);
  EXPECT_EQ(Search(baseline, search).found, 0);
  search.mix_widths = true;
  EXPECT_EQ(Texts(Search(baseline, search)),
            std::vector<std::string>{"L12-d768-a12x64-f2x384,392"});
}

TEST(Solver, NothingFoundNamesTheNearestAndWhatToChange) {
  const ModelConfig baseline = Llama("L12-d768-a12x64-f1x3080");
  BudgetSearch search;
  search.hold = {Hold::kLayers, Hold::kDModel};
  search.sub_mlps = Choices::Of(8);
  const SearchResult result = Search(baseline, search);
  EXPECT_EQ(result.found, 0);
  ASSERT_EQ(result.nearest.size(), 1u);
  EXPECT_EQ(result.nearest[0].shape.ToString(), "L12-d768-a12x64-f8x384");
  EXPECT_NEAR(result.nearest[0].error, -8.0 * 3 * 768 * 12 / 113'467'392, 1e-12);

  std::set<std::string> changes;
  for (const Relaxation& relaxation : result.relaxations) {
    changes.insert(relaxation.change);
    EXPECT_GT(relaxation.found, 0);
  }
  EXPECT_TRUE(changes.contains("mix_widths on"));
  EXPECT_TRUE(changes.contains("d_h_step = 1"));  // 8 x 385, not a multiple of 2 or 4
  EXPECT_TRUE(changes.contains("sub_mlps = 1..12"));
  EXPECT_FALSE(changes.contains("any d_h_ratio"));  // it was free already

  const ErrorParts text = ExplainNoSolution(result, search);
  EXPECT_NE(text.what.find("113,467,392 parameters (matrices) within 0.001 %"), std::string::npos);
  EXPECT_NE(text.what.find("L12-d768-a12x64-f8x384  113,246,208  -0.1949 %"), std::string::npos)
      << text.what;
  EXPECT_NE(text.remedy.find("mix_widths on (1 shape, first L12-d768-a12x64-f7x384,392)"),
            std::string::npos)
      << text.remedy;
  EXPECT_NE(text.remedy.find("tolerance = 0.002"), std::string::npos) << text.remedy;
}

TEST(Solver, TheNearestAreTheClosestOfAllCombinations) {
  BudgetSearch search;
  search.layers = Choices::Parse("8..16");
  search.d_model = Choices::Parse("512..1024:64");
  search.sub_mlps = Choices::Of(4);
  search.d_h_step = 56;
  search.tolerance = 0.0;
  const ModelConfig baseline = Llama("L12-d768-a12x64-f1x3077");
  const SearchResult result = Search(baseline, search);
  ASSERT_EQ(result.found, 0);
  ASSERT_EQ(result.nearest.size(), 5u);
  for (size_t i = 1; i < result.nearest.size(); ++i) {
    EXPECT_LE(std::fabs(result.nearest[i - 1].error), std::fabs(result.nearest[i].error));
  }
  // A tolerance just below the fifth's error finds the same shapes, but for those that tie with it.
  const double fifth = std::fabs(result.nearest.back().error);
  std::set<std::string> closer;
  for (const Solution& near : result.nearest) {
    if (std::fabs(near.error) < fifth) closer.insert(near.shape.ToString());
  }
  search.tolerance = fifth * (1.0 - 1e-9);
  const SearchResult wider = Search(baseline, search);
  EXPECT_TRUE(wider.nearest.empty());
  const std::vector<std::string> texts = Texts(wider);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()), closer);
}

TEST(Solver, HeldAttentionThatNoSizeMeetsIsExplained) {
  BudgetSearch search;
  search.hold = {Hold::kAttention};
  search.layers = Choices::Of(7);  // does not divide 12 * 768
  search.tolerance = 1e-3;
  const ModelConfig baseline = Llama("L12-d768-a12x64-f1x3072");
  const SearchResult result = Search(baseline, search);
  EXPECT_TRUE(result.nearest.empty());
  const ErrorParts text = ExplainNoSolution(result, search);
  EXPECT_NE(text.what.find("no combination of sizes meets what is held"), std::string::npos);
  EXPECT_NE(text.remedy.find("attention not held"), std::string::npos) << text.remedy;
  EXPECT_NE(text.remedy.find("layers = 1..96"), std::string::npos) << text.remedy;
}

TEST(Solver, SizesThatDoNotFitTogetherAreExplained) {
  BudgetSearch search;
  search.kv_heads = Choices::Of(5);
  const SearchResult result = Search(Llama("L12-d768-a12x64-f1x3072"), search);
  EXPECT_EQ(result.combinations, 0);
  EXPECT_NE(ExplainNoSolution(result, search).what.find("do not fit together"), std::string::npos);
}

TEST(Solver, WithoutABaselineTheHeadsFollowDModel) {
  BudgetSearch search;
  search.head_width = Choices::Of(64);
  search.limit = 1000;
  const SearchResult result =
      SearchShapes(FamilyConfig(Family::kHourglass, {}, 0), {.parameters = 113'246'208}, search);
  EXPECT_TRUE(Contains<std::string>(Texts(result), "L12-d768-a12x64-f8x384"));
  for (const Solution& solution : result.solutions) {
    EXPECT_EQ(solution.shape.attention_width(), solution.shape.d_model);
  }
}

TEST(Solver, KvHeadsKeepTheBaselinesGrouping) {
  BudgetSearch search;
  search.heads = Choices::Parse("4..16");
  search.tolerance = 1e-3;
  search.limit = 1000;
  const SearchResult result = Search(Llama("L12-d768-a12x64-kv4-f1x3072"), search);
  ASSERT_GT(result.found, 10);
  for (const Solution& solution : result.solutions) {
    EXPECT_EQ(solution.shape.heads, 3 * solution.shape.kv_heads);
  }
}

TEST(Solver, AVariantIsCountedByItsOwnFamily) {
  // OLMo-2 has QK-norm gains that LLaMA lacks: matched in total, its shape must be leaner.
  const ModelConfig llama = Llama("L12-d768-a12x64-f1x3072", 1000);
  ModelConfig olmo2 = FamilyConfig(Family::kOlmo2, {}, 1000);
  BudgetSearch search;
  search.match = Match::kTotal;
  search.hold = {Hold::kLayers, Hold::kDModel, Hold::kSubMlps};
  search.d_h_step = 1;
  search.tolerance = 1e-4;  // the gains are 1.6e-4 of 114.8 million, one unit of width 2.4e-4
  const SearchResult result = SearchShapes(olmo2, Budget::Of(llama, search.match), search);
  ASSERT_EQ(result.found, 1);
  olmo2.shape = result.solutions.front().shape;
  EXPECT_EQ(olmo2.shape.ToString(), "L12-d768-a12x64-f1x3071");
  EXPECT_EQ(CountParameters(llama).total() - CountParameters(olmo2).total(),
            3 * 768 * 12 - 12 * 2 * 768);
}

TEST(Solver, RefusesContradictoryAndAbsurdSearches) {
  const ModelConfig baseline = Llama("L12-d768-a12x64-f1x3072");
  const auto refusal = [&](auto&& change) {
    BudgetSearch search;
    change(search);
    return FailureOf([&] { Search(baseline, search); }).what;
  };
  EXPECT_EQ(refusal([](BudgetSearch& s) {
              s.hold = {Hold::kLayers};
              s.layers = Choices::Parse("8..24");
            }),
            "layers is held as in the baseline and also given as 8..24");
  EXPECT_EQ(refusal([](BudgetSearch& s) {
              s.d_model = Choices::Parse("1..100000");
              s.heads = Choices::Parse("1..64");
            }),
            "the search has 2,304,000,000 combinations of sizes");
  EXPECT_EQ(refusal([](BudgetSearch& s) { s.tolerance = -1.0; }), "a tolerance of -1");
  EXPECT_EQ(refusal([](BudgetSearch& s) { s.tolerance = std::nan(""); }), "a tolerance of nan");
  EXPECT_EQ(refusal([](BudgetSearch& s) { s.d_h_step = 0; }), "a d_h_step of 0");
  EXPECT_EQ(refusal([](BudgetSearch& s) { s.limit = 0; }), "a limit of 0");
  EXPECT_NE(refusal([](BudgetSearch& s) { s.match = Match::kTotal; }).find("vocabulary"),
            std::string::npos);
  EXPECT_NE(refusal([](BudgetSearch& s) { s.head_width = Choices::Of(63); }).find("63 is odd"),
            std::string::npos);
  EXPECT_NE(refusal([](BudgetSearch& s) {
              s.tolerance = 0.5;
              s.d_h_step = 1;
            }).find("shapes are within the tolerance of 0.5"),
            std::string::npos);
  BudgetSearch search;
  search.hold = {Hold::kHeads};
  EXPECT_NE(FailureOf([&] {
              SearchShapes(baseline, {.parameters = 1000}, search);
            }).what.find("heads is to be held"),
            std::string::npos);
  EXPECT_EQ(FailureOf([&] { SearchShapes(baseline, {.parameters = 0}, {}); }).what,
            "a budget of 0 parameters");
}

TEST(BudgetSearch, StandsInARecipe) {
  BudgetSearch search;
  ReadFields(search, ParseToml("match = \"non-embedding\"\nhold = [\"attention\", \"heads\"]\n"
                               "layers = \"8..10\"\nsub_mlps = \"4\"\nd_h_ratio = \"0.3..0.5\"\n"
                               "near = \"L9-d1024-a12x64-f8x384\"\n",
                               "recipe.toml"));
  EXPECT_EQ(search.match, Match::kNonEmbedding);
  EXPECT_EQ(search.hold, (std::vector<Hold>{Hold::kAttention, Hold::kHeads}));
  EXPECT_EQ(search.layers.values(), (std::vector<int>{8, 9, 10}));
  EXPECT_EQ(search.d_h_ratio.high, 0.5);
  EXPECT_EQ(search.near->d_model, 1024);
  BudgetSearch again;
  ReadFields(again, ParseToml(ToToml(WriteFields(search)), "again.toml"));
  EXPECT_EQ(WriteFields(again), WriteFields(search));
}

TEST(WidthAlignment, IsTheLargestPowerOfTwoThatDividesEveryWidth) {
  EXPECT_EQ(WidthAlignment(Shape::Parse("L2-d1024-a8x64-f2x512")), 256);
  EXPECT_EQ(WidthAlignment(Shape::Parse("L2-d1024-a8x64-f2x384")), 128);
  EXPECT_EQ(WidthAlignment(Shape::Parse("L2-d1024-a2x36-f2x384")), 8);
  EXPECT_EQ(WidthAlignment(Shape::Parse("L2-d1024-a8x64-f384,385")), 1);
}

}  // namespace
}  // namespace sandglass
