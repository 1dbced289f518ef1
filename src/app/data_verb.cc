// sandglass data: looks into what a run trains on.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "compare/compare.h"
#include "data/check.h"
#include "data/data_set.h"
#include "data/samples.h"
#include "interop/gguf_tokenizer.h"
#include "train/metrics.h"
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

// The settings of a run directory, of a run file, or of a recipe's runs; and what the run recorded.
struct Order {
  DataOptions data;
  TrainOptions train;
  RunMetrics metrics;
};

Order OrderOf(const std::string& run, const std::vector<std::string>& overrides) {
  if (std::filesystem::is_directory(run)) {
    const RunConfig config = ReadRunConfig(run);
    const bool recorded = std::filesystem::exists(MetricsPath(run));
    return {config.data, config.train, recorded ? ReadMetrics(run) : RunMetrics()};
  }
  const ConfigTree tree = LoadToml(run);
  if (tree.values.contains("variant")) {
    const Recipe recipe = Recipe::FromTree(tree, overrides);
    Order order{.train = recipe.train.options};
    order.train.seed = static_cast<uint64_t>(recipe.seeds.front());
    order.data.path =
        recipe.text.prepared.empty() ? "runs/" + recipe.name + "/data" : recipe.text.prepared;
    return order;
  }
  const RunConfig config = RunConfig::FromTree(tree, overrides);
  config.train.Validate();
  return {config.data, config.train, {}};
}

// Throws Error for a step that a branch did not do itself.
StepPosition PositionIn(const Order& order, const ShowFlags& flags) {
  const std::vector<StepMetrics>& steps = order.metrics.steps;
  if (!order.train.branch_from.empty() && !steps.empty() && flags.step < steps.front().step) {
    throw Error({.what = fmt::format("step {} was done by the run that this one is a branch of",
                                     flags.step),
                 .where = flags.run,
                 .expected = fmt::format("a step from {} on", steps.front().step),
                 .remedy = "ask for it in the run of " + order.train.branch_from});
  }
  return PositionOf(flags.step, order.train, order.metrics);
}

