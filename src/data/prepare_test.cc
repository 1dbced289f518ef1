#include "data/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "base/interrupt.h"
#include "data/staging.h"
#include "data/testing.h"

namespace sandglass {
namespace {

PrepareOptions Options(const TestDirectory& directory, const std::string& input) {
  return {.tokenizer = TestData("gpt2.json"),
          .out = directory / "out",
          .corpus = {.inputs = {input}, .documents = DocumentUnit::kLine},
          .validation = 0.2,
          .threads = 2};
}

PrepareReport Prepare(const PrepareOptions& options) {
  return PrepareCorpus(options, ProgressMode::kSilent);
}

// `count` different lines, each ending in `padding`.
std::string Lines(int count, const std::string& padding = "") {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line number " + std::to_string(i) + padding + "\n";
  return text;
}

// The documents of a shard, decoded.
std::vector<std::string> Decoded(const std::string& path, const Tokenizer& tokenizer) {
  const TokenShard shard(path);
  std::vector<TokenId> ids(shard.tokens());
  shard.Read(0, ids);
  std::vector<std::string> documents;
  for (const TokenId id : ids) {
    if (id == tokenizer.end_of_text()) {
      documents.emplace_back();
    } else {
      documents.back() += tokenizer.TokenBytes(id);
    }
  }
  return documents;
}

// Names and contents of the files in a directory.
std::map<std::string, std::string> Contents(const std::string& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const bool is_file = entry.is_regular_file();
    contents[entry.path().string()] = is_file ? ReadFile(entry.path().string()) : "";
  }
  return contents;
}

TEST(Prepare, WritesBothSidesAndTheTokenizer) {
  const TestDirectory directory;
  const PrepareReport report = Prepare(Options(directory, directory.Write("in.txt", Lines(500))));
  const Tokenizer tokenizer = Tokenizer::Load(directory / "out/tokenizer.json");
  std::set<std::string> documents;
  for (const char* name : {kTrainShardName, kValidationShardName}) {
    const TokenShard shard(directory / "out/" + std::string(name));
    shard.Verify();
    shard.RequireTokenizer(tokenizer);
    int64_t text_bytes = 0;
    for (const std::string& document : Decoded(shard.path(), tokenizer)) {
      EXPECT_TRUE(documents.insert(document).second) << "twice: " << document;
      text_bytes += std::ssize(document);
    }
    EXPECT_EQ(shard.info().text_bytes, text_bytes);
  }
  EXPECT_EQ(documents.size(), 500u);
  EXPECT_EQ(report.train.documents + report.validation.documents, 500);
  // 500 draws at 0.2: 100 with a standard deviation of 9; five of them either way.
  EXPECT_NEAR(static_cast<double>(report.validation.documents), 100.0, 45.0);
  EXPECT_EQ(Contents(directory / "out").size(), 5u);
}

TEST(Prepare, FilesDoNotDependOnThreadsAndKeepTheOrder) {
  const TestDirectory directory;
  // 4 MB, which is several blocks.
  const std::string text = Lines(20'000, std::string(180, '.'));
  PrepareOptions options = Options(directory, directory.Write("in.txt", text));
  options.threads = 1;
  Prepare(options);
  const auto one = Contents(options.out);
  options.threads = 7;
  Prepare(options);
  EXPECT_EQ(Contents(options.out), one);
  const Tokenizer tokenizer = Tokenizer::Load(options.tokenizer);
  int last = -1;
  for (const std::string& document : Decoded(directory / "out/train.bin", tokenizer)) {
    const int number = std::stoi(document.substr(12));
    ASSERT_GT(number, last);
    last = number;
  }
}

TEST(Prepare, TheSplitFollowsContentAndSeed) {
  const TestDirectory directory;
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  const auto validation = [&](const std::string& text, uint64_t seed) {
    PrepareOptions options = Options(directory, directory.Write("in.txt", text));
    options.seed = seed;
    Prepare(options);
    const auto documents = Decoded(directory / "out/validation.bin", tokenizer);
    return std::set<std::string>(documents.begin(), documents.end());
  };
  const std::string lines = Lines(300);
  const std::set<std::string> once = validation(lines, 0);
  EXPECT_EQ(validation("another line first\n" + lines, 0), once) << "or the new line is validation";
  EXPECT_NE(validation(lines, 1), once);
}

TEST(Prepare, IdenticalDocumentsNeverStraddleTheSplit) {
  const TestDirectory directory;
  const Tokenizer tokenizer = Tokenizer::Load(TestData("gpt2.json"));
  Prepare(Options(directory, directory.Write("in.txt", Lines(100) + Lines(100) + Lines(100))));
  const auto train = Decoded(directory / "out/train.bin", tokenizer);
  const std::set<std::string> in_train(train.begin(), train.end());
  const auto validation = Decoded(directory / "out/validation.bin", tokenizer);
  EXPECT_EQ(validation.size() % 3, 0u);
  for (const std::string& document : validation) EXPECT_EQ(in_train.count(document), 0u);
}

TEST(Prepare, SeparateValidationInputReportsPlantedDuplicates) {
  const TestDirectory directory;
  PrepareOptions options = Options(directory, directory.Write("in.txt", Lines(50)));
  options.validation_inputs = {directory.Write("v.txt", "line number 7\nnew\nline number 31\n")};
  const PrepareReport report = Prepare(options);
  EXPECT_EQ(report.train.documents, 50);
  EXPECT_EQ(report.validation.documents, 3);
  EXPECT_EQ(report.shared_documents, 2);
  EXPECT_TRUE(Contains(report.validation.source, "v.txt"));
}

TEST(Prepare, AnEmptySideIsAnErrorWithARemedy) {
  const TestDirectory directory;
  PrepareOptions options = Options(directory, directory.Write("in.txt", Lines(50)));
  options.corpus.documents = DocumentUnit::kFile;
  const ErrorParts parts = FailureOf([&] { Prepare(options); });
  EXPECT_TRUE(Contains(parts.what, "no document is left"));
  EXPECT_TRUE(Contains(parts.where, "1 document,"));
  EXPECT_TRUE(Contains(parts.remedy, "--documents paragraph"));
  EXPECT_FALSE(std::filesystem::exists(options.out));
}

TEST(Prepare, FailuresLeaveAnEarlierResultIntact) {
  const TestDirectory directory;
  const PrepareOptions good = Options(directory, directory.Write("in.txt", Lines(500)));
  Prepare(good);
  const auto before = Contents(good.out);

  PrepareOptions bad = good;
  bad.corpus.inputs.push_back(directory.Write("binary", std::string_view("a\0b", 3)));
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(bad); }).what, "NUL"));
  EXPECT_EQ(Contents(good.out), before);

  PrepareOptions changed = good;
  changed.seed = 5;
  SetInterruptRequested(true);
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(changed); }).what, "interrupted"));
  SetInterruptRequested(false);
  EXPECT_EQ(Contents(good.out), before);

  // A file-size limit stands in for a full disk: both make the write fail.
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = old_limit;
  limit.rlim_cur = 2000;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
  const ErrorParts full = FailureOf([&] { Prepare(changed); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_TRUE(Contains(full.what, "cannot write")) << full.what;
  EXPECT_EQ(Contents(good.out), before);

  Prepare(changed);
  EXPECT_NE(Contents(good.out), before);
}

TEST(Prepare, LeavesOtherFilesAloneAndClearsWhatACrashLeft) {
  const TestDirectory directory;
  directory.Write("out/notes.txt", "mine");
  directory.Write("out/more/notes.txt", "mine too");
  directory.Write("out.partial/train.bin.partial", "half");
  // A kill right after the exchange left files of others where the old directory was.
  directory.Write("out.partial/late.txt", "to be returned");
  const PrepareOptions options = Options(directory, directory.Write("in.txt", Lines(100)));
  for (int round = 0; round < 2; ++round) {
    Prepare(options);
    EXPECT_EQ(ReadFile(directory / "out/notes.txt"), "mine");
    EXPECT_EQ(ReadFile(directory / "out/more/notes.txt"), "mine too");
    EXPECT_EQ(ReadFile(directory / "out/late.txt"), "to be returned");
    EXPECT_FALSE(std::filesystem::exists(directory / "out.partial"));
    EXPECT_EQ(Contents(options.out).size(), 9u);
  }
}

TEST(Prepare, TwoProcessesDoNotWriteTheSameDirectory) {
  const TestDirectory directory;
  const StagingDirectory other(directory / "out", {});
  const PrepareOptions options = Options(directory, directory.Write("in.txt", Lines(100)));
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(options); }).what, "another process"));
}

