#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"

namespace sandglass {
namespace {

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

std::map<int32_t, int> Draw(const SamplingOptions& options, int draws) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.Next(kLogits)];
  return counts;
}

TEST(Sampler, ZeroTemperatureTakesTheMostLikely) {
  EXPECT_EQ(Draw({.temperature = 0}, 10), (std::map<int32_t, int>{{1, 10}}));
}

TEST(Sampler, FollowsTheDistribution) {
  // Standard deviation of a share of 0.4 over 20,000 draws: 0.0035; three of them are 0.0104.
  const auto counts = Draw({}, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.1, 0.0105);
  EXPECT_NEAR(counts.at(1) / 20000.0, 0.4, 0.0105);
  EXPECT_NEAR(counts.at(3) / 20000.0, 0.3, 0.0105);
}

TEST(Sampler, TemperatureSharpens) {
  // At temperature 1/2 probabilities go with their squares: 0.16 / 0.30 for the first.
  EXPECT_NEAR(Draw({.temperature = 0.5}, 20000).at(1) / 20000.0, 0.16 / 0.30, 0.0106);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const auto keys = [](const std::map<int32_t, int>& counts) {
    std::set<int32_t> ids;
    for (const auto& [id, count] : counts) ids.insert(id);
    return ids;
  };
  EXPECT_EQ(keys(Draw({.top_k = 2}, 500)), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(keys(Draw({.top_p = 0.65}, 500)), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(keys(Draw({.top_p = 0.8}, 500)), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(keys(Draw({.top_p = 1e-9}, 500)), (std::set<int32_t>{1}));
}

TEST(Sampler, SeedRepeats) {
  Sampler a({.seed = 3}), b({.seed = 3}), c({.seed = 4});
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t id = a.Next(kLogits);
    EXPECT_EQ(id, b.Next(kLogits));
    same += id == c.Next(kLogits);
  }
  EXPECT_LT(same, 60);
}

TEST(Sampler, NonsenseIsRefused) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace sandglass
