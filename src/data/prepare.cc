#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <unordered_set>

#include "base/cpu.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "data/parallel.h"
#include "data/tokenizer.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// Files are written here until all are complete, then moved to their places.
class StagingDirectory {
 public:
  explicit StagingDirectory(const std::string& out) : out_(out), path_(fs::path(out) / ".partial") {
    Remove();  // what a killed process may have left
    CreateDirectories(path_.string());
  }
  ~StagingDirectory() { Remove(); }
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  std::string PathOf(const std::string& name) const { return (path_ / name).string(); }

  // Nothing is written any more here, so a full disk cannot stop it half-way.
  void MoveIntoPlace() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
      const fs::path target = out_ / entry.path().filename();
      std::error_code failure;
      fs::rename(entry.path(), target, failure);
      if (failure) {
        throw Error({.what = "cannot replace the file: " + failure.message(),
                     .where = target.string(),
                     .remedy = "name another directory with --out"});
      }
    }
    SyncDirectory(out_.string());
  }

 private:
  void Remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path out_;
  fs::path path_;
};

struct EncodedDocument {
  uint64_t hash = 0;  // of the text, under the seed
  int64_t text_bytes = 0;
  std::vector<TokenId> tokens;  // end-of-text first
};

// Bytes of text in a document: its own, unless the tokenizer changes text before it encodes it.
int64_t TextBytes(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  int64_t bytes = 0;
  TokenId previous = -1;
  for (const TokenId id : tokens) {
    bytes += tokenizer.byte_counts()(previous, id);
    previous = id;
  }
  return bytes;
}

// Hands every document of the corpus, encoded, to `sink` in the order of the corpus.
CorpusReport EncodeCorpus(const Tokenizer& tokenizer, CorpusOptions corpus_options,
                          const PrepareOptions& options, ProgressMode progress_mode,
                          const std::function<void(const EncodedDocument&)>& sink) {
  const int threads = ResolveThreads(options.threads, "threads");
  CorpusReader corpus(std::move(corpus_options));
  std::vector<Encoder> encoders;
  for (int worker = 0; worker < threads; ++worker) encoders.emplace_back(tokenizer);
  Progress progress("encoding", corpus.total_bytes(), "bytes", progress_mode);
  ParallelInOrder(
      threads, [&] { return corpus.NextBlock(); },
      [&](int worker, const std::vector<std::string>& documents) {
        std::vector<EncodedDocument> encoded(documents.size());
        for (size_t i = 0; i < documents.size(); ++i) {
          encoded[i].hash = HashBytes(documents[i], options.seed);
          encoded[i].tokens.push_back(tokenizer.end_of_text());
          encoders[worker].Encode(documents[i], encoded[i].tokens);
          encoded[i].text_bytes = TextBytes(tokenizer, encoded[i].tokens);
        }
        return encoded;
      },
      [&](const std::vector<EncodedDocument>& encoded) {
        if (InterruptRequested()) {
          throw Error({.what = "interrupted while encoding the text",
                       .where = options.out,
                       .remedy = "run the same command again; earlier results are untouched"});
        }
        for (const EncodedDocument& document : encoded) sink(document);
        progress.Update(corpus.report().consumed_bytes);
      });
  progress.Finish();
  return corpus.report();
}

std::string DescribeSource(const CorpusOptions& corpus, const std::string& part) {
  std::vector<std::string> names = corpus.inputs;
  std::replace(names.begin(), names.end(), std::string("-"), std::string("standard input"));
  return fmt::format("{} (documents: {}), {}", fmt::join(names, ", "), EnumName(corpus.documents),
                     part);
}

void CheckOptions(const PrepareOptions& options) {
  if (options.tokenizer.empty() || options.out.empty()) {
    throw Error({.what = "the tokenizer and the output directory must both be named",
                 .expected = "--tokenizer tokenizer.json --out DIRECTORY"});
  }
  if (options.validation_inputs.empty() && !(options.validation > 0 && options.validation < 1)) {
    throw Error({.what = fmt::format("{} is no share of the documents", options.validation),
                 .where = "--validation",
                 .expected = "a number above 0 and below 1, such as 0.05"});
  }
}

void RequireBothSides(const PrepareReport& report, const PrepareOptions& options) {
  if (report.train.documents > 0 && report.validation.documents > 0) return;
  const int64_t documents = report.corpus.documents;
  throw Error(
      {.what = fmt::format("no document is left for {}",
                           report.train.documents == 0 ? "training" : "validation"),
       .where =
           fmt::format("{} {}, split with --validation {} --seed {}", documents,
                       documents == 1 ? "document" : "documents", options.validation, options.seed),
       .expected = "at least one document on each side",
       .remedy = "cut the text into more documents with --documents paragraph or --documents line, "
                 "change --validation, or name other text with --validation-input"});
}

}  // namespace

PrepareReport PrepareCorpus(const PrepareOptions& options, ProgressMode progress_mode) {
  CheckOptions(options);
  const Tokenizer tokenizer = Tokenizer::Load(options.tokenizer);
  CreateDirectories(options.out);
  const StagingDirectory staging(options.out);
  const bool split = options.validation_inputs.empty();
  CorpusOptions validation_corpus = options.corpus;
  if (!split) validation_corpus.inputs = options.validation_inputs;
  const std::string part =
      split ? fmt::format("split with validation {} and seed {}", options.validation, options.seed)
            : "all documents";
  ShardInfo info;
  info.vocabulary = tokenizer.vocabulary();
  info.tokenizer_hash = tokenizer.hash();
  info.source = DescribeSource(options.corpus, part);
  TokenShardWriter train(staging.PathOf(kTrainShardName), info);
  info.source = DescribeSource(validation_corpus, part);
  TokenShardWriter validation(staging.PathOf(kValidationShardName), info);

  PrepareReport report;
  if (split) {
    report.corpus = EncodeCorpus(
        tokenizer, options.corpus, options, progress_mode, [&](const EncodedDocument& document) {
          const double place = static_cast<double>(document.hash >> 11) * 0x1.0p-53;  // [0, 1)
          TokenShardWriter& side = place < options.validation ? validation : train;
          side.AddDocument(document.tokens, document.text_bytes);
        });
  } else {
    std::unordered_set<uint64_t> validation_hashes;
    report.validation_corpus = EncodeCorpus(
        tokenizer, validation_corpus, options, progress_mode, [&](const EncodedDocument& document) {
          validation_hashes.insert(document.hash);
          validation.AddDocument(document.tokens, document.text_bytes);
        });
    report.corpus = EncodeCorpus(
        tokenizer, options.corpus, options, progress_mode, [&](const EncodedDocument& document) {
          report.shared_documents += static_cast<int64_t>(validation_hashes.count(document.hash));
          train.AddDocument(document.tokens, document.text_bytes);
        });
  }
  report.train = train.Commit();
  report.validation = validation.Commit();
  RequireBothSides(report, options);
  tokenizer.Save(staging.PathOf(kTokenizerName));
  staging.MoveIntoPlace();
  return report;
}

}  // namespace sandglass
