// What is twice in the data: documents within a split, documents and passages of validation that
// are also in training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "data/samples.h"

namespace sandglass {

struct CheckOptions {
  int passage = 50;                           // tokens
  int64_t memory_bytes = int64_t{256} << 20;  // for the hashes of documents; more passes if less
  int64_t examples = 10;                      // reported documents, at most
  ProgressMode progress = ProgressMode::kAutomatic;
};

// A document that is the same, token by token, as another one.
struct DuplicateDocument {
  std::string stream;    // path
  int64_t document = 0;  // number in its stream, from 0
  std::string same_as;   // path of the earlier one; validation counts as earlier
  int64_t same_document = 0;
};

struct CheckReport {
  int64_t train_documents = 0;
  int64_t validation_documents = 0;
  int64_t train_repeats = 0;        // training documents that stand in training before
  int64_t validation_repeats = 0;   // validation documents that stand in validation before
  int64_t shared_documents = 0;     // training documents that are also validation documents
  int64_t validation_passages = 0;  // stretches of `passage` tokens, end to end, within documents
  int64_t shared_passages = 0;      // of these, found word for word anywhere in training
  int passes = 1;                   // over the data
  std::vector<DuplicateDocument> examples;
};

// Compares by 64-bit hashes of token ids: with 10^8 documents the chance of a false alarm is about
// 1 in 4000. All sources need a separator, so that documents are known. Memory for documents is
// bounded by options.memory_bytes; for passages it is 8 bytes for every `passage` validation
// tokens.
CheckReport CheckData(const std::vector<SampleSource>& train,
                      const std::vector<SampleSource>& validation, const CheckOptions& options);

}  // namespace sandglass
