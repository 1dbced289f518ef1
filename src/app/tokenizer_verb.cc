// sandglass tokenizer: trains BPE tokenizers, converts those of other programs, and shows what they
// do.
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <cstdio>
#include <memory>

#include "app/field_options.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "data/bpe_trainer.h"
#include "data/byte_source.h"
#include "interop/gguf_tokenizer.h"

namespace sandglass {

enum class SpecialOutput { kHide, kShow };
enum class Ends { kConfigured, kNone };

template <>
struct EnumNames<SpecialNames> {
  static constexpr std::array<std::pair<SpecialNames, const char*>, 2> kNames{
      {{SpecialNames::kText, "text"}, {SpecialNames::kIds, "parse"}}};
};
template <>
struct EnumNames<SpecialOutput> {
  static constexpr std::array<std::pair<SpecialOutput, const char*>, 2> kNames{
      {{SpecialOutput::kHide, "hide"}, {SpecialOutput::kShow, "show"}}};
};
template <>
struct EnumNames<Ends> {
  static constexpr std::array<std::pair<Ends, const char*>, 2> kNames{
      {{Ends::kConfigured, "configured"}, {Ends::kNone, "none"}}};
};

namespace {

constexpr const char* kExamples = R"(
Examples:
  sandglass tokenizer train --vocabulary 4096 --out tokenizer.json book.txt
  echo "In the beginning" | sandglass tokenizer encode --tokenizer tokenizer.json
  echo "329 266 1079" | sandglass tokenizer decode --tokenizer tokenizer.json
  sandglass tokenizer show cl100k_base.tiktoken
  sandglass tokenizer convert tokenizer.model --out tokenizer.json
)";

constexpr const char* kTrainExamples = R"(
Examples:
  sandglass tokenizer train --vocabulary 4096 --out tokenizer.json book.txt
  sandglass tokenizer train --vocabulary 32768 --pattern cl100k --out t.json web-*.jsonl.zst
  bible -f gen1:1-rev22:21 | sandglass tokenizer train --documents line --out t.json -

The file is a Hugging Face tokenizer.json. Training twice on the same text gives the same file.
)";

constexpr const char* kTokenizerHelp =
    "tokenizer.json, rank file of tiktoken, Tekken file, SentencePiece .model, or GGUF";

constexpr const char* kEncodeExamples = R"(
Examples:
  echo "In the beginning" | sandglass tokenizer encode --tokenizer tokenizer.json
  sandglass tokenizer encode --tokenizer tokenizer.json --json book.txt
  sandglass tokenizer encode --tokenizer model.gguf --special parse prompt.txt
  sandglass tokenizer encode --tokenizer tokenizer.json --jsonl texts.jsonl > ids.jsonl
)";

constexpr const char* kDecodeExamples = R"(
Examples:
  echo "329 266 1079" | sandglass tokenizer decode --tokenizer tokenizer.json
  sandglass tokenizer decode --tokenizer tokenizer.json --jsonl ids.jsonl > texts.jsonl
)";

constexpr const char* kShowExamples = R"(
Examples:
  sandglass tokenizer show tokenizer.json
  sandglass tokenizer show model.gguf --json
)";

constexpr const char* kConvertExamples = R"(
Examples:
  sandglass tokenizer convert cl100k_base.tiktoken --out tokenizer.json
  sandglass tokenizer convert model.gguf --out tokenizer.json

The file is a Hugging Face tokenizer.json that gives the same ids.
)";

constexpr const char* kBenchExamples = R"(
Examples:
  sandglass tokenizer bench --tokenizer tokenizer.json book.txt
  sandglass tokenizer bench --tokenizer tokenizer.json --documents line --json web.jsonl
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
  bool json_lines = false;
  SpecialNames special = SpecialNames::kText;
  Ends ends = Ends::kConfigured;
  SpecialOutput shown = SpecialOutput::kHide;
};

std::string ReadAll(const std::string& input) {
  std::string text;
  ByteSource source(input);
  while (source.Read(text)) {
    if (InterruptRequested()) throw Interrupted{"run the same command again"};
  }
  return text;
}

