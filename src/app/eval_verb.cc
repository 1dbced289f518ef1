#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/model_options.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/progress.h"
#include "data/data_set.h"
#include "eval/perplexity.h"
#include "interop/gguf_tokenizer.h"
#include "train/open_model.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct EvalFlags {
  std::string model;
  std::string data;
  std::string split = "validation";
  int length = 0;
  int batch = 8;
  int threads = 0;
  WeightsKind weights = WeightsKind::kRaw;
  bool json = false;
};

// Context where nothing says otherwise: enough for a figure that longer ones change little.
constexpr int kUsualLength = 1024;

int LengthFor(const EvalFlags& flags, const ModelSource& source) {
  if (flags.length > 0) return flags.length;
  if (IsRunDirectory(flags.model) && source.text_start() == TextStart::kDocument) {
    return static_cast<int>(source.context_length());  // as trained
  }
  return source.context_length() > 0
             ? static_cast<int>(std::min<int64_t>(source.context_length(), kUsualLength))
             : kUsualLength;
}

DataSet OpenData(const EvalFlags& flags) {
  DataOptions options;
  if (IsRunDirectory(flags.model)) options = ReadRunConfig(flags.model).data;
  if (!flags.data.empty()) {
    const bool masking = options.document_masking;
    options = DataOptions{};
    options.path = flags.data;
    options.document_masking = masking;
  }
  if (options.path.empty() && options.sources.empty()) {
    throw Error({.what = "the model has no data of its own",
                 .where = flags.model,
                 .expected = "--data, a directory that `sandglass prepare` wrote with the model's "
                             "tokenizer"});
  }
  return DataSet::Open(options, LoadAnyTokenizer);
}

// The tokens must be those of the model.
void CheckTokens(const ModelSource& source, const DataSet& data) {
  const std::optional<Tokenizer> tokenizer = source.LoadTokenizer();
  if (tokenizer && data.tokenizer) {
    if (tokenizer->hash() == data.tokenizer->hash()) return;
    throw Error({.what = "the tokenizer of the model does not belong to the data",
                 .where = "--data",
                 .expected = "data that was prepared with the model's own tokenizer"});
  }
  if (data.vocabulary > source.config().vocabulary) {
    throw Error({.what = fmt::format("the data have {} ids, the model {}", data.vocabulary,
                                     source.config().vocabulary),
                 .where = "--data",
                 .expected = "data that was prepared with the model's own tokenizer"});
  }
  PrintNote("note: the model or the data have no tokenizer; the ids are taken to be the same");
}

void RunEval(const EvalFlags& flags) {
  const std::unique_ptr<ModelSource> source = OpenModel(flags.model, PrintNote, flags.weights);
  const DataSet data = OpenData(flags);
  CheckTokens(*source, data);
  const int length = LengthFor(flags, *source);
  const LoadedModel loaded =
      LoadModel(*source, {.purpose = Purpose::kEvaluate, .batch = flags.batch, .length = length},
                SystemFor(flags.model, flags.threads));
  const EvalWindows windows(flags.split == "train" ? data.train : data.validation, length);
  Progress progress("eval", windows.count() * length, "tokens");
  const Score score =
      ScoreStream(*loaded.model, windows, data.byte_counts(), {.batch = flags.batch},
                  [&](int64_t tokens) { progress.Update(tokens); });
  progress.Finish();
  if (flags.json) {
    return PrintJson({{"checkpoint", source->description()},
                      {"weights", EnumName(flags.weights)},
                      {"split", flags.split},
                      {"loss", score.loss()},
                      {"perplexity", score.perplexity()},
                      {"bits_per_byte", score.bits_per_byte()},
                      {"tokens", score.tokens},
                      {"bytes", score.bytes},
                      {"length", length}});
  }
  Print(
      fmt::format("{}  {}\n"
                  "loss        {:.4f} nats/token over {} tokens, each scored once, context {}\n"
                  "perplexity  {:.3f}\n"
                  "bits/byte   {}\n",
                  source->description(), flags.split, score.loss(), WithThousands(score.tokens),
                  length, score.perplexity(),
                  score.bytes > 0 ? fmt::format("{:.4f} over {} bytes of text",
                                                score.bits_per_byte(), WithThousands(score.bytes))
                                  : "not available: the data are ids without a tokenizer"));
}

}  // namespace

void AddEvalVerb(CLI::App& program) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb =
      program.add_subcommand("eval", "Loss, perplexity and bits per byte of a trained model");
  verb->add_option("MODEL", flags->model, "Run directory, Hugging Face directory or GGUF file")
      ->required();
  verb->add_option("--data", flags->data, "Prepared data [the run's own]");
  verb->add_option("--split", flags->split, "validation or train")
      ->check(CLI::IsMember({"validation", "train"}));
  verb->add_option("--length", flags->length,
                   "Tokens of context [as trained; at most 1024 for other models]")
      ->check(CLI::PositiveNumber);
  verb->add_option("--batch", flags->batch, "Windows at a time; does not change the result")
      ->check(CLI::PositiveNumber);
  AddWeightsOption(*verb, flags->weights);
  verb->add_option("--threads", flags->threads, "Threads [all]")->check(CLI::PositiveNumber);
  verb->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass eval runs/kjv-llama
  sandglass eval runs/kjv-llama --data data/other-text --json
  sandglass eval runs/kjv-llama --weights average
      the averaged weights of a run with train.average_decay
  sandglass eval models/SmolLM2.gguf --data data/kjv-smollm2
      a model of another program, on data prepared with its tokenizer
)");
  verb->callback([flags] { RunEval(*flags); });
}

}  // namespace sandglass
