#include <fmt/format.h>

#include <memory>

#include "app/model_options.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/interrupt.h"
#include "infer/sampler.h"
#include "train/open_model.h"

namespace sandglass {
namespace {

struct GenerateFlags {
  std::string model;
  std::string prompt;
  int64_t tokens = 200;
  int threads = 0;
  WeightsKind weights = WeightsKind::kRaw;
  SamplingOptions sampling;
  bool json = false;
};

// The ids in front of the prompt. A model needs at least one id to go on from.
std::vector<TokenId> StartOfText(const ModelSource& source, const Tokenizer& tokenizer,
                                 bool empty_prompt) {
  if (source.text_start() == TextStart::kDocument) return {tokenizer.end_of_text()};
  std::vector<TokenId> ids = tokenizer.spec().begin;
  if (ids.empty() && empty_prompt) ids = {tokenizer.end_of_text()};
  return ids;
}

void RunGenerate(const GenerateFlags& flags) {
  constexpr int kPromptPiece = 64;  // tokens of the prompt that go through the model at a time
  constexpr int64_t kMaxTokens = 1 << 20;
  flags.sampling.Validate();
  const std::unique_ptr<ModelSource> source = OpenModel(flags.model, PrintNote, flags.weights);
  const std::optional<Tokenizer> found = source->LoadTokenizer();
  if (!found) {
    throw Error({.what = "the model has no tokenizer, so it cannot be given text",
                 .where = flags.model,
                 .remedy = "sandglass logits takes token ids"});
  }
  const Tokenizer& tokenizer = *found;
  std::vector<TokenId> ids = StartOfText(*source, tokenizer, flags.prompt.empty());
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
  const LoadedModel loaded = LoadModel(*source,
                                       {.purpose = Purpose::kEvaluate,
                                        .length = kPromptPiece,
                                        .cache_length = static_cast<int>(total_tokens)},
                                       SystemFor(flags.model, flags.threads));
  const int64_t context = source->context_length();
  if (context > 0 && total_tokens > context) {
    PrintNote(
        fmt::format("note: the model was trained on {} tokens of context; text beyond that "
                    "may degrade",
                    context));
  }

  std::vector<float> logits(source->config().vocabulary);
  Sampler sampler(flags.sampling);
  std::span<const TokenId> fresh = ids;
  if (!flags.json) Print(flags.prompt);
  for (int64_t i = 0; i < flags.tokens && !InterruptRequested(); ++i) {
    loaded.model->Decode(fresh, ViewOf(logits.data(), 1, std::ssize(logits)));
    // Ids beyond the tokenizer's are padding and were never seen in training.
    const TokenId next = sampler.Next(std::span(logits).first(tokenizer.vocabulary()));
    if (tokenizer.IsSpecial(next)) break;
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
  verb->add_option("MODEL", flags->model, "Run directory, Hugging Face directory or GGUF file")
      ->required();
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
  AddWeightsOption(*verb, flags->weights);
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
