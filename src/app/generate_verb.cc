#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/interrupt.h"
#include "infer/sampler.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct GenerateFlags {
  std::string run;
  std::string prompt;
  int64_t tokens = 200;
  int threads = 0;
  SamplingOptions sampling;
  bool json = false;
};

void RunGenerate(const GenerateFlags& flags) {
  constexpr int kPromptPiece = 64;  // tokens of the prompt that go through the model at a time
  constexpr int64_t kMaxTokens = 1 << 20;
  flags.sampling.Validate();
  const RunConfig config = ReadRunConfig(flags.run);
  const Tokenizer tokenizer = Tokenizer::Load(TokenizerPath(flags.run));
  std::vector<TokenId> ids = {tokenizer.end_of_text()};
  Encoder(tokenizer).Encode(flags.prompt, ids);
  const int64_t prompt_tokens = std::ssize(ids);
  if (flags.tokens > kMaxTokens - prompt_tokens) {
    throw Error({.what = fmt::format("{} tokens after a prompt of {} are too many", flags.tokens,
                                     prompt_tokens),
                 .where = "--tokens",
                 .expected = fmt::format("at most {} tokens together", kMaxTokens),
                 .remedy = "lower --tokens or shorten the prompt"});
  }
  const int64_t total_tokens = prompt_tokens + flags.tokens;
  SystemOptions system = config.system;
  if (flags.threads > 0) system.threads = flags.threads;
  const TrainedModel trained = LoadTrainedModel(flags.run,
                                                {.purpose = Purpose::kEvaluate,
                                                 .length = kPromptPiece,
                                                 .cache_length = static_cast<int>(total_tokens)},
                                                system, PrintNote);
  if (total_tokens > config.train.length) {
    PrintNote(
        fmt::format("note: the model was trained on {} tokens of context; text beyond that "
                    "may degrade",
                    config.train.length));
  }

  std::vector<float> logits(trained.config.model.config.vocabulary);
  Sampler sampler(flags.sampling);
  std::span<const TokenId> fresh = ids;
  if (!flags.json) Print(flags.prompt);
  for (int64_t i = 0; i < flags.tokens && !InterruptRequested(); ++i) {
    trained.model->Decode(fresh, ViewOf(logits.data(), 1, std::ssize(logits)));
    // Ids beyond the tokenizer's are padding and were never seen in training.
    const TokenId next = sampler.Next(std::span(logits).first(tokenizer.vocabulary()));
    if (next == tokenizer.end_of_text()) break;
    if (!flags.json) Print(tokenizer.TextAfter(ids.back(), next));
    ids.push_back(next);
    fresh = std::span(ids).last(1);
  }
  const std::span<const TokenId> generated = std::span<const TokenId>(ids).subspan(prompt_tokens);
  if (!flags.json) return Print("\n");
  Json json = {{"prompt", flags.prompt},
               {"text", tokenizer.Decode(generated)},
               {"ids", std::vector<TokenId>(generated.begin(), generated.end())}};
  // A token may end inside a character: JSON gets a replacement mark there.
  Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

void AddGenerateVerb(CLI::App& program) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* verb = program.add_subcommand("generate", "Continue a text with a trained model");
  verb->add_option("RUN", flags->run, "Run directory")->required();
  verb->add_option("--prompt", flags->prompt, "Text to continue [none: starts a document]");
  verb->add_option("--tokens", flags->tokens, "Tokens to generate at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--temperature", flags->sampling.temperature, "0: the most likely token")
      ->capture_default_str();
  verb->add_option("--top-k", flags->sampling.top_k, "Only the k most likely tokens; 0: all")
      ->capture_default_str();
  verb->add_option("--top-p", flags->sampling.top_p, "Only the likeliest tokens that reach p")
      ->capture_default_str();
  verb->add_option("--seed", flags->sampling.seed, "The same seed gives the same text")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? text + " is negative; a seed is a whole number from 0" : "";
      })
      ->capture_default_str();
  verb->add_option("--threads", flags->threads, "Threads [all]")->check(CLI::PositiveNumber);
  verb->add_flag("--json", flags->json, "Print JSON with text and ids");
  AddExamples(*verb, R"(
Examples:
  sandglass generate runs/kjv-llama --prompt "In the beginning" --temperature 0.8 --top-p 0.95
  sandglass generate runs/kjv-llama --prompt "And God said" --temperature 0 --tokens 50 --json
)");
  verb->callback([flags] { RunGenerate(*flags); });
}

}  // namespace sandglass
