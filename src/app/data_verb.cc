// sandglass data: looks into what a run trains on.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "compare/compare.h"
#include "data/samples.h"
#include "train/run_directory.h"
#include "train/schedule.h"

namespace sandglass {
namespace {

struct ShowFlags {
  std::string run;
  std::vector<std::string> overrides;
  int64_t step = 0;
  int64_t seed = -1;
  bool json = false;
};

// The settings of a run directory, of a run file, or of a recipe's runs.
struct Order {
  DataOptions data;
  TrainOptions train;
};

Order OrderOf(const ShowFlags& flags) {
  if (std::filesystem::is_directory(flags.run)) {
    const RunConfig config = ReadRunConfig(flags.run);
    return {config.data, config.train};
  }
  const ConfigTree tree = LoadToml(flags.run);
  if (tree.values.contains("variant")) {
    const Recipe recipe = Recipe::FromTree(tree, flags.overrides);
    Order order{.train = recipe.train.options};
    order.train.seed = static_cast<uint64_t>(recipe.seeds.front());
    order.data.path =
        recipe.text.prepared.empty() ? "runs/" + recipe.name + "/data" : recipe.text.prepared;
    return order;
  }
  const RunConfig config = RunConfig::FromTree(tree, flags.overrides);
  config.train.Validate();
  return {config.data, config.train};
}

// Text on one line, whatever bytes it holds.
std::string OneLine(const std::string& text) {
  const std::string quoted =
      Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

void RunShow(const ShowFlags& flags) {
  Order order = OrderOf(flags);
  if (flags.seed >= 0) order.train.seed = static_cast<uint64_t>(flags.seed);
  const PreparedData data = PreparedData::Open(order.data.path);
  const int length = order.train.length;
  const TrainSamples samples(data.train, length, order.train.seed);
  std::vector<TokenId> ids(length), targets(length);
  Json list = Json::array();
  const int64_t first = SequencesBefore(order.train, flags.step);
  const int batch = BatchAt(order.train, flags.step);
  for (int b = 0; b < batch; ++b) {
    const int64_t position = first + b;
    const SampleRef ref = samples.At(position);
    samples.Fill(position, ids, targets);
    list.push_back({{"position", ref.position},
                    {"source", data.train.path()},
                    {"epoch", ref.epoch},
                    {"sample", ref.sample},
                    {"first_token", ref.first_token},
                    {"ids", ids},
                    {"targets", targets},
                    {"text", data.tokenizer.Decode(ids)}});
  }
  if (flags.json) {
    const Json json = {{"step", flags.step},
                       {"seed", order.train.seed},
                       {"batch", batch},
                       {"length", length},
                       {"samples", list}};
    // A sample may begin or end inside a character.
    return Print(json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n");
  }
  Print(fmt::format("step {}: {} sequences of {} tokens, seed {}\n", WithThousands(flags.step),
                    batch, length, order.train.seed));
  for (const Json& sample : list) {
    Print(fmt::format("\nposition {}  epoch {}  sample {}  tokens from {} of {}\n{}\n",
                      sample["position"].get<int64_t>(), sample["epoch"].get<int64_t>(),
                      sample["sample"].get<int64_t>(), sample["first_token"].get<int64_t>(),
                      sample["source"].get<std::string>(),
                      OneLine(sample["text"].get<std::string>())));
  }
}

void AddShow(CLI::App& data) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* verb = data.add_subcommand("show", "What a step trains on: sample ids and their text");
  verb->add_option("RUN", flags->run, "Run directory, run file or recipe")->required();
  verb->add_option("--step", flags->step, "Step, from 1, past or to come")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  verb->add_option("--seed", flags->seed, "Seed [the run's; a recipe's first]")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--set", flags->overrides, "Override a key of the file: --set train.batch=8")
      ->type_name("KEY=VALUE");
  verb->add_flag("--json", flags->json, "Print JSON, with token ids and targets");
  AddExamples(*verb, R"(
Examples:
  sandglass data show runs/kjv-llama --step 120
      the four sequences of step 120, as they were read
  sandglass data show recipes/kjv-run.toml --step 100000 --json
      a step that is still to come: the order depends on seed and position alone
)");
  verb->callback([flags] { RunShow(*flags); });
}

}  // namespace

void AddDataVerb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("data", "Look into what a run trains on");
  verb->require_subcommand(1);
  AddShow(*verb);
}

}  // namespace sandglass
