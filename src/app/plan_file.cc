#include "app/plan_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/format.h"
#include "compare/price.h"
#include "interop/gguf_tokenizer.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct Planned {
  std::vector<TrainingPrice> prices;
  std::vector<int64_t> seeds;
  TrainOptions train;
};

// A run file may leave the vocabulary to the tokenizer of its data.
RunConfig WithVocabulary(RunConfig config, const std::string& path) {
  int& vocabulary = config.model.config.vocabulary;
  if (vocabulary > 0) return config;
  if (config.data.sources.empty() && !std::filesystem::exists(config.data.path)) {
    throw Error({.what = "the size of the vocabulary is not known: there is no data at \"" +
                         config.data.path + "\" yet",
                 .where = path,
                 .remedy = "say it: --set model.vocabulary=50304"});
  }
  vocabulary = static_cast<int>(DataSet::Open(config.data, LoadAnyTokenizer).vocabulary);
  return config;
}

Planned Read(const PlanFileArguments& arguments) {
  const ConfigTree tree = LoadToml(arguments.path);
  if (tree.values.contains("variant")) {
    const Recipe recipe = Recipe::FromTree(tree, arguments.overrides);
    return {PricesOf(recipe), recipe.seeds, recipe.train.options};
  }
  const RunConfig config =
      WithVocabulary(RunConfig::FromTree(tree, arguments.overrides), arguments.path);
  return {{PriceOf(config)}, {static_cast<int64_t>(config.train.seed)}, config.train};
}

std::string Days(double days) {
  if (days < 1) return HumanDuration(days * 86400);
  return days < 10'000 ? fmt::format("{:.1f} days", days)
                       : fmt::format("{} days", WithThousands(std::llround(days)));
}

void PrintTable(const Planned& planned, double flop_per_s) {
  constexpr int kLabelWidth = 34;
  constexpr int kColumnWidth = 28;
  struct Row {
    std::string label;
    std::function<std::string(const TrainingPrice&)> text;
  };
  const auto count = [](auto value) { return WithThousands(static_cast<int64_t>(value)); };
  const auto bytes = [](int64_t value) { return HumanBytes(static_cast<double>(value)); };
  using Price = const TrainingPrice&;
  std::vector<Row> rows = {
      {"shape", [](Price p) { return p.config.shape.ToString(); }},
      {"matrix parameters", [&](Price p) { return count(p.parameters.matrices()); }},
      {"parameters in all", [&](Price p) { return count(p.parameters.total()); }},
      {fmt::format("steps of {} x {} tokens", count(planned.train.batch),
                   count(planned.train.length)),
       [&](Price p) { return count(p.steps); }},
      {"tokens", [&](Price p) { return count(p.tokens()); }},
      {"FLOPs per token", [&](Price p) { return fmt::format("{:.4g}", p.flops_per_token); }},
      {"FLOPs", [&](Price p) { return fmt::format("{:.4g}", p.flops()); }}};
  if (flop_per_s > 0) {
    rows.push_back({fmt::format("time at {:.4g} FLOP/s", flop_per_s),
                    [&](Price p) { return Days(p.days(flop_per_s)); }});
  }
  rows.push_back({"memory: weights, f32", [&](Price p) { return bytes(p.memory.weights); }});
  if (planned.prices.front().memory.operands > 0) {
    rows.push_back({"  rounded to bf16", [&](Price p) { return bytes(p.memory.operands); }});
  }
  const std::vector<Row> memory = {
      {"  gradients", [&](Price p) { return bytes(p.memory.gradients); }},
      {"  optimizer", [&](Price p) { return bytes(p.memory.optimizer); }},
      {"  averaged weights", [&](Price p) { return bytes(p.average_bytes); }},
      {fmt::format("  activations of {} x {}", planned.train.effective_micro_batch(),
                   count(planned.train.length)),
       [&](Price p) { return bytes(p.memory.activations); }},
      {"  the program and its libraries", [&](Price) { return bytes(kProgramBytes); }},
      {"  copy for background saves", [&](Price p) { return bytes(p.snapshot_bytes); }},
      {"memory in all", [&](Price p) { return bytes(p.memory_bytes()); }}};
  rows.insert(rows.end(), memory.begin(), memory.end());

  std::string table = fmt::format("{:{}}", "", kLabelWidth);
  for (Price price : planned.prices) table += fmt::format("{:>{}}", price.name, kColumnWidth);
  for (const Row& row : rows) {
    table += fmt::format("\n{:{}}", row.label, kLabelWidth);
    for (Price price : planned.prices)
      table += fmt::format("{:>{}}", row.text(price), kColumnWidth);
  }
  Print(table + "\n");
  if (planned.prices.size() == 1) return;
  double flops = 0.0;
  for (Price price : planned.prices) flops += price.flops();
  flops *= static_cast<double>(planned.seeds.size());
  std::string all =
      fmt::format("\nall {} variants, {} {}: {:.4g} FLOPs", planned.prices.size(),
                  planned.seeds.size(), planned.seeds.size() == 1 ? "seed" : "seeds", flops);
  if (flop_per_s > 0) all += ", " + Days(flops / flop_per_s / 86400);
  Print(all + "\n");
}

Json ToJson(const Planned& planned, double flop_per_s) {
  Json runs = Json::array();
  for (const TrainingPrice& price : planned.prices) {
    Json run = {{"name", price.name},
                {"shape", price.config.shape.ToString()},
                {"matrices", price.parameters.matrices()},
                {"non_embedding", price.parameters.non_embedding()},
                {"total", price.parameters.total()},
                {"steps", price.steps},
                {"tokens", static_cast<int64_t>(price.tokens())},
                {"flops_per_token", price.flops_per_token},
                {"flops", price.flops()},
                {"memory_bytes",
                 {{"weights", price.memory.weights},
                  {"operands", price.memory.operands},
                  {"gradients", price.memory.gradients},
                  {"optimizer", price.memory.optimizer},
                  {"average", price.average_bytes},
                  {"activations", price.memory.activations},
                  {"program", kProgramBytes},
                  {"snapshot", price.snapshot_bytes},
                  {"total", price.memory_bytes()}}}};
    if (flop_per_s > 0) run["days"] = price.days(flop_per_s);
    runs.push_back(run);
  }
  Json json = {{"runs", runs}, {"seeds", planned.seeds}};
  if (flop_per_s > 0) json["flop_per_s"] = flop_per_s;
  return json;
}

}  // namespace

void PlanFile(const PlanFileArguments& arguments) {
  const Planned planned = Read(arguments);
  if (arguments.format == OutputFormat::kJson) {
    return PrintJson(ToJson(planned, arguments.flop_per_s));
  }
  PrintTable(planned, arguments.flop_per_s);
}

}  // namespace sandglass
