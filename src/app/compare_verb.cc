#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/interrupt.h"
#include "compare/compare.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct CompareFlags {
  std::string recipe_path;
  std::string out;
  std::vector<std::string> overrides;
  bool plan_only = false;
  bool list_keys = false;
  bool json = false;
};

void PrintPlan(const Recipe& recipe, OutputFormat format) {
  const int vocabulary = recipe.text.prepared.empty()
                             ? recipe.text.vocabulary
                             : Tokenizer::Load(TokenizerPath(recipe.text.prepared)).vocabulary();
  const MatchedPlan plan = PlanVariants(recipe, vocabulary);
  if (format == OutputFormat::kJson) {
    Json variants = Json::array();
    for (const PlannedVariant& variant : plan.variants) {
      variants.push_back({{"name", variant.name},
                          {"family", EnumName(variant.family)},
                          {"shape", variant.config.shape.ToString()},
                          {"parameters", variant.matched_parameters},
                          {"relative_difference", variant.relative_difference}});
    }
    return PrintJson(
        {{"matched", EnumName(recipe.match)}, {"budget", plan.budget}, {"variants", variants}});
  }
  Print(fmt::format("matched in {}: {} parameters\n", EnumName(recipe.match),
                    WithThousands(plan.budget)));
  for (const PlannedVariant& variant : plan.variants) {
    Print(fmt::format("  {:24} {:10} {:32} {:>14}  {:+.4f} %\n", variant.name,
                      EnumName(variant.family), variant.config.shape.ToString(),
                      WithThousands(variant.matched_parameters),
                      100 * variant.relative_difference));
  }
}

void RunCompare(const CompareFlags& flags) {
  if (flags.list_keys) return PrintKeys(DescribeFields<Recipe>());
  const Recipe recipe = Recipe::Load(flags.recipe_path, flags.overrides);
  if (flags.plan_only) {
    return PrintPlan(recipe, flags.json ? OutputFormat::kJson : OutputFormat::kText);
  }
  PrintNote(DescribeCompute(*recipe.system.MakeBackend(), recipe.train.options.precision));
  CompareOptions options{.out = flags.out.empty() ? "runs/" + recipe.name : flags.out,
                         .command = "sandglass compare " + flags.recipe_path,
                         .note = PrintNote};
  for (const std::string& assignment : flags.overrides) options.command += " --set " + assignment;
  if (!flags.out.empty()) options.command += " --out " + flags.out;
  const std::optional<ReportData> report = Compare(recipe, options);
  if (!report) throw Interrupted{"finished runs are kept; the same command continues"};
  if (flags.json) {
    PrintJson(ReportJson(*report));
  } else {
    Print(RenderText(*report));
    Print(fmt::format("\nreport: {}/report.html\n", options.out));
  }
  for (const ReportVariant& variant : report->variants) {
    for (const ReportRun& run : variant.runs) {
      if (run.status == RunStatus::kFinished) continue;
      throw Error(
          {.what = fmt::format("{} with seed {} failed: {}", variant.name, run.seed, run.message),
           .where = options.out,
           .remedy = "the report shows the runs that finished; the same command tries the "
                     "failed ones again"});
    }
  }
}

}  // namespace

void AddCompareVerb(CLI::App& program) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* verb = program.add_subcommand(
      "compare", "Plan matched shapes, train and evaluate each, and report which is better");
  verb->add_option("RECIPE", flags->recipe_path, "TOML recipe; --keys lists what it may say");
  verb->add_option("--set", flags->overrides, "Override a key: --set train.tokens=2e6 (repeatable)")
      ->type_name("KEY=VALUE");
  verb->add_option("--out", flags->out, "Directory for data, runs and report [runs/<name>]");
  verb->add_flag("--plan", flags->plan_only, "Show the matched shapes and stop");
  verb->add_flag("--keys", flags->list_keys, "List every key with its default and stop");
  verb->add_flag("--json", flags->json, "Print the report as JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass compare recipes/kjv-demo.toml
      trains every variant with every seed and writes runs/kjv-demo/report.html; Ctrl-C is safe,
      the same command continues and does not repeat what is finished
  sandglass compare recipes/kjv-demo.toml --plan
      only the shapes and how exactly they match
  sandglass compare recipes/kjv-demo.toml --set train.tokens=4e6 --set "seeds=[1,2,3]" --out runs/long
)");
  verb->callback([flags] {
    if (flags->recipe_path.empty() && !flags->list_keys) throw CLI::RequiredError("RECIPE");
    RunCompare(*flags);
  });
}

}  // namespace sandglass
