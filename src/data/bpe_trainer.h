// Learning the merges of a byte-level BPE tokenizer from text.
#pragma once

#include <cstdint>

#include "base/progress.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

namespace sandglass {

template <>
struct EnumNames<SplitPattern> {
  static constexpr std::array<std::pair<SplitPattern, const char*>, 2> kNames{
      {{SplitPattern::kGpt2, "gpt2"}, {SplitPattern::kCl100k, "cl100k"}}};
};

struct BpeTrainerOptions {
  int vocabulary = 4096;
  SplitPattern pattern = SplitPattern::kGpt2;
  int threads = 0;  // 0: all that this process may use

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("vocabulary", self.vocabulary,
          "size of the vocabulary: the end-of-text token, 256 bytes, and the merges");
    field("pattern", self.pattern,
          "how text is split before merging: gpt2, or cl100k (numbers in groups of three digits)");
    field("threads", self.threads, "threads to use, 0 for all that are available");
  }
};

// A tokenizer whose ids are 0 for end-of-text, 1-256 for the bytes (in the order of the byte-level
// alphabet) and then one per merge. Each merge joins the pair that is most frequent at its turn;
// among equals the pair with the smaller left, then right id. That is the rule of the reference
// trainer (Hugging Face tokenizers, BpeTrainer with the whole byte alphabet and one special token);
// pairs that occur only once are not merged.
//
// Throws Error if the vocabulary is below 257 or the text has too few repeated pairs for it.
Tokenizer TrainBpe(CorpusReader& corpus, const BpeTrainerOptions& options,
                   ProgressMode progress_mode = ProgressMode::kAutomatic);

}  // namespace sandglass
