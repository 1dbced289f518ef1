// From text to the token shards that training and evaluation read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "data/corpus.h"
#include "data/token_shard.h"
#include "data/tokenizer_loader.h"

namespace sandglass {

// Files of a prepared directory; each shard has its sidecar beside it.
inline constexpr const char* kTrainShardName = "train.bin";
inline constexpr const char* kValidationShardName = "validation.bin";
inline constexpr const char* kTokenizerName = "tokenizer.json";

struct PrepareOptions {
  std::string tokenizer;  // path
  std::string out;        // directory
  CorpusOptions corpus;
  double validation = 0.05;
  std::vector<std::string> validation_inputs;
  uint64_t seed = 0;
  int threads = 0;  // 0: all that this process may use
  // A kill costs at most the work on this much text. Not for users.
  int64_t sync_bytes = int64_t{64} << 20;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokenizer", self.tokenizer,
          "the tokenizer to use: tokenizer.json, tiktoken, SentencePiece or GGUF");
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
  int64_t resumed_documents = 0;  // that an earlier process had encoded
  int64_t encoded_bytes = 0;      // text that this process encoded
  double seconds = 0.0;           // it took, reading and writing included
};

// Encodes the corpus and writes train.bin, validation.bin, their sidecars and tokenizer.json into
// `options.out`. Whether a document is for validation depends on its bytes and the seed only, and
// the files do not depend on the number of threads.
//
// Memory does not depend on the size of the corpus. The files are put together in <out>.partial and
// appear in `options.out` all at once; until then what was there stays, and so do files of other
// names. After an interrupt, a kill or a full disk the same call goes on where the last one was
// (within options.sync_bytes of text), unless the input is standard input.
//
// Throws Error for bad input, and if training or validation would be empty.
PrepareReport PrepareCorpus(const PrepareOptions& options,
                            ProgressMode progress_mode = ProgressMode::kAutomatic,
                            const TokenizerLoader& load_tokenizer = Tokenizer::Load);

}  // namespace sandglass
