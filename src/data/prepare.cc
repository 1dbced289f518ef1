#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <unordered_set>

#include "base/cpu.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "data/parallel.h"
#include "data/staging.h"
#include "data/tokenizer.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// What a prepare that was interrupted or killed leaves: enough to go on where it was.
struct Journal {
  std::string fingerprint;  // of the inputs and of all that decides about the result
  bool validation_done = false;
  int64_t documents = 0;  // of the present input that are in the shards
  int64_t shared_documents = 0;
  ShardInfo train;
  ShardInfo validation;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("fingerprint", self.fingerprint, "");
    field("validation_done", self.validation_done, "");
    field("documents", self.documents, "");
    field("shared_documents", self.shared_documents, "");
    field("train", self.train, "");
    field("validation", self.validation, "");
  }
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

// A part of the corpus, about a megabyte.
struct Block {
  int64_t first = 0;  // number of its first document
  std::vector<std::string> documents;
};

// How a corpus goes through the encoder.
struct EncodeJob {
  const Tokenizer& tokenizer;
  const PrepareOptions& options;
  ProgressMode progress_mode = ProgressMode::kAutomatic;
  int64_t skip = 0;  // documents that an earlier process has encoded
};

// Hands every document of the corpus to `sink` in the order of the corpus, encoded; those that an
// earlier process has dealt with, with no tokens. After each block `finished` gets the number of
// documents so far and the bytes of text encoded.
CorpusReport EncodeCorpus(CorpusReader& corpus, const EncodeJob& job,
                          const std::function<void(const EncodedDocument&)>& sink,
                          const std::function<void(int64_t, int64_t)>& finished) {
  const int threads = ResolveThreads(job.options.threads, "threads");
  std::vector<Encoder> encoders;
  for (int worker = 0; worker < threads; ++worker) encoders.emplace_back(job.tokenizer);
  Progress progress("encoding", corpus.total_bytes(), "bytes", job.progress_mode);
  int64_t read = 0, done = 0, text_bytes = 0;
  ParallelInOrder(
      threads,
      [&]() -> std::optional<Block> {
        auto documents = corpus.NextBlock();
        if (!documents) return std::nullopt;
        Block block{read, std::move(*documents)};
        read += std::ssize(block.documents);
        return block;
      },
      [&](int worker, const Block& block) {
        std::vector<EncodedDocument> encoded(block.documents.size());
        for (size_t i = 0; i < encoded.size(); ++i) {
          const std::string& text = block.documents[i];
          encoded[i].hash = HashBytes(text, job.options.seed);
          if (block.first + static_cast<int64_t>(i) < job.skip) continue;
          encoded[i].tokens.push_back(job.tokenizer.end_of_text());
          encoders[static_cast<size_t>(worker)].Encode(text, encoded[i].tokens);
          encoded[i].text_bytes = TextBytes(job.tokenizer, encoded[i].tokens);
        }
        return encoded;
      },
      [&](const std::vector<EncodedDocument>& encoded) {
        for (const EncodedDocument& document : encoded) {
          sink(document);
          if (!document.tokens.empty()) text_bytes += document.text_bytes;
        }
        done += std::ssize(encoded);
        if (done <= job.skip) progress.SkipTo(corpus.report().consumed_bytes);
        progress.Update(corpus.report().consumed_bytes);
        finished(done, text_bytes);
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

namespace {

// Names, sizes and times of the files, and the options: the same ones give the same result. Empty
// if the input cannot be read a second time.
std::string FingerprintOf(const PrepareOptions& options, const Tokenizer& tokenizer,
                          std::vector<std::string> paths) {
  Json facts = {{"version", kShardVersion},
                {"tokenizer", tokenizer.hash()},
                {"documents", EnumName(options.corpus.documents)},
                {"text_key", options.corpus.text_key},
                {"validation", options.validation},
                {"validation_inputs", options.validation_inputs},
                {"seed", options.seed}};
  for (const std::string& path : paths) {
    if (path == "-" || !fs::is_regular_file(path)) return "";
    facts["files"].push_back(
        {path, fs::file_size(path), fs::last_write_time(path).time_since_epoch().count()});
  }
  return HashHex(
      HashBytes(facts.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace)));
}

// One call of PrepareCorpus.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, ProgressMode progress_mode, Tokenizer tokenizer)
      : options_(options),
        progress_mode_(progress_mode),
        tokenizer_(std::move(tokenizer)),
        staging_(options.out, {kTrainShardName, SidecarPath(kTrainShardName), kValidationShardName,
                               SidecarPath(kValidationShardName), kTokenizerName}) {}

  PrepareReport Run() {
    const bool split = options_.validation_inputs.empty();
    CorpusReader corpus(options_.corpus);
    CorpusOptions validation_options = options_.corpus;
    validation_options.inputs = options_.validation_inputs;
    std::optional<CorpusReader> validation_corpus;
    std::vector<std::string> paths = corpus.Paths();
    if (!split) {
      validation_corpus.emplace(validation_options);
      for (const std::string& path : validation_corpus->Paths()) paths.push_back(path);
    }
    Begin(FingerprintOf(options_, tokenizer_, paths), validation_options);
    const auto start = std::chrono::steady_clock::now();
    split ? Split(corpus) : EncodeBoth(corpus, *validation_corpus);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report_.seconds = elapsed.count();
    report_.train = train_->Commit();
    report_.validation = validation_->Commit();
    RequireBothSides(report_, options_);
    tokenizer_.Save(staging_.PathOf(kTokenizerName));
    staging_.Publish();
    return report_;
  }

 private:
  // Takes up the journal of an earlier process, or starts anew.
  void Begin(const std::string& fingerprint, const CorpusOptions& validation_options) {
    const std::string path = staging_.PathOf(kJournalName);
    if (!fingerprint.empty() && fs::exists(path)) {
      ConfigTree tree{.source = path};
      tree.values = Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
      if (tree.values.is_object() && tree.values.value("fingerprint", "") == fingerprint) {
        ReadAllFields(journal_, tree);
        staging_.Keep();
        report_.resumed_documents = journal_.documents;
      }
    }
    if (journal_.fingerprint.empty()) {
      staging_.Clear();
      journal_.fingerprint = fingerprint;
      ShardInfo info;
      info.vocabulary = tokenizer_.vocabulary();
      info.tokenizer_hash = tokenizer_.hash();
      const bool split = options_.validation_inputs.empty();
      const std::string part = split ? fmt::format("split with validation {} and seed {}",
                                                   options_.validation, options_.seed)
                                     : "all documents";
      info.source = DescribeSource(options_.corpus, part);
      journal_.train = info;
      if (!split) info.source = DescribeSource(validation_options, part);
      journal_.validation = info;
    }
    train_.emplace(staging_.PathOf(kTrainShardName), journal_.train);
    validation_.emplace(staging_.PathOf(kValidationShardName), journal_.validation);
    report_.shared_documents = journal_.shared_documents;
  }

  void Split(CorpusReader& corpus) {
    report_.corpus = Encode(corpus, journal_.documents, [&](const EncodedDocument& document) {
      const double place = static_cast<double>(document.hash >> 11) * 0x1.0p-53;  // [0, 1)
      TokenShardWriter& side = place < options_.validation ? *validation_ : *train_;
      if (!document.tokens.empty()) side.AddDocument(document.tokens, document.text_bytes);
    });
  }

  void EncodeBoth(CorpusReader& corpus, CorpusReader& validation_corpus) {
    std::unordered_set<uint64_t> validation_hashes;
    const int64_t skip = journal_.validation_done ? INT64_MAX : journal_.documents;
    report_.validation_corpus =
        Encode(validation_corpus, skip, [&](const EncodedDocument& document) {
          validation_hashes.insert(document.hash);
          if (!document.tokens.empty()) {
            validation_->AddDocument(document.tokens, document.text_bytes);
          }
        });
    if (!std::exchange(journal_.validation_done, true)) journal_.documents = 0;
    report_.corpus = Encode(corpus, journal_.documents, [&](const EncodedDocument& document) {
      if (document.tokens.empty()) return;
      report_.shared_documents += static_cast<int64_t>(validation_hashes.count(document.hash));
      train_->AddDocument(document.tokens, document.text_bytes);
    });
  }

  CorpusReport Encode(CorpusReader& corpus, int64_t skip,
                      const std::function<void(const EncodedDocument&)>& sink) {
    const int64_t encoded_before = report_.encoded_bytes;
    int64_t synced_bytes = 0;
    return EncodeCorpus(corpus, {tokenizer_, options_, progress_mode_, skip}, sink,
                        [&](int64_t documents, int64_t text_bytes) {
                          report_.encoded_bytes = encoded_before + text_bytes;
                          const bool due = text_bytes - synced_bytes >= options_.sync_bytes;
                          if (documents > skip && (due || InterruptRequested())) {
                            synced_bytes = text_bytes;
                            WriteJournal(documents);
                          }
                          if (InterruptRequested()) FailInterrupted();
                        });
  }

  void WriteJournal(int64_t documents) {
    if (journal_.fingerprint.empty()) return;  // it could not be continued
    journal_.documents = documents;
    journal_.shared_documents = report_.shared_documents;
    journal_.train = train_->Sync();
    journal_.validation = validation_->Sync();
    WriteFileAtomically(
        staging_.PathOf(kJournalName),
        WriteFields(journal_).dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
    staging_.Keep();
  }

  [[noreturn]] void FailInterrupted() const {
    throw Error({.what = "interrupted while encoding the text",
                 .where = options_.out,
                 .remedy = journal_.fingerprint.empty()
                               ? "run the same command again; earlier results are untouched"
                               : "run the same command again, which goes on from here; earlier "
                                 "results are untouched"});
  }

  const PrepareOptions& options_;
  ProgressMode progress_mode_;
  Tokenizer tokenizer_;
  StagingDirectory staging_;
  Journal journal_;
  std::optional<TokenShardWriter> train_;
  std::optional<TokenShardWriter> validation_;
  PrepareReport report_;
};

}  // namespace

PrepareReport PrepareCorpus(const PrepareOptions& options, ProgressMode progress_mode,
                            const TokenizerLoader& load_tokenizer) {
  CheckOptions(options);
  return Preparation(options, progress_mode, load_tokenizer(options.tokenizer)).Run();
}

}  // namespace sandglass
