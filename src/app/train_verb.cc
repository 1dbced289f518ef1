#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/interrupt.h"
#include "train/trainer.h"

namespace sandglass {
namespace {

struct TrainFlags {
  std::string config_path;
  std::string out;
  std::string precision;
  std::vector<std::string> overrides;
  bool fresh = false;
  bool json = false;
  bool dump_config = false;
  bool list_keys = false;
};

void PrintResult(const RunResult& result, const std::string& directory) {
  const int64_t spikes = result.spikes.value_or(0);
  if (result.skipped_steps + spikes > 0) {
    Print(fmt::format("trouble          {} steps skipped, {} loss spikes, {} rewinds\n",
                      WithThousands(result.skipped_steps), WithThousands(spikes),
                      WithThousands(result.rewinds.value_or(0))));
  }
  Print(
      fmt::format("validation loss  {:.4f} nats/token   perplexity {:.3f}   {:.4f} bits/byte\n"
                  "{}"
                  "trained          {} tokens in {} steps, {:.0f} tokens/s, {}\n"
                  "peak memory      {}\n"
                  "run directory    {}\n",
                  result.validation_loss, result.perplexity, result.bits_per_byte,
                  result.average_validation_loss
                      ? fmt::format("averaged weights {:.4f} nats/token   {:.4f} bits/byte\n",
                                    *result.average_validation_loss, *result.average_bits_per_byte)
                      : "",
                  WithThousands(result.tokens), WithThousands(result.steps), result.tokens_per_s,
                  HumanDuration(result.train_seconds),
                  HumanBytes(static_cast<double>(result.peak_memory_bytes)), directory));
}

void RunTrain(const TrainFlags& flags) {
  if (flags.list_keys) return PrintKeys(DescribeFields<RunConfig>());
  std::vector<std::string> overrides = flags.overrides;
  if (!flags.precision.empty()) overrides.push_back("train.precision=" + flags.precision);
  const RunConfig config = RunConfig::FromTree(LoadToml(flags.config_path), overrides);
  if (flags.dump_config) return Print(ToToml(WriteFields(config)));
  const std::string directory = flags.out.empty() ? "runs/" + config.name : flags.out;
  const auto backend = config.system.MakeBackend();
  PrintNote(DescribeCompute(*backend, config.train.precision));
  const std::optional<RunResult> result =
      Train(config, directory, flags.fresh ? ExistingRun::kDiscard : ExistingRun::kContinue,
            {.note = PrintNote});
  if (!result) throw Interrupted{"saved; the same command continues"};
  if (flags.json) {
    Json json = WriteFields(*result);
    json["run_directory"] = directory;
    return PrintJson(json);
  }
  PrintResult(*result, directory);
}

}  // namespace

void AddTrainVerb(CLI::App& program) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* verb = program.add_subcommand("train", "Train one model as a run file says");
  verb->add_option("RUN_FILE", flags->config_path, "TOML run file; --keys lists what it may say");
  verb->add_option("--set", flags->overrides, "Override a key: --set train.batch=8 (repeatable)")
      ->type_name("KEY=VALUE");
  verb->add_option("--out", flags->out, "Run directory [runs/<name>]");
  verb->add_option("--precision", flags->precision, "auto, f32 or bf16; --set train.precision=...");
  verb->add_flag("--fresh", flags->fresh, "Discard a run that is there instead of continuing it");
  verb->add_flag("--dump-config", flags->dump_config, "Print the resolved run file and stop");
  verb->add_flag("--keys", flags->list_keys, "List every key with its default and stop");
  verb->add_flag("--json", flags->json, "Print the result as JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass train recipes/kjv-run.toml
      trains, or continues where it stopped (Ctrl-C saves first)
  sandglass train recipes/kjv-run.toml --set model.shape=L4-d128-a4x32-f4x128 --out runs/k4
      the same run with another shape
  sandglass train --keys
      every key of a run file, with its default

A run file:
  name = "kjv-llama"
  [model]
  family = "llama"
  shape = "L4-d128-a4x32-f1x512"
  [data]
  path = "data/kjv"
  [train]
  tokens = 1e6
)");
  verb->callback([flags] {
    if (flags->config_path.empty() && !flags->list_keys) {
      throw CLI::RequiredError("RUN_FILE");
    }
    RunTrain(*flags);
  });
}

}  // namespace sandglass
