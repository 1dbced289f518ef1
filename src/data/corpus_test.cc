#include "data/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "data/parallel.h"
#include "data/testing.h"

namespace sandglass {
namespace {

using Strings = std::vector<std::string>;

Strings ReadAll(CorpusReader& corpus) {
  Strings documents;
  while (auto document = corpus.Next()) documents.push_back(*document);
  return documents;
}

Strings Documents(const std::string& input, DocumentUnit unit = DocumentUnit::kFile) {
  CorpusReader corpus({.inputs = {input}, .documents = unit});
  return ReadAll(corpus);
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Text that compresses badly, so that it spans many reads.
std::string LongText() {
  RandomStream random(1, "text");
  std::string text;
  while (text.size() < 1'500'000) {
    text += static_cast<char>('a' + random.NextBelow(26));
    if (random.NextBelow(60) == 0) text += '\n';
  }
  return text;
}

TEST(Corpus, CutsTextIntoDocuments) {
  const TestDirectory directory;
  const std::string text = "one\r\ntwo\n \t\r\n\nthree\n\n\nfour\r\n";
  const std::string path = directory.Write("a.txt", text);
  EXPECT_EQ(Documents(path, DocumentUnit::kFile), Strings{text});
  EXPECT_EQ(Documents(path, DocumentUnit::kLine), (Strings{"one", "two", "three", "four"}));
  EXPECT_EQ(Documents(path, DocumentUnit::kParagraph), (Strings{"one\r\ntwo", "three", "four"}));
}

TEST(Corpus, CountsWhatItReads) {
  const TestDirectory directory;
  const std::string path = directory.Write("a.txt", "one\n\n\ntwo");
  CorpusReader corpus({.inputs = {path}, .documents = DocumentUnit::kLine});
  ReadAll(corpus);
  EXPECT_EQ(corpus.report().files, 1);
  EXPECT_EQ(corpus.report().documents, 2);
  EXPECT_EQ(corpus.report().text_bytes, 6);
  EXPECT_EQ(corpus.report().empty_lines, 2);
  EXPECT_EQ(corpus.report().consumed_bytes, 9u);
  EXPECT_EQ(corpus.total_bytes(), 9u);
}

TEST(Corpus, KeepsInvalidUtf8AndByteOrderMarks) {
  const TestDirectory directory;
  const std::string text = "\xEF\xBB\xBFhello \xFF\xC3";
  EXPECT_EQ(Documents(directory.Write("a.txt", text)), Strings{text});
}

TEST(Corpus, ReadsDirectoriesInSortedOrderWithoutHiddenFiles) {
  const TestDirectory directory;
  directory.Write("in/b/2.txt", "third");
  directory.Write("in/b/1.txt.gz", Gzip("second"));
  directory.Write("in/a.txt", "first");
  directory.Write("in/c.jsonl", "{\"text\": \"fourth\"}\n{\"text\": \"fifth\"}");
  directory.Write("in/d.txt", "");
  directory.Write("in/.hidden", "never");
  directory.Write("in/.git/x", "never");
  CorpusReader corpus({.inputs = {directory / "in"}});
  EXPECT_EQ(ReadAll(corpus), (Strings{"first", "second", "third", "fourth", "fifth"}));
  EXPECT_EQ(corpus.report().empty_documents, 1);
}

TEST(Corpus, ReadsCompressedFiles) {
  const TestDirectory directory;
  const std::string text = LongText();
  EXPECT_EQ(Documents(directory.Write("a.gz", Gzip(text))), Strings{text});
  EXPECT_EQ(Documents(directory.Write("a.zst", Zstd(text))), Strings{text});
  const std::string half = text.substr(0, text.size() / 2);
  EXPECT_EQ(Documents(directory.Write("two.gz", Gzip(half) + Gzip("end"))), Strings{half + "end"});
  EXPECT_EQ(Documents(directory.Write("two.zst", Zstd(half) + Zstd("end"))), Strings{half + "end"});
  std::string joined;
  for (const std::string& line : Documents(directory / "a.gz", DocumentUnit::kLine)) joined += line;
  std::string expected = text;
  std::erase(expected, '\n');
  EXPECT_EQ(joined, expected);
}

TEST(Corpus, TruncatedOrDamagedCompressionIsAnError) {
  const TestDirectory directory;
  const std::string text = LongText();
  for (const std::string& whole : {Gzip(text), Zstd(text), Gzip("short"), Zstd("short")}) {
    for (const size_t missing : {size_t{1}, size_t{5}, whole.size() / 2}) {
      const std::string path =
          directory.Write("cut", std::string_view(whole).substr(0, whole.size() - missing));
      const ErrorParts parts = FailureOf([&] { Documents(path); });
      EXPECT_TRUE(Contains(parts.what, "ends too early")) << parts.what;
      EXPECT_EQ(parts.where, path);
    }
  }
  std::string damaged = Gzip(text);
  damaged[damaged.size() / 2] ^= 0x10;
  EXPECT_TRUE(Contains(FailureOf([&] { Documents(directory.Write("bad.gz", damaged)); }).what,
                       "gzip data is damaged"));
  damaged = Zstd(text);
  damaged[damaged.size() / 2] ^= 0x10;
  damaged[5] ^= 0xFF;
  EXPECT_TRUE(
      Contains(FailureOf([&] { Documents(directory.Write("bad.zst", damaged)); }).what, "damaged"));
}

TEST(Corpus, JsonLinesCountWhatCannotBeUsed) {
  const TestDirectory directory;
  const std::string path = directory.Write("a.jsonl",
                                           "\n"
                                           "{\"text\": \"first \\u00e9\\n\", \"id\": 1}\r\n"
                                           "{\"text\": \"broken\n"
                                           "{\"text\": \"\"}\n"
                                           "{\"id\": 3}\n"
                                           "{\"text\": 4}\n"
                                           "[]\n"
                                           "{\"text\": \"last\"}");
  CorpusReader corpus({.inputs = {path}, .documents = DocumentUnit::kParagraph});
  EXPECT_EQ(ReadAll(corpus), (Strings{"first \u00e9\n", "last"}));
  EXPECT_EQ(corpus.report().empty_lines, 1);
  EXPECT_EQ(corpus.report().empty_documents, 1);
  EXPECT_EQ(corpus.report().malformed_lines, 4);
  EXPECT_TRUE(corpus.report().first_malformed.starts_with(path + ":3: not JSON"))
      << corpus.report().first_malformed;
}

TEST(Corpus, JsonLinesWithAnotherKey) {
  const TestDirectory directory;
  const std::string path = directory.Write("a.jsonl.zst", Zstd("{\"content\": \"x\"}\n"));
  CorpusReader corpus({.inputs = {path}, .text_key = "content"});
  EXPECT_EQ(ReadAll(corpus), Strings{"x"});
  const ErrorParts parts = FailureOf([&] { Documents(path); });
  EXPECT_TRUE(Contains(parts.what, "no text at all"));
  EXPECT_TRUE(Contains(parts.where, ":1: no field \"text\""));
  EXPECT_TRUE(Contains(parts.remedy, "--text-key"));
}

TEST(Corpus, BadInputsGiveOneClearError) {
  const TestDirectory directory;
  const auto failure = [&](const std::string& input) {
    return FailureOf([&] { Documents(input, DocumentUnit::kLine); });
  };
  EXPECT_TRUE(Contains(failure(directory / "none.txt").what, "does not exist"));
  EXPECT_EQ(failure(directory / "none.txt").where, directory / "none.txt");
  EXPECT_TRUE(Contains(failure(directory.Write("empty.txt", "")).what, "is empty"));
  EXPECT_TRUE(Contains(failure(directory.Write("blank.txt", "\n \n\n")).what, "no text at all"));
  EXPECT_TRUE(Contains(failure(directory.Write("empty.gz", Gzip(""))).what, "no text at all"));
  CreateDirectories(directory / "hollow");
  EXPECT_TRUE(Contains(failure(directory / "hollow").what, "holds no files"));
  const ErrorParts binary = failure(directory.Write("binary", std::string_view("\x7F"
                                                                               "ELF\n\x01\0\x02",
                                                                               8)));
  EXPECT_TRUE(Contains(binary.what, "NUL"));
  EXPECT_EQ(binary.where, directory / "binary");
  EXPECT_TRUE(Contains(FailureOf([] { CorpusReader({}); }).what, "no input"));
}

TEST(Corpus, BlocksHoldEveryDocumentOnce) {
  const TestDirectory directory;
  const std::string path = directory.Write("a.txt", LongText());
  CorpusReader corpus({.inputs = {path}, .documents = DocumentUnit::kLine});
  Strings documents;
  int blocks = 0;
  while (auto block = corpus.NextBlock()) {
    documents.insert(documents.end(), block->begin(), block->end());
    ++blocks;
  }
  EXPECT_EQ(documents, Documents(path, DocumentUnit::kLine));
  EXPECT_EQ(blocks, 2);  // 1.5 MB of text
}

TEST(ParallelInOrder, KeepsTheOrderAndPassesErrorsOn) {
  const auto run = [](int failing_item) {
    int produced = 0;
    std::vector<int> results;
    ParallelInOrder(
        3, [&] { return produced < 100 ? std::optional<int>(produced++) : std::nullopt; },
        [&](int worker, int item) {
          EXPECT_TRUE(worker >= 0 && worker < 3);
          if (item == failing_item) throw Error({.what = "item failed"});
          return item * item;
        },
        [&](int result) { results.push_back(result); });
    return results;
  };
  const std::vector<int> results = run(-1);
  ASSERT_EQ(results.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(results[i], i * i);
  EXPECT_EQ(FailureOf([&] { run(40); }).what, "item failed");
}

}  // namespace
}  // namespace sandglass
