// sandglass tokenizer: trains byte-level BPE tokenizers and shows what they do.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>

#include "app/field_options.h"
#include "app/verbs.h"
#include "base/error.h"
#include "base/format.h"
#include "base/interrupt.h"
#include "data/bpe_trainer.h"
#include "data/byte_source.h"

namespace sandglass {
namespace {

constexpr const char* kExamples = R"(
Examples:
  sandglass tokenizer train --vocabulary 4096 --out tokenizer.json book.txt
  echo "In the beginning" | sandglass tokenizer encode --tokenizer tokenizer.json
  echo "329 266 1079" | sandglass tokenizer decode --tokenizer tokenizer.json
)";

constexpr const char* kTrainExamples = R"(
Examples:
  sandglass tokenizer train --vocabulary 4096 --out tokenizer.json book.txt
  sandglass tokenizer train --vocabulary 32768 --pattern cl100k --out t.json web-*.jsonl.zst
  bible -f gen1:1-rev22:21 | sandglass tokenizer train --documents line --out t.json -

The file is a Hugging Face tokenizer.json. Training twice on the same text gives the same file.
)";

constexpr const char* kEncodeExamples = R"(
Examples:
  echo "In the beginning" | sandglass tokenizer encode --tokenizer tokenizer.json
  sandglass tokenizer encode --tokenizer tokenizer.json --json book.txt
)";

constexpr const char* kDecodeExamples = R"(
Examples:
  echo "329 266 1079" | sandglass tokenizer decode --tokenizer tokenizer.json
)";

struct TrainArguments {
  BpeTrainerOptions options;
  CorpusOptions corpus;
  std::string out = "tokenizer.json";
  bool json = false;
};

void RunTrain(const TrainArguments& arguments) {
  CorpusReader corpus(arguments.corpus);
  const Tokenizer tokenizer = TrainBpe(corpus, arguments.options);
  tokenizer.Save(arguments.out);
  const CorpusReport& report = corpus.report();
  if (arguments.json) {
    const Json result{{"tokenizer", arguments.out},
                      {"hash", tokenizer.hash()},
                      {"vocabulary", tokenizer.vocabulary()},
                      {"pattern", EnumName(arguments.options.pattern)},
                      {"documents", report.documents},
                      {"text_bytes", report.text_bytes},
                      {"malformed_lines", report.malformed_lines},
                      {"first_malformed", report.first_malformed}};
    // File names in the report need not be valid UTF-8.
    fmt::print("{}\n", result.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
    return;
  }
  fmt::print("{} tokens from {} bytes of text in {} documents\n",
             WithThousands(tokenizer.vocabulary()), WithThousands(report.text_bytes),
             WithThousands(report.documents));
  if (report.malformed_lines > 0) {
    fmt::print("{} malformed lines skipped, the first at {}\n",
               WithThousands(report.malformed_lines), report.first_malformed);
  }
  fmt::print("written to {} (tokenizer {})\n", arguments.out, tokenizer.hash());
}

// Arguments of encode and decode.
struct ConvertArguments {
  std::string tokenizer;
  std::string input = "-";
  bool json = false;
};

std::string ReadAll(const std::string& input) {
  std::string text;
  ByteSource source(input);
  while (source.Read(text)) {
    if (InterruptRequested()) throw Interrupted{"run the same command again"};
  }
  return text;
}

void RunEncode(const ConvertArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::Load(arguments.tokenizer);
  const std::vector<TokenId> ids = Encoder(tokenizer).Encode(ReadAll(arguments.input));
  if (arguments.json) {
    fmt::print("{}\n", Json(ids).dump());
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

// Ids between any characters that are no digits, so that both outputs of encode can be read back.
std::vector<TokenId> ParseIds(const std::string& text, const std::string& where) {
  constexpr const char* kSeparators = " \t\r\n,[]";
  std::vector<TokenId> ids;
  size_t begin = text.find_first_not_of(kSeparators);
  while (begin != std::string::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    TokenId id = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + end, id);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end) {
      throw Error({.what = fmt::format("\"{}\" is no token id", text.substr(begin, end - begin)),
                   .where = where == "-" ? "standard input" : where,
                   .expected = "whole numbers between spaces or commas"});
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

void RunDecode(const ConvertArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::Load(arguments.tokenizer);
  const std::string text = tokenizer.Decode(ParseIds(ReadAll(arguments.input), arguments.input));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void AddTrain(CLI::App& tokenizer) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App& verb = *tokenizer.add_subcommand(
      "train", "Learns a byte-level BPE tokenizer from text; any bytes can be encoded with it.");
  const FieldOptions add_options(verb);
  BpeTrainerOptions::VisitFields(arguments->options, add_options);
  CorpusOptions::VisitFields(arguments->corpus, add_options);
  verb.add_option("--out", arguments->out, "the tokenizer.json to write")->capture_default_str();
  verb.add_flag("--json", arguments->json, "print the result as JSON");
  AddExamples(verb, kTrainExamples);
  verb.callback([arguments] { RunTrain(*arguments); });
}

CLI::App& AddConvert(CLI::App& tokenizer, const char* name, const char* description,
                     const std::shared_ptr<ConvertArguments>& arguments) {
  CLI::App& verb = *tokenizer.add_subcommand(name, description);
  verb.add_option("--tokenizer", arguments->tokenizer, "the tokenizer.json to use")->required();
  verb.add_option("INPUT", arguments->input, "a file, or - for standard input")
      ->capture_default_str();
  return verb;
}

}  // namespace

void AddTokenizerVerb(CLI::App& program) {
  CLI::App& verb = *program.add_subcommand(
      "tokenizer", "Trains byte-level BPE tokenizers, encodes and decodes with them.");
  verb.require_subcommand(1);
  AddExamples(verb, kExamples);
  AddTrain(verb);

  const auto encode = std::make_shared<ConvertArguments>();
  CLI::App& encode_verb = AddConvert(verb, "encode", "Prints the token ids of a text.", encode);
  encode_verb.add_flag("--json", encode->json, "print the ids as a JSON list");
  AddExamples(encode_verb, kEncodeExamples);
  encode_verb.callback([encode] { RunEncode(*encode); });

  const auto decode = std::make_shared<ConvertArguments>();
  CLI::App& decode_verb = AddConvert(verb, "decode", "Prints the text of token ids.", decode);
  AddExamples(decode_verb, kDecodeExamples);
  decode_verb.callback([decode] { RunDecode(*decode); });
}

}  // namespace sandglass