// Calls use(line, number) for each line of the input, without its end, in bounded memory.
template <class Use>
void ForEachLine(const std::string& input, Use&& use) {
  ByteSource source(input);
  std::string buffer;
  int64_t number = 0;
  bool more = true;
  while (more) {
    more = source.Read(buffer);
    size_t begin = 0;
    for (size_t end; (end = buffer.find('\n', begin)) != std::string::npos; begin = end + 1) {
      use(std::string_view(buffer).substr(begin, end - begin), ++number);
    }
    buffer.erase(0, begin);
    if (InterruptRequested()) throw Interrupted{"run the same command again"};
  }
  if (!buffer.empty()) use(buffer, ++number);
}

Json ParseLine(std::string_view line, const std::string& where) {
  Json value = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    throw Error({.what = "not a line of JSON", .where = where, .expected = "JSON lines"});
  }
  return value;
}

std::string NameOf(const Tokenizer& tokenizer, TokenId id) {
  return fmt::format("{} ({})", tokenizer.spec().tokens[id], id);
}

std::string NamesOf(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> names;
  for (const TokenId id : ids) names.push_back(NameOf(tokenizer, id));
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<TokenId> EncodeAs(Encoder& encoder, std::string_view text,
                              const ConvertArguments& arguments) {
  return arguments.ends == Ends::kConfigured ? encoder.EncodeWithEnds(text, arguments.special)
                                             : encoder.Encode(text, arguments.special);
}

void EncodeLines(const Tokenizer& tokenizer, const ConvertArguments& arguments) {
  Encoder encoder(tokenizer);
  ForEachLine(arguments.input, [&](std::string_view line, int64_t number) {
    const std::string where = fmt::format("{}:{}", arguments.input, number);
    const Json value = ParseLine(line, where);
    const Json* text = &value;
    if (value.is_object() && value.contains("text")) text = &value["text"];
    if (!text->is_string()) {
      throw Error({.what = "the line holds no text",
                   .where = where,
                   .expected = "a JSON string, or an object with one under \"text\""});
    }
    const auto ids = EncodeAs(encoder, text->get_ref<const std::string&>(), arguments);
    fmt::print("[{}]\n", fmt::join(ids, ","));
  });
}

void RunEncode(const ConvertArguments& arguments) {
  const Tokenizer tokenizer = LoadAnyTokenizer(arguments.tokenizer);
  if (arguments.ends == Ends::kConfigured) {
    const auto& [begin, end] = std::tie(tokenizer.spec().begin, tokenizer.spec().end);
    const auto note = [&](const std::vector<TokenId>& ids, const char* place) {
      if (ids.empty()) return;
      PrintNote(fmt::format("note: {} stands {} the text, as the tokenizer is configured",
                            NamesOf(tokenizer, ids), place));
    };
    note(begin, "before");
    note(end, "behind");
  }
  if (arguments.json_lines) return EncodeLines(tokenizer, arguments);
  Encoder encoder(tokenizer);
  const std::vector<TokenId> ids = EncodeAs(encoder, ReadAll(arguments.input), arguments);
  if (arguments.json) {
    fmt::print("{}\n", Json(ids).dump());
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
}

// Ids between any characters that are no digits, so that both outputs of encode can be read back.
std::vector<TokenId> ParseIds(std::string_view text, const std::string& where) {
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

std::string DecodeAs(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     SpecialOutput shown) {
  if (shown == SpecialOutput::kHide) return tokenizer.Decode(ids);
  std::string text;
  TokenId previous = -1;
  for (const TokenId id : ids) {
    text += tokenizer.TextAfter(previous, id);
    if (tokenizer.IsSpecial(id)) text += tokenizer.spec().tokens[id];
    previous = id;
  }
  return text;
}

void RunDecode(const ConvertArguments& arguments) {
  const Tokenizer tokenizer = LoadAnyTokenizer(arguments.tokenizer);
  if (!arguments.json_lines) {
    return Print(
        DecodeAs(tokenizer, ParseIds(ReadAll(arguments.input), arguments.input), arguments.shown));
  }
  ForEachLine(arguments.input, [&](std::string_view line, int64_t number) {
    const auto ids = ParseIds(line, fmt::format("{}:{}", arguments.input, number));
    const Json text = DecodeAs(tokenizer, ids, arguments.shown);
    // A token may end inside a character: JSON gets a replacement mark there.
    fmt::print("{}\n", text.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  });
}

const char* KindOf(const TokenizerSpec& spec) {
  return spec.symbols == Symbols::kBytes ? "byte-level BPE" : "BPE with byte fallback";
}

const char* NormalizationName(Normalization form) {
  constexpr const char* kNames[] = {"none", "NFC", "NFKC"};
  return kNames[static_cast<int>(form)];
}

void RunShow(const std::string& path, OutputFormat format) {
  const Tokenizer tokenizer = LoadAnyTokenizer(path);
  const TokenizerSpec& spec = tokenizer.spec();
  std::vector<TokenId> special;
  std::vector<TokenId> text;
  for (const AddedToken& added : spec.added) (added.special ? special : text).push_back(added.id);
  if (format == OutputFormat::kJson) {
    Json names = Json::object();
    for (const TokenId id : special) names[spec.tokens[id]] = id;
    return PrintJson({{"kind", KindOf(spec)},
                      {"vocabulary", tokenizer.vocabulary()},
                      {"merges", spec.merges.size()},
                      {"normalization", NormalizationName(spec.normalization)},
                      {"splits", spec.splits},
                      {"begin", spec.begin},
                      {"end", spec.end},
                      {"special", names},
                      {"hash", tokenizer.hash()}});
  }
  const auto listed = [&](const std::vector<TokenId>& ids) {
    constexpr size_t kShown = 8;
    const size_t shown = std::min(ids.size(), kShown);
    std::string out =
        NamesOf(tokenizer, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown)});
    if (ids.size() > shown) out += fmt::format(" and {} more", ids.size() - shown);
    return ids.empty() ? std::string("none") : out;
  };
  Print(
      fmt::format("kind           {}\n"
                  "vocabulary     {} ids, {} merges\n"
                  "normalization  {}\n",
                  KindOf(spec), WithThousands(tokenizer.vocabulary()),
                  WithThousands(std::ssize(spec.merges)), NormalizationName(spec.normalization)));
  for (const std::string& regex : spec.splits) Print(fmt::format("split          {}\n", regex));
  Print(fmt::format(
      "before a text  {}\n"
      "behind a text  {}\n"
      "special        {}\n"
      "always ids     {}\n"
      "hash           {}\n",
      listed(spec.begin), listed(spec.end), listed(special), listed(text), tokenizer.hash()));
}

void RunConvert(const std::string& path, const std::string& out) {
  const Tokenizer tokenizer = LoadAnyTokenizer(path);
  tokenizer.Save(out);
  Print(fmt::format("{} tokens written to {} (tokenizer {})\n",
                    WithThousands(tokenizer.vocabulary()), out, tokenizer.hash()));
}

struct BenchArguments {
  std::string tokenizer;
  CorpusOptions corpus;
  bool json = false;
};

// Time that this thread has spent computing.
double ThreadSeconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void RunBench(const BenchArguments& arguments) {
  const Tokenizer tokenizer = LoadAnyTokenizer(arguments.tokenizer);
  CorpusReader corpus(arguments.corpus);
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  double seconds = 0;
  int64_t tokens = 0;
  uint64_t hash = 0;
  while (const auto documents = corpus.NextBlock()) {
    ids.clear();
    const double begin = ThreadSeconds();
    for (const std::string& document : *documents) encoder.Encode(document, ids);
    seconds += ThreadSeconds() - begin;
    tokens += std::ssize(ids);
    hash =
        HashBytes({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)}, hash);
    if (InterruptRequested()) throw Interrupted{"run the same command again"};
  }
  const auto bytes = static_cast<double>(corpus.report().text_bytes);
  if (arguments.json) {
    return PrintJson({{"bytes", corpus.report().text_bytes},
                      {"tokens", tokens},
                      {"cpu_seconds", seconds},
                      {"megabytes_per_s", bytes / seconds / 1e6},
                      {"ids_hash", HashHex(hash)}});
  }
  Print(fmt::format("{} bytes, {} tokens in {:.3f} s of one thread: {:.1f} MB/s (ids {})\n",
                    WithThousands(corpus.report().text_bytes), WithThousands(tokens), seconds,
                    bytes / seconds / 1e6, HashHex(hash)));
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

CLI::App& AddCoding(CLI::App& tokenizer, const char* name, const char* description,
                    const std::shared_ptr<ConvertArguments>& arguments) {
  CLI::App& verb = *tokenizer.add_subcommand(name, description);
  verb.add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  verb.add_option("INPUT", arguments->input, "a file, or - for standard input")
      ->capture_default_str();
  return verb;
}

void AddEncode(CLI::App& tokenizer) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App& verb = AddCoding(tokenizer, "encode", "Prints the token ids of a text.", arguments);
  const FieldOptions add_options(verb);
  add_options("special", arguments->special,
              "what the name of a special token in the text is: text, or parse (its id)");
  add_options("bos", arguments->ends,
              "special tokens around the text: configured (as the tokenizer says), or none");
  verb.add_flag("--jsonl", arguments->json_lines,
                "the input is JSON lines, strings or objects with \"text\"; print a list for each");
  verb.add_flag("--json", arguments->json, "print the ids as a JSON list");
  AddExamples(verb, kEncodeExamples);
  verb.callback([arguments] { RunEncode(*arguments); });
}

void AddDecode(CLI::App& tokenizer) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App& verb = AddCoding(tokenizer, "decode", "Prints the text of token ids.", arguments);
  const FieldOptions add_options(verb);
  add_options("special", arguments->shown, "the names of special tokens: hide or show");
  verb.add_flag("--jsonl", arguments->json_lines,
                "the input is lines of ids; print a JSON string for each");
  AddExamples(verb, kDecodeExamples);
  verb.callback([arguments] { RunDecode(*arguments); });
}

