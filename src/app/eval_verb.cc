#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/progress.h"
#include "eval/perplexity.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct EvalFlags {
  std::string run;
  std::string data;
  std::string split = "validation";
  int length = 0;
  int batch = 8;
  int threads = 0;
  bool json = false;
};

void RunEval(const EvalFlags& flags) {
  const RunConfig config = ReadRunConfig(flags.run);
  const PreparedData data = PreparedData::Open(flags.data.empty() ? config.data.path : flags.data);
  const TokenShard& shard = flags.split == "train" ? data.train : data.validation;
  shard.RequireTokenizer(Tokenizer::Load(TokenizerPath(flags.run)));
  const int length = flags.length > 0 ? flags.length : config.train.length;
  SystemOptions system = config.system;
  if (flags.threads > 0) system.threads = flags.threads;
  const TrainedModel trained = LoadTrainedModel(
      flags.run, {.purpose = Purpose::kEvaluate, .batch = flags.batch, .length = length}, system,
      PrintNote);
  Progress progress("eval", shard.tokens() - 1, "tokens");
  const Score score =
      ScoreStream(*trained.model, EvalWindows(shard, length), data.tokenizer.byte_counts(),
                  {.batch = flags.batch}, [&](int64_t tokens) { progress.Update(tokens); });
  progress.Finish();
  if (flags.json) {
    return PrintJson({{"checkpoint", trained.checkpoint},
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
                  "bits/byte   {:.4f} over {} bytes of text\n",
                  trained.checkpoint, flags.split, score.loss(), WithThousands(score.tokens),
                  length, score.perplexity(), score.bits_per_byte(), WithThousands(score.bytes)));
}

}  // namespace

void AddEvalVerb(CLI::App& program) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb =
      program.add_subcommand("eval", "Loss, perplexity and bits per byte of a trained model");
  verb->add_option("RUN", flags->run, "Run directory")->required();
  verb->add_option("--data", flags->data, "Prepared data [the run's own]");
  verb->add_option("--split", flags->split, "validation or train")
      ->check(CLI::IsMember({"validation", "train"}));
  verb->add_option("--length", flags->length, "Tokens of context [as trained]")
      ->check(CLI::PositiveNumber);
  verb->add_option("--batch", flags->batch, "Windows at a time; does not change the result")
      ->check(CLI::PositiveNumber);
  verb->add_option("--threads", flags->threads, "Threads [all]")->check(CLI::PositiveNumber);
  verb->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass eval runs/kjv-llama
  sandglass eval runs/kjv-llama --data data/other-text --json
)");
  verb->callback([flags] { RunEval(*flags); });
}

}  // namespace sandglass
