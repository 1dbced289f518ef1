#include "data/check.h"

#include <gtest/gtest.h>

#include "data/testing.h"
#include "data/token_shard.h"

namespace sandglass {
namespace {

constexpr TokenId kEnd = 0;

// A shard of `documents`, each behind an end-of-text.
std::string Write(const TestDirectory& directory, const std::string& name,
                  const std::vector<std::vector<TokenId>>& documents) {
  TokenShardWriter writer(directory / name, {.vocabulary = 5000});
  for (std::vector<TokenId> ids : documents) {
    ids.insert(ids.begin(), kEnd);
    writer.AddDocument(ids, 0);
  }
  writer.Commit();
  return directory / name;
}

// Tokens drawn from a stream of the document's own.
std::vector<TokenId> Document(int number, int length) {
  RandomStream random(static_cast<uint64_t>(number), "document");
  std::vector<TokenId> ids;
  for (int i = 0; i < length; ++i) ids.push_back(1 + static_cast<TokenId>(random.NextBelow(4999)));
  return ids;
}

CheckReport Check(const std::string& train_path, const std::string& validation_path,
                  CheckOptions options) {
  options.progress = ProgressMode::kSilent;
  const TokenShard train(train_path), validation(validation_path);
  const DocumentSeparator separator{kEnd, SeparatorSide::kBefore};
  return CheckData({{&train, 1, separator}}, {{&validation, 1, separator}}, options);
}

TEST(DataCheck, PlantedDuplicatesAreCountedExactly) {
  const TestDirectory directory;
  std::vector<std::vector<TokenId>> train, validation;
  for (TokenId i = 0; i < 1000; ++i) train.push_back(Document(i, 5 + i % 60));
  for (TokenId i = 2000; i < 2100; ++i) validation.push_back(Document(i, 80));
  train.push_back(train[3]);  // three copies of one, two of another
  train.push_back(train[3]);
  train.push_back(train[500]);
  train.push_back(validation[7]);  // two validation documents in training, one of them twice
  train.push_back(validation[7]);
  train.push_back(validation[99]);
  validation.push_back(validation[1]);
  const std::string t = Write(directory, "t.bin", train), v = Write(directory, "v.bin", validation);
  for (const int64_t memory : {int64_t{1} << 20, int64_t{2000}}) {  // one pass, and many
    const CheckReport report = Check(t, v, {.passage = 40, .memory_bytes = memory});
    EXPECT_EQ(report.passes > 1, memory == 2000);
    EXPECT_EQ(report.train_documents, 1006);
    EXPECT_EQ(report.validation_documents, 101);
    EXPECT_EQ(report.train_repeats, 2 + 1 + 1);
    EXPECT_EQ(report.validation_repeats, 1);
    EXPECT_EQ(report.shared_documents, 3);
    EXPECT_EQ(report.validation_passages, 2 * 101);
    EXPECT_EQ(report.shared_passages, 4);
    EXPECT_EQ(report.examples.size(), 3u + 3u + 1u);
  }
}

TEST(DataCheck, APassageInsideAnotherDocumentIsFound) {
  const TestDirectory directory;
  std::vector<std::vector<TokenId>> train, validation;
  for (TokenId i = 0; i < 50; ++i) train.push_back(Document(i, 100));
  for (TokenId i = 2000; i < 2010; ++i) validation.push_back(Document(i, 90));
  // Tokens 30 to 60 of a validation document in the middle of a training document.
  std::copy_n(validation[4].begin() + 30, 30, train[20].begin() + 41);
  const std::string t = Write(directory, "t.bin", train), v = Write(directory, "v.bin", validation);
  const CheckReport report = Check(t, v, {.passage = 30});
  EXPECT_EQ(report.shared_documents, 0);
  EXPECT_EQ(report.validation_passages, 30);
  EXPECT_EQ(report.shared_passages, 1);
  EXPECT_EQ(Check(t, v, {.passage = 31}).shared_passages, 0);
}

}  // namespace
}  // namespace sandglass