void AddShow(CLI::App& tokenizer) {
  struct Arguments {
    std::string path;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& verb = *tokenizer.add_subcommand("show", "Says what a tokenizer is and does.");
  verb.add_option("TOKENIZER", arguments->path, kTokenizerHelp)->required();
  verb.add_flag("--json", arguments->json, "print JSON");
  AddExamples(verb, kShowExamples);
  verb.callback([arguments] {
    RunShow(arguments->path, arguments->json ? OutputFormat::kJson : OutputFormat::kText);
  });
}

void AddConvert(CLI::App& tokenizer) {
  struct Arguments {
    std::string path;
    std::string out = "tokenizer.json";
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& verb = *tokenizer.add_subcommand(
      "convert", "Writes the tokenizer of another program as a tokenizer.json.");
  verb.add_option("TOKENIZER", arguments->path, kTokenizerHelp)->required();
  verb.add_option("--out", arguments->out, "the tokenizer.json to write")->capture_default_str();
  AddExamples(verb, kConvertExamples);
  verb.callback([arguments] { RunConvert(arguments->path, arguments->out); });
}

void AddBench(CLI::App& tokenizer) {
  const auto arguments = std::make_shared<BenchArguments>();
  CLI::App& verb = *tokenizer.add_subcommand(
      "bench", "Measures how fast one thread encodes text, in its own CPU time.");
  verb.add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  const FieldOptions add_options(verb);
  CorpusOptions::VisitFields(arguments->corpus, add_options);
  verb.add_flag("--json", arguments->json, "print JSON");
  AddExamples(verb, kBenchExamples);
  verb.callback([arguments] { RunBench(*arguments); });
}

}  // namespace

void AddTokenizerVerb(CLI::App& program) {
  CLI::App& verb = *program.add_subcommand(
      "tokenizer", "Trains BPE tokenizers, converts others, encodes and decodes.");
  verb.require_subcommand(1);
  AddExamples(verb, kExamples);
  AddTrain(verb);
  AddEncode(verb);
  AddDecode(verb);
  AddShow(verb);
  AddConvert(verb);
  AddBench(verb);
}

}  // namespace sandglass
