#include "data/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/hash.h"
#include "data/testing.h"

namespace sandglass {
namespace {

// Ids in memory.
class FakeStream final : public TokenStream {
 public:
  explicit FakeStream(std::vector<TokenId> ids) : ids_(std::move(ids)) {}
  FakeStream(TokenId first, int count) {
    for (int i = 0; i < count; ++i) ids_.push_back(first + i);
  }
  const std::string& path() const override { return path_; }
  int64_t tokens() const override { return std::ssize(ids_); }
  void Read(int64_t begin, std::span<TokenId> out) const override {
    std::copy_n(ids_.begin() + begin, out.size(), out.begin());
  }
  std::string fingerprint() const override { return "0"; }

 private:
  std::string path_ = "fake";
  std::vector<TokenId> ids_;
};

TEST(Mixture, ProportionsAreExactOverEveryWindow) {
  for (const auto& shares : std::vector<std::vector<uint64_t>>{
           {7}, {1, 1}, {3, 5}, {70, 20, 10}, {1, 1'000'000}, {6, 1, 1, 1, 999}}) {
    const MixtureOrder order(shares);
    uint64_t sum = 0;
    for (const uint64_t share : shares) sum += share;
    std::vector<int64_t> turns(shares.size());
    for (int64_t position = 0; position < 5000; ++position) {
      for (size_t i = 0; i < shares.size(); ++i) {
        const double exact = static_cast<double>(position) * static_cast<double>(shares[i]) /
                             static_cast<double>(sum);
        ASSERT_NEAR(static_cast<double>(turns[i]), exact, static_cast<double>(shares.size()))
            << position;
      }
      const auto [source, index] = order.At(position);
      ASSERT_EQ(index, turns[static_cast<size_t>(source)]++);  // no turn left out, none twice
    }
  }
  // Far away, and with large shares.
  const MixtureOrder order({18'000'000'000, 42'000'000'000});
  EXPECT_EQ(order.At(60'000'000'000).index,
            order.At(0).source == 0 ? 18'000'000'000 : 42'000'000'000);
}

TEST(Mixture, EachSourceIsVisitedOncePerEpochOfItsOwn) {
  const FakeStream small(0, 101), large(1000, 401);
  const TrainSamples samples({{&small, 1}, {&large, 3}}, 10, 5);
  std::map<std::pair<int, int64_t>, std::multiset<int64_t>> seen;
  for (int64_t position = 0; position < 160; ++position) {
    const SampleRef ref = samples.At(position);
    seen[{ref.source, ref.epoch}].insert(ref.sample);
    std::vector<TokenId> ids(10), targets(10);
    samples.Fill(position, ids, targets);
    EXPECT_EQ(ids[0], (ref.source == 0 ? 0 : 1000) + ref.first_token);
  }
  ASSERT_EQ(seen.size(), 4u + 3u);  // 40 of 10 samples, 120 of 40 samples
  for (const auto& [key, visited] : seen) {
    EXPECT_EQ(std::ssize(visited), key.first == 0 ? 10 : 40);
    EXPECT_EQ(std::set(visited.begin(), visited.end()).size(), visited.size());
  }
}

// Item: the place in an epoch survives a restart.
TEST(DataOrder, ARestartInMidEpochGoesOnWhereItWas) {
  const FakeStream stream(0, 101);  // 10 samples
  std::vector<int64_t> uninterrupted, resumed;
  const TrainSamples samples(stream, 10, 3);
  for (int64_t position = 0; position < 30; ++position) {
    uninterrupted.push_back(samples.At(position).sample);
  }
  for (int64_t position = 0; position < 9; ++position) {
    resumed.push_back(TrainSamples(stream, 10, 3).At(position).sample);
  }
  const TrainSamples again(stream, 10, 3);
  for (int64_t position = 9; position < 30; ++position)
    resumed.push_back(again.At(position).sample);
  EXPECT_EQ(resumed, uninterrupted);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto begin = resumed.begin() + 10 * epoch;
    EXPECT_EQ(std::set<int64_t>(begin, begin + 10).size(), 10u);
  }
}

TEST(DataOrder, FourRanksAreDisjointAndComplete) {
  const FakeStream stream(0, 1001);  // 100 sequences
  const TrainSamples samples(stream, 10, 3);
  constexpr int kRanks = 4, kBatch = 20;
  std::multiset<int64_t> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t step = 1; step <= 5; ++step) {  // each rank takes its quarter of every batch
      for (int b = rank * kBatch / kRanks; b < (rank + 1) * kBatch / kRanks; ++b) {
        all.insert(samples.At((step - 1) * kBatch + b).sample);
      }
    }
  }
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 100u);
}

constexpr TokenId kEnd = 99;

TEST(Documents, AreSeparatedOnEitherSide) {
  const std::vector<TokenId> ids = {5, kEnd, 6, 7, kEnd, 8};
  const std::vector<TokenId> next = {kEnd, 6, 7, kEnd, 8, kEnd};
  std::vector<TokenId> targets = next;
  std::vector<int32_t> starts(6);
  SeparateDocuments({kEnd, SeparatorSide::kBefore}, ids, targets, starts);
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 1, 1, 1, 4, 4}));
  EXPECT_EQ(targets, (std::vector<TokenId>{kIgnored, 6, 7, kIgnored, 8, kIgnored}));
  targets = next;
  SeparateDocuments({kEnd, SeparatorSide::kAfter}, ids, targets, starts);
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 2, 2, 2, 5}));
  EXPECT_EQ(targets, (std::vector<TokenId>{kEnd, kIgnored, 7, kEnd, kIgnored, kEnd}));
}

TEST(Documents, TheFirstTokenOfADocumentIsNoTargetInTrainingAndValidation) {
  const FakeStream stream({kEnd, 1, 2, kEnd, 3, kEnd, 4, 5, 6, 7, kEnd, 8});
  const SampleSource source = {&stream, 1, DocumentSeparator{kEnd, SeparatorSide::kBefore}};
  const EvalWindows windows({source}, 5);
  EXPECT_TRUE(windows.within_documents());
  std::vector<TokenId> ids(5), targets(5), scored;
  std::vector<int32_t> starts(5);
  for (int64_t window = 0; window < windows.count(); ++window) {
    windows.Fill(window, ids, targets, starts);
    for (const TokenId target : targets) {
      if (target != kIgnored) scored.push_back(target);
    }
  }
  EXPECT_EQ(scored, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8}));
  const TrainSamples samples({source}, 11, 1);
  std::vector<TokenId> all(11), all_targets(11);
  std::vector<int32_t> all_starts(11);
  samples.Fill(0, all, all_targets, all_starts);
  EXPECT_EQ(std::count(all_targets.begin(), all_targets.end(), kIgnored), 3);
  EXPECT_EQ(all_starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 5, 5, 5, 5, 10}));
}

TEST(EvalWindows, GoThroughSeveralStreams) {
  const FakeStream first(0, 8), second(100, 3);
  const EvalWindows windows({{&first}, {&second}}, 5);
  EXPECT_EQ(windows.count(), 2 + 1);
  std::vector<TokenId> ids(5), targets(5), scored;
  for (int64_t window = 0; window < windows.count(); ++window) {
    windows.Fill(window, ids, targets);
    for (const TokenId target : targets) {
      if (target != kIgnored) scored.push_back(target);
    }
  }
  EXPECT_EQ(scored, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 101, 102}));
}

}  // namespace
}  // namespace sandglass