// Text on one line, whatever bytes it holds.
std::string OneLine(const std::string& text) {
  const std::string quoted =
      Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

void RunShow(const ShowFlags& flags) {
  Order order = OrderOf(flags.run, flags.overrides);
  if (flags.seed >= 0) order.train.seed = static_cast<uint64_t>(flags.seed);
  const DataSet data = DataSet::Open(order.data, LoadAnyTokenizer);
  const int length = order.train.length;
  const TrainSamples samples(data.train, length, order.train.seed);
  const auto [first, passed_over] = PositionIn(order, flags);
  const int batch = BatchAt(order.train, flags.step);
  std::vector<std::vector<TokenId>> ids(batch, std::vector<TokenId>(length)), targets = ids;
  std::vector<std::vector<int32_t>> starts(batch, std::vector<int32_t>(length));
  const auto begin = std::chrono::steady_clock::now();
  for (int b = 0; b < batch; ++b) samples.Fill(first + b, ids[b], targets[b], starts[b]);
  const std::chrono::duration<double> read = std::chrono::steady_clock::now() - begin;
  Json list = Json::array();
  for (int b = 0; b < batch; ++b) {
    const SampleRef ref = samples.At(first + b);
    list.push_back({{"position", ref.position},
                    {"source", data.train[static_cast<size_t>(ref.source)].stream->path()},
                    {"epoch", ref.epoch},
                    {"sample", ref.sample},
                    {"first_token", ref.first_token},
                    {"ids", ids[b]},
                    {"targets", targets[b]}});
    if (samples.within_documents()) list.back()["starts"] = starts[b];
    if (data.tokenizer) list.back()["text"] = data.tokenizer->Decode(ids[b]);
  }
  if (flags.json) {
    const Json json = {
        {"step", flags.step}, {"seed", order.train.seed},     {"batch", batch},
        {"length", length},   {"read_seconds", read.count()}, {"passed_over", passed_over},
        {"samples", list}};
    // A sample may begin or end inside a character.
    return Print(json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n");
  }
  Print(fmt::format("step {}: {} sequences of {} tokens, seed {}, read in {:.0f} us\n",
                    WithThousands(flags.step), batch, length, order.train.seed,
                    1e6 * read.count()));
  if (passed_over > 0) {
    Print(fmt::format("{} sequences before it were passed over after loss spikes\n",
                      WithThousands(passed_over)));
  }
  for (const Json& sample : list) {
    const std::string text =
        sample.contains("text") ? OneLine(sample["text"].get<std::string>()) : sample["ids"].dump();
    Print(fmt::format("\nposition {}  epoch {}  sample {}  tokens from {} of {}\n{}\n",
                      sample["position"].get<int64_t>(), sample["epoch"].get<int64_t>(),
                      sample["sample"].get<int64_t>(), sample["first_token"].get<int64_t>(),
                      sample["source"].get<std::string>(), text));
  }
}

struct CheckFlags {
  std::string data;
  std::vector<std::string> overrides;
  CheckOptions options;
  bool json = false;
};

Json ReportJson(const CheckReport& report, const CheckOptions& options) {
  Json examples = Json::array();
  for (const DuplicateDocument& example : report.examples) {
    examples.push_back({{"stream", example.stream},
                        {"document", example.document},
                        {"same_as", example.same_as},
                        {"same_document", example.same_document}});
  }
  return {{"train_documents", report.train_documents},
          {"validation_documents", report.validation_documents},
          {"train_repeats", report.train_repeats},
          {"validation_repeats", report.validation_repeats},
          {"shared_documents", report.shared_documents},
          {"passage_tokens", options.passage},
          {"validation_passages", report.validation_passages},
          {"shared_passages", report.shared_passages},
          {"passes", report.passes},
          {"examples", examples}};
}

void RunCheck(const CheckFlags& flags) {
  DataOptions options;
  if (std::filesystem::is_directory(flags.data) && !IsRunDirectory(flags.data)) {
    options.path = flags.data;
  } else {
    options = OrderOf(flags.data, flags.overrides).data;
  }
  options.document_masking = true;  // separators must be known
  const DataSet data = DataSet::Open(options, LoadAnyTokenizer);
  const CheckReport report = CheckData(data.train, data.validation, flags.options);
  if (flags.json) {
    return Print(ReportJson(report, flags.options)
                     .dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
                 "\n");
  }
  const auto line = [](const char* what, int64_t count, int64_t of) {
    Print(fmt::format("{:<54}{:>12} of {}\n", what, WithThousands(count), WithThousands(of)));
  };
  line("training documents that repeat another", report.train_repeats, report.train_documents);
  line("validation documents that repeat another", report.validation_repeats,
       report.validation_documents);
  line("training documents that are validation documents", report.shared_documents,
       report.train_documents);
  line(fmt::format("validation passages of {} tokens found in training", flags.options.passage)
           .c_str(),
       report.shared_passages, report.validation_passages);
  for (const DuplicateDocument& example : report.examples) {
    Print(fmt::format("  document {} of {} is document {} of {}\n", example.document,
                      example.stream, example.same_document, example.same_as));
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
      the four sequences of step 120, as they were read: what the run passed over after a loss
      spike is taken into account
  sandglass data show recipes/kjv-run.toml --step 100000 --json
      a step that is still to come: the order depends on seed and position alone
)");
  verb->callback([flags] { RunShow(*flags); });
}

void AddCheck(CLI::App& data) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* verb = data.add_subcommand(
      "check", "Repeated documents, and validation text that is in training too");
  verb->add_option("DATA", flags->data, "Prepared directory, run directory, run file or recipe")
      ->required();
  verb->add_option("--passage", flags->options.passage, "Tokens of a passage")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--examples", flags->options.examples, "Repeated documents to name, at most")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--set", flags->overrides, "Override a key of the file")->type_name("KEY=VALUE");
  verb->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass data check data/kjv
  sandglass data check run.toml --passage 30 --json
)");
  verb->callback([flags] { RunCheck(*flags); });
}

}  // namespace

void AddDataVerb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("data", "Look into what a run trains on");
  verb->require_subcommand(1);
  AddShow(*verb);
  AddCheck(*verb);
}

}  // namespace sandglass
