// The training and validation data of a run: one source or a mixture, prepared by Sandglass or
// written by other programs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents.h"
#include "data/samples.h"
#include "data/token_formats.h"
#include "data/tokenizer_loader.h"

namespace sandglass {

// One source: a directory that `sandglass prepare` wrote, or token files of another program.
struct SourceOptions {
  std::string path;
  std::string validation;
  TokenFormat format = TokenFormat::kAuto;
  std::optional<TokenType> dtype;
  std::optional<int64_t> separator;
  std::optional<SeparatorSide> separator_side;
  double weight = 0.0;
  int64_t tokens = 0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("path", self.path,
          "directory that `sandglass prepare` wrote, or token files: a path or a pattern");
    field("validation", self.validation,
          "token files for validation, where path names token files");
    field("format", self.format, "of token files: auto, sandglass, raw, numpy, llm.c or megatron");
    field("dtype", self.dtype, "of raw ids: uint16, uint32 or uint64; default: by vocabulary");
    field("separator", self.separator,
          "id that separates documents in token files; default: the tokenizer's end of text");
    field("separator_side", self.separator_side,
          "whether the separator stands before or after each document of token files; default: "
          "before for llm.c, else after");
    field("weight", self.weight, "share of the training samples, relative to the other sources");
    field("tokens", self.tokens, "the same as a number of tokens");
  }
};

// The keys of a single source stand in [data] itself.
struct DataOptions : SourceOptions {
  std::vector<SourceOptions> sources;
  std::string tokenizer;
  int64_t vocabulary = 0;
  bool document_masking = false;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    SourceOptions::VisitFields(self, [&](const char* key, auto& value, const char* help) {
      const std::string_view name = key;
      if (name != "weight" && name != "tokens") field(key, value, help);
    });
    field("sources", self.sources, "a mixture instead of path: [[data.sources]] tables");
    field("tokenizer", self.tokenizer,
          "tokenizer of token files (tokenizer.json, tiktoken, SentencePiece or GGUF); without one "
          "they are ids only");
    field("vocabulary", self.vocabulary, "number of ids, where no tokenizer tells it");
    field("document_masking", self.document_masking,
          "attention within documents, positions restart; false: plain packing");
  }
};

// The data of a run, opened and checked.
struct DataSet {
  std::optional<Tokenizer> tokenizer;  // none: ids only, so no text and no bits per byte
  int64_t vocabulary = 0;
  std::vector<std::unique_ptr<TokenStream>> streams;
  std::vector<SampleSource> train;
  std::vector<SampleSource> validation;

  // Throws Error for everything that can be wrong with the options and the files.
  static DataSet Open(const DataOptions& options,
                      const TokenizerLoader& load_tokenizer = Tokenizer::Load);

  // Tell whether two runs have the same data.
  std::string tokenizer_hash() const { return tokenizer ? tokenizer->hash() : ""; }
  std::string train_hash() const;
  std::string validation_hash() const;
  // Of the tokenizer; not known without one.
  TokenByteCounts byte_counts() const;
  // Throws Error, naming what needs the text, unless there is a tokenizer.
  const Tokenizer& RequireTokenizer(const char* purpose) const;
};

}  // namespace sandglass
