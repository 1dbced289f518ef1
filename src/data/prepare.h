// From text to the token shards that training and evaluation read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "data/corpus.h"
#include "data/token_shard.h"

namespace sandglass {

// Files of a prepared directory; each shard has its sidecar beside it.
inline constexpr const char* kTrainShardName = "train.bin";
inline constexpr const char* kValidationShardName = "validation.bin";
inline constexpr const char* kTokenizerName = "tokenizer.json";

struct PrepareOptions {
  std::string tokenizer;  // path of a tokenizer.json
  std::string out;        // directory
  CorpusOptions corpus;
  double validation = 0.05;
  std::vector<std::string> validation_inputs;
  uint64_t seed = 0;
  int threads = 0;  // 0: all that this process may use

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokenizer", self.tokenizer, "the tokenizer.json to use");
    field("out", self.out, "directory for the token shards");
    std::remove_cvref_t<decltype(self.corpus)>::VisitFields(self.corpus, field);
    field("validation", self.validation,
          "share of the documents kept for validation; identical documents stay together");
    field("validation_inputs", self.validation_inputs,
          "validate on these inputs instead of a share of the documents");
    field("seed", self.seed, "of the split into training and validation");
    field("threads", self.threads, "threads to use, 0 for all that are available");
  }
};

struct PrepareReport {
  ShardInfo train;
  ShardInfo validation;
  CorpusReport corpus;
  CorpusReport validation_corpus;  // empty unless there are validation_inputs
  // Training documents that are also validation documents, byte for byte. Always 0 when the split
  // is made here.
  int64_t shared_documents = 0;
};

// Encodes the corpus and writes train.bin, validation.bin, their sidecars and tokenizer.json into
// `options.out`. Whether a document is for validation depends on its bytes and the seed only, and
// the files do not depend on the number of threads. A failure or an interrupt leaves what was in
// the directory before.
//
// Throws Error for bad input, and if training or validation would be empty.
PrepareReport PrepareCorpus(const PrepareOptions& options,
                            ProgressMode progress_mode = ProgressMode::kAutomatic);

}  // namespace sandglass
