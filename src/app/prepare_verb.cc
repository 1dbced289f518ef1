// sandglass prepare: text to token shards.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/field_options.h"
#include "app/verbs.h"
#include "base/format.h"
#include "data/prepare.h"
#include "interop/gguf_tokenizer.h"

namespace sandglass {
namespace {

constexpr const char* kExamples = R"(
Examples:
  sandglass prepare --tokenizer tokenizer.json --out data/books books/
      every file below books/ is a document; 5 % of them are kept for validation
  sandglass prepare --tokenizer tokenizer.json --out data/book --documents paragraph book.txt
      one book: its paragraphs are the documents
  sandglass prepare --tokenizer tokenizer.json --out data/web web-*.jsonl.gz --text-key content
      one document per JSON line, its text in the field "content"
  sandglass prepare --tokenizer tokenizer.json --out data/wiki --validation-input test.txt train.txt
      validation on a text of its own
  sandglass prepare --tokenizer model.gguf --out data/book book.txt
      with the tokenizer of a model, to train it on or to score it
  bible -f gen1:1-rev22:21 | sandglass prepare --tokenizer t.json --out data/kjv --documents line -
      from standard input

DIR then holds train.bin, validation.bin (ids as little-endian uint16 or uint32), a .json beside
each that describes it, and tokenizer.json. They are put together in DIR.partial and appear in DIR
all at once. After Ctrl-C or a kill the same command goes on where it was.
)";

struct Arguments {
  PrepareOptions options;
  bool json = false;
};

Json ReportJson(const PrepareReport& report) {
  const auto corpus_json = [](const CorpusReport& corpus) {
    return Json{{"files", corpus.files},
                {"documents", corpus.documents},
                {"text_bytes", corpus.text_bytes},
                {"empty_lines", corpus.empty_lines},
                {"empty_documents", corpus.empty_documents},
                {"malformed_lines", corpus.malformed_lines},
                {"first_malformed", corpus.first_malformed}};
  };
  return Json{{"train", WriteFields(report.train)},
              {"validation", WriteFields(report.validation)},
              {"input", corpus_json(report.corpus)},
              {"validation_input", corpus_json(report.validation_corpus)},
              {"shared_documents", report.shared_documents},
              {"resumed_documents", report.resumed_documents},
              {"encoded_bytes", report.encoded_bytes},
              {"seconds", report.seconds}};
}

void PrintShard(const char* name, const ShardInfo& shard) {
  std::string bytes_per_token = "-";
  if (shard.tokens > shard.documents) {
    bytes_per_token = fmt::format(
        "{:.2f}", static_cast<double>(shard.text_bytes) / static_cast<double>(shard.tokens));
  }
  fmt::print("{:<12}{:>14}{:>16}{:>18}{:>14}\n", name, WithThousands(shard.documents),
             WithThousands(shard.tokens), WithThousands(shard.text_bytes), bytes_per_token);
}

void PrintRemarks(const CorpusReport& corpus) {
  if (corpus.empty_lines > 0)
    fmt::print("{} empty lines skipped\n", WithThousands(corpus.empty_lines));
  if (corpus.empty_documents > 0) {
    fmt::print("{} empty documents skipped\n", WithThousands(corpus.empty_documents));
  }
  if (corpus.malformed_lines > 0) {
    fmt::print("{} malformed lines skipped, the first at {}\n",
               WithThousands(corpus.malformed_lines), corpus.first_malformed);
  }
}

void Run(const Arguments& arguments) {
  const PrepareReport report =
      PrepareCorpus(arguments.options, ProgressMode::kAutomatic, LoadAnyTokenizer);
  if (arguments.json) {
    // File names in the report need not be valid UTF-8.
    fmt::print("{}\n", ReportJson(report).dump(2, ' ', /*ensure_ascii=*/false,
                                               Json::error_handler_t::replace));
    return;
  }
  fmt::print("{:<12}{:>14}{:>16}{:>18}{:>14}\n", "", "documents", "tokens", "text bytes",
             "bytes/token");
  PrintShard("train", report.train);
  PrintShard("validation", report.validation);
  PrintRemarks(report.corpus);
  PrintRemarks(report.validation_corpus);
  if (report.shared_documents > 0) {
    fmt::print("warning: {} training documents are also validation documents\n",
               WithThousands(report.shared_documents));
  }
  if (report.resumed_documents > 0) {
    fmt::print("continued after {} documents\n", WithThousands(report.resumed_documents));
  }
  fmt::print("encoded {} in {}, {}/s\n", HumanBytes(static_cast<double>(report.encoded_bytes)),
             HumanDuration(report.seconds),
             HumanBytes(static_cast<double>(report.encoded_bytes) / report.seconds));
  fmt::print("written to {} ({}, vocabulary {}, tokenizer {})\n", arguments.options.out,
             EnumName(report.train.dtype), WithThousands(report.train.vocabulary),
             report.train.tokenizer_hash);
}

}  // namespace

void AddPrepareVerb(CLI::App& program) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& verb = *program.add_subcommand(
      "prepare", "Turns text into token shards, split into training and validation by document.");
  PrepareOptions::VisitFields(arguments->options, FieldOptions(verb));
  verb.add_flag("--json", arguments->json, "print the result as JSON");
  AddExamples(verb, kExamples);
  verb.callback([arguments] { Run(*arguments); });
}

}  // namespace sandglass