// Runs prepare in a process of its own and kills it after `delay`. True if it had finished.
bool PrepareAndKill(const PrepareOptions& options, std::chrono::microseconds delay) {
  const pid_t child = ::fork();
  if (child == 0) {
    Prepare(options);
    std::_Exit(0);
  }
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status);
}

TEST(Prepare, AKillAtAnyMomentCostsNothingButTime) {
  const TestDirectory directory;
  PrepareOptions options =
      Options(directory, directory.Write("in.txt", Lines(12'000, std::string(160, '.'))));
  options.sync_bytes = 1;  // at every block
  options.out = directory / "whole";
  Prepare(options);
  const auto names_and_contents = [](const std::string& path) {
    std::map<std::string, std::string> contents;
    for (const auto& [name, text] : Contents(path)) {
      contents[std::filesystem::path(name).filename().string()] = text;
    }
    return contents;
  };
  const auto whole = names_and_contents(options.out);
  RandomStream random(1, "kills");
  for (const bool separate : {false, true}) {
    if (separate) options.validation_inputs = {directory.Write("v.txt", Lines(9'000, "!"))};
    options.out = directory / (separate ? "separate" : "split");
    int kills = 0;
    // Longer and longer, so that it ends on a busy machine too.
    const auto delay = [&] {
      return std::chrono::microseconds(random.NextBelow(uint64_t{40'000} << kills));
    };
    while (!PrepareAndKill(options, delay())) {
      ++kills;
      EXPECT_FALSE(std::filesystem::exists(options.out + "/train.bin"));
    }
    EXPECT_GE(kills, 1);
    const auto killed = names_and_contents(options.out);
    if (!separate) {
      EXPECT_EQ(killed, whole);
    } else {
      PrepareOptions again = options;
      again.out = directory / "again";
      Prepare(again);
      EXPECT_EQ(killed, names_and_contents(again.out));
    }
  }
}

TEST(Prepare, AnInterruptedCallGoesOnUnlessTheInputHasChanged) {
  const TestDirectory directory;
  PrepareOptions options =
      Options(directory, directory.Write("in.txt", Lines(20'000, std::string(160, '.'))));
  SetInterruptRequested(true);
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(options); }).remedy, "goes on from here"));
  SetInterruptRequested(false);
  const PrepareReport report = Prepare(options);
  EXPECT_GT(report.resumed_documents, 0);
  EXPECT_LT(report.encoded_bytes, report.train.text_bytes);
  EXPECT_EQ(report.corpus.documents, 20'000);

  SetInterruptRequested(true);
  FailureOf([&] { Prepare(options); });
  SetInterruptRequested(false);
  options.seed = 1;
  EXPECT_EQ(Prepare(options).resumed_documents, 0);
}

TEST(Prepare, TheCurrentDirectoryIsRefused) {
  const TestDirectory directory;
  PrepareOptions options = Options(directory, directory.Write("in.txt", Lines(100)));
  options.out = ".";
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(options); }).what, "current directory"));
}

TEST(Prepare, RefusesOptionsThatMakeNoSense) {
  const TestDirectory directory;
  const PrepareOptions good = Options(directory, directory.Write("in.txt", Lines(10)));
  for (const double share : {0.0, 1.0, -0.5, 7.0}) {
    PrepareOptions bad = good;
    bad.validation = share;
    EXPECT_EQ(FailureOf([&] { Prepare(bad); }).where, "--validation");
  }
  PrepareOptions bad = good;
  bad.tokenizer = directory / "none.json";
  EXPECT_EQ(FailureOf([&] { Prepare(bad); }).where, directory / "none.json");
  bad.tokenizer = "";
  EXPECT_TRUE(Contains(FailureOf([&] { Prepare(bad); }).expected, "--tokenizer"));
}

}  // namespace
}  // namespace sandglass
