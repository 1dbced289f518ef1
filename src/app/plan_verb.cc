// sandglass plan: what a shape costs, and which shapes meet a budget.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/plan_file.h"
#include "app/verbs.h"
#include "base/format.h"
#include "interop/targets.h"
#include "plan/count.h"
#include "plan/solver.h"
#include "train/options.h"

namespace sandglass {
namespace {

constexpr const char* kExamples = R"(
Examples:
  sandglass plan L12-d768-a12x64-f8x384
      parameters, FLOPs and memory of 12 layers of width 768 with 12 heads of 64 and an FFN of
      eight sub-MLPs of width 384
  sandglass plan L24-d1536-a16x96-f1x6144 L12-d2496-a16x96-f4x2016 --vocabulary 100278
      side by side, with the differences to the first
  sandglass plan --baseline L12-d768-a12x64-f1x3072 --hold layers,d_model --sub-mlps 8
      the shape with eight sub-MLPs that equals a baseline of 113M, its attention untouched
  sandglass plan --baseline L24-d1536-a16x96-f1x6144 --sub-mlps 4 --layers 8..24
                 --d-model 1536..4096:64 --d-h-ratio 0.3..0.6
      hourglasses with the matrices of a conventional 906M model and the same heads
  sandglass plan --budget 906M --match total --vocabulary 50304 --tied --sub-mlps 4..6
      no baseline: any shapes with this number of parameters in all

  sandglass plan recipes/paper-906m.toml --flop-per-s 2e13
      a recipe or run file: tokens, FLOPs, days and memory of its runs

A shape is L (layers), d (d_model), a (heads x head width), optionally kv (KV heads), and f, the FFN:
f8x384 (eight sub-MLPs of width 384), f384,400,384 (a list) or f3x384,400.
)";

struct Arguments {
  std::vector<std::string> shapes;
  Family family = Family::kHourglass;
  int vocabulary = 50304;
  bool tied = false;
  std::optional<QkNorm> qk_norm;
  int batch = 8;
  int length = 1024;
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kCheap;
  bool json = false;
  double flop_per_s = 0.0;
  std::vector<std::string> overrides;

  std::optional<Shape> baseline;
  std::optional<Family> baseline_family;
  std::string budget;
  BudgetSearch search;
  const CLI::App* search_group = nullptr;
};

// A visitor for VisitFields: field `d_model` becomes `--d-model`. Text is read as in a recipe; the
// elements of a list stand between commas.
class PlanOptions {
 public:
  explicit PlanOptions(CLI::App& group) : group_(group) {}

  template <class T>
  void operator()(const char* name, T& field, const char* help) const {
    std::string flag = "--" + std::string(name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    if constexpr (std::is_same_v<T, bool>) {
      group_.add_flag(flag, field, help);
    } else if constexpr (std::is_arithmetic_v<T>) {
      group_.add_option(flag, field, help)->capture_default_str();
    } else {
      using Text = std::conditional_t<fields_internal::IsVector<T>::value, std::vector<std::string>,
                                      std::string>;
      group_
          .add_option_function<Text>(
              flag,
              [&field, flag](const Text& text) {
                ReadFields(field, {.values = text, .source = flag});
              },
              help)
          ->delimiter(',')
          ->allow_extra_args(false);
    }
  }

 private:
  CLI::App& group_;
};

// "906M", "8B", "1.5e9" or "113,246,208".
int64_t ParseBudget(const std::string& text) {
  std::string digits = text;
  std::erase(digits, ',');
  const size_t suffix = std::string_view("KMBT").find(digits.empty() ? ' ' : digits.back());
  double scale = 1.0;
  if (suffix != std::string_view::npos) {
    scale = std::pow(1000.0, suffix + 1);
    digits.pop_back();
  }
  double value = 0.0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, failure] = std::from_chars(digits.data(), end, value);
  const double parameters = std::round(value * scale);
  if (failure != std::errc() || stopped != end || !(parameters >= 1.0 && parameters <= 1e16)) {
    throw Error({.what = fmt::format("\"{}\" is not a number of parameters", text),
                 .where = "--budget",
                 .expected = "a number such as 113246208, 113,246,208, 906M or 8B"});
  }
  return static_cast<int64_t>(parameters);
}

ModelConfig ConfigOf(const Arguments& arguments, Family family, const Shape& shape) {
  ModelConfig config = FamilyConfig(family, shape, arguments.vocabulary);
  if (arguments.tied) config.embeddings = Embeddings::kTied;
  if (arguments.qk_norm) config.qk_norm = *arguments.qk_norm;
  return config;
}

// Everything that the table and the JSON say about one shape.
struct ShapeCosts {
  ModelConfig config;
  ParameterCounts parameters;
  FlopCounts flops;
  TrainingMemory memory;
  ShapeRatios ratios;
  std::vector<std::string> warnings;
};

ShapeCosts CostsOf(const ModelConfig& config, const Capacity& capacity) {
  config.Validate();
  return {.config = config,
          .parameters = CountParameters(config),
          .flops = CountFlops(config, capacity.length),
          .memory = CountTrainingMemory(config, capacity),
          .ratios = RatiosOf(config.shape),
          .warnings = ExportWarnings(config)};
}

// One line of the table: a count of each shape, or a heading without one.
struct Row {
  std::string label;
  std::function<double(const ShapeCosts&)> value;
  std::function<std::string(double)> format;
};

std::vector<Row> RowsFor(const Capacity& capacity) {
  const auto whole = [](double value) { return WithThousands(std::llround(value)); };
  const auto bytes = [](double value) { return HumanBytes(value); };
  const auto ratio = [](double value) { return fmt::format("{:.3f}", value); };
  using Costs = const ShapeCosts&;
  std::vector<Row> rows = {
      {"Parameters", nullptr, nullptr},
      {"attention", [](Costs c) -> double { return c.parameters.attention; }, whole},
      {"FFN", [](Costs c) -> double { return c.parameters.ffn; }, whole},
      {"matrices", [](Costs c) -> double { return c.parameters.matrices(); }, whole},
      {"norms", [](Costs c) -> double { return c.parameters.norms; }, whole},
      {"non-embedding", [](Costs c) -> double { return c.parameters.non_embedding(); }, whole},
      {"embeddings", [](Costs c) -> double { return c.parameters.embeddings; }, whole},
      {"head", [](Costs c) -> double { return c.parameters.head; }, whole},
      {"total", [](Costs c) -> double { return c.parameters.total(); }, whole},
      {fmt::format("FLOPs per token, length {}", WithThousands(capacity.length)), nullptr, nullptr},
      {"training", [](Costs c) -> double { return c.flops.training; }, whole},
      {"decoding", [](Costs c) -> double { return c.flops.decoding; }, whole},
      {"Memory", nullptr, nullptr},
      {"KV cache per token, bf16",
       [](Costs c) -> double { return KvCacheBytesPerToken(c.config.shape, DType::kBF16); }, bytes},
      {"KV cache per token, f32",
       [](Costs c) -> double { return KvCacheBytesPerToken(c.config.shape, DType::kF32); }, bytes},
      {"weights, f32", [](Costs c) -> double { return c.memory.weights; }, bytes},
      {"gradients", [](Costs c) -> double { return c.memory.gradients; }, bytes},
      {"AdamW moments", [](Costs c) -> double { return c.memory.optimizer; }, bytes},
      {fmt::format("activations, batch {} x {}", capacity.batch, WithThousands(capacity.length)),
       [](Costs c) -> double { return c.memory.activations; }, bytes},
      {"the program and its libraries", [](Costs) -> double { return kProgramBytes; }, bytes},
      {"training in all", [](Costs c) -> double { return c.memory.total(); }, bytes},
      {"Proportions", nullptr, nullptr},
      {"d_model / L", [](Costs c) { return c.ratios.width_to_depth; }, ratio},
      {"d_h / d_model", [](Costs c) { return c.ratios.ffn_to_model; }, ratio},
      {"attention / matrices", [](Costs c) { return c.ratios.attention_share; }, ratio},
  };
  if (capacity.rounds_activations()) {
    const auto after = std::ranges::find(rows, "weights, f32", &Row::label) + 1;
    rows.insert(after, {"weights rounded to bf16",
                        [](Costs c) -> double { return c.memory.operands; }, bytes});
  }
  return rows;
}

// "  +0.293 %", how far `value` lies from `first`.
std::string Difference(double value, double first) {
  if (value == first) return "  =";
  return first == 0.0 ? "" : fmt::format("  {:+.3g} %", 100.0 * (value - first) / first);
}

void PrintCosts(const std::vector<ShapeCosts>& shapes, const Capacity& capacity) {
  constexpr int kLabelWidth = 32;
  constexpr int kNumberWidth = 26;
  constexpr int kDifferenceWidth = 12;
  fmt::print("{:{}}", "", kLabelWidth);
  for (const ShapeCosts& costs : shapes) {
    fmt::print("{:>{}}{:{}}", costs.config.shape.ToString(), kNumberWidth, "",
               &costs == &shapes.front() ? 0 : kDifferenceWidth);
  }
  for (const Row& row : RowsFor(capacity)) {
    fmt::print("\n{:{}}", row.value ? "  " + row.label : row.label, kLabelWidth);
    if (!row.value) continue;
    for (const ShapeCosts& costs : shapes) {
      const double value = row.value(costs);
      fmt::print("{:>{}}", row.format(value), kNumberWidth);
      if (&costs != &shapes.front()) {
        fmt::print("{:{}}", Difference(value, row.value(shapes.front())), kDifferenceWidth);
      }
    }
  }
  fmt::print("\n");
  for (const ShapeCosts& costs : shapes) {
    if (costs.warnings.empty()) continue;
    fmt::print("\nWarnings for {}\n", costs.config.shape.ToString());
    for (const std::string& warning : costs.warnings) fmt::print("  {}\n", warning);
  }
}

Json CountsJson(const ParameterCounts& counts) {
  return Json{{"attention", counts.attention},
              {"ffn", counts.ffn},
              {"matrices", counts.matrices()},
              {"norms", counts.norms},
              {"non_embedding", counts.non_embedding()},
              {"embeddings", counts.embeddings},
              {"head", counts.head},
              {"total", counts.total()}};
}

Json CostsJson(const ShapeCosts& costs, const Capacity& capacity) {
  const Shape& shape = costs.config.shape;
  return Json{
      {"shape", shape.ToString()},
      {"model", WriteFields(costs.config)},
      {"parameters", CountsJson(costs.parameters)},
      {"length", capacity.length},
      {"batch", capacity.batch},
      {"flops_per_token", {{"training", costs.flops.training}, {"decoding", costs.flops.decoding}}},
      {"kv_cache_bytes_per_token",
       {{"bf16", KvCacheBytesPerToken(shape, DType::kBF16)},
        {"f32", KvCacheBytesPerToken(shape, DType::kF32)}}},
      {"training_bytes",
       {{"weights", costs.memory.weights},
        {"operands", costs.memory.operands},
        {"gradients", costs.memory.gradients},
        {"optimizer", costs.memory.optimizer},
        {"activations", costs.memory.activations},
        {"program", kProgramBytes},
        {"total", costs.memory.total()}}},
      {"d_model_per_layer", costs.ratios.width_to_depth},
      {"d_h_per_d_model", costs.ratios.ffn_to_model},
      {"attention_share", costs.ratios.attention_share},
      {"warnings", costs.warnings}};
}

void PlanShapes(const Arguments& arguments) {
  // Keeps every count of bytes within 64 bits.
  constexpr int64_t kMaxTokens = int64_t{1} << 24;
  const Capacity capacity{.batch = arguments.batch,
                          .length = arguments.length,
                          .recompute = arguments.recompute,
                          .activations = ActivationType(Resolve(arguments.precision, PrintNote))};
  if (capacity.batch < 1 || capacity.length < 1 || capacity.tokens() > kMaxTokens) {
    throw Error({.what = fmt::format("a batch of {} sequences of {} tokens", capacity.batch,
                                     capacity.length),
                 .where = "--batch, --length",
                 .expected = fmt::format("positive numbers with a product of at most {}",
                                         WithThousands(kMaxTokens))});
  }
  std::vector<ShapeCosts> shapes;
  for (const std::string& text : arguments.shapes) {
    shapes.push_back(CostsOf(ConfigOf(arguments, arguments.family, Shape::Parse(text)), capacity));
  }
  if (!arguments.json) return PrintCosts(shapes, capacity);
  Json list = Json::array();
  for (const ShapeCosts& costs : shapes) list.push_back(CostsJson(costs, capacity));
  fmt::print("{}\n", list.dump(2));
}

// One line of the list of shapes that a search found.
void PrintFound(const ModelConfig& config, int64_t length, const std::string& error) {
  const ParameterCounts counts = CountParameters(config);
  const ShapeRatios ratios = RatiosOf(config.shape);
  fmt::print("{:<34}{:>15}{:>12}{:>15}{:>15}{:>10}{:>9.3f}{:>9.1f}{:>7.1f} %{:>9}\n",
             config.shape.ToString(), WithThousands(counts.matrices()), error,
             WithThousands(counts.non_embedding()), WithThousands(counts.total()),
             Abbreviated(static_cast<double>(CountFlops(config, length).training)),
             ratios.ffn_to_model, ratios.width_to_depth, 100 * ratios.attention_share,
             WidthAlignment(config.shape));
}

void PrintSearch(const SearchResult& result, const Arguments& arguments,
                 const std::optional<ModelConfig>& baseline) {
  const BudgetSearch& search = arguments.search;
  fmt::print("{} parameters ({}){}: {} {} within {:.4g} %\n\n",
             WithThousands(result.budget.parameters), EnumName(search.match),
             baseline ? ", as " + baseline->shape.ToString() : "", WithThousands(result.found),
             result.found == 1 ? "shape" : "shapes", 100.0 * search.tolerance);
  fmt::print("{:<34}{:>15}{:>12}{:>15}{:>15}{:>10}{:>9}{:>9}{:>9}{:>9}\n", "", "matrices", "error",
             "non-embedding", "total", "FLOPs", "d_h/d", "d/L", "attn.", "aligned");
  if (baseline) PrintFound(*baseline, arguments.length, "baseline");
  for (const Solution& solution : result.solutions) {
    PrintFound(ConfigOf(arguments, arguments.family, solution.shape), arguments.length,
               solution.error == 0.0 ? "exact" : fmt::format("{:+.5f} %", 100.0 * solution.error));
  }
  if (result.found > static_cast<int64_t>(result.solutions.size())) {
    fmt::print("... {} more (--limit)\n",
               WithThousands(result.found - static_cast<int64_t>(result.solutions.size())));
  }
  fmt::print(
      "\nFLOPs: training, per token, length {}. d_h/d: sub-MLP width over d_model. d/L: d_model "
      "over layers.\nattn.: share of attention in the matrices. aligned: largest power of two, "
      "up to 256, that divides all widths.\n",
      WithThousands(arguments.length));
}

Json SearchJson(const SearchResult& result, const Arguments& arguments) {
  const auto list = [&](const std::vector<Solution>& solutions) {
    Json items = Json::array();
    for (const Solution& solution : solutions) {
      const ModelConfig config = ConfigOf(arguments, arguments.family, solution.shape);
      items.push_back(
          {{"shape", solution.shape.ToString()},
           {"matched_parameters", solution.parameters},
           {"error", solution.error},
           {"cost", solution.cost},
           {"alignment", WidthAlignment(solution.shape)},
           {"parameters", CountsJson(CountParameters(config))},
           {"training_flops_per_token", CountFlops(config, arguments.length).training}});
    }
    return items;
  };
  Json relaxations = Json::array();
  for (const Relaxation& relaxation : result.relaxations) {
    relaxations.push_back({{"change", relaxation.change},
                           {"found", relaxation.found},
                           {"best", relaxation.best.ToString()}});
  }
  return Json{{"budget", result.budget.parameters},  {"search", WriteFields(arguments.search)},
              {"combinations", result.combinations}, {"found", result.found},
              {"solutions", list(result.solutions)}, {"nearest", list(result.nearest)},
              {"relaxations", relaxations}};
}

void FindShapes(const Arguments& arguments) {
  const BudgetSearch& search = arguments.search;
  std::optional<ModelConfig> baseline;
  Budget budget;
  if (arguments.baseline) {
    baseline = ConfigOf(arguments, arguments.baseline_family.value_or(arguments.family),
                        *arguments.baseline);
    budget = Budget::Of(*baseline, search.match);
  } else {
    budget.parameters = ParseBudget(arguments.budget);
  }
  const SearchResult result =
      SearchShapes(ConfigOf(arguments, arguments.family, Shape{}), budget, search);
  if (arguments.json) {
    fmt::print("{}\n", SearchJson(result, arguments).dump(2));
  } else if (result.found > 0) {
    PrintSearch(result, arguments, baseline);
  }
  if (result.found == 0) throw Error(ExplainNoSolution(result, search));
}

bool IsFile(const std::string& shape) { return shape.ends_with(".toml"); }

void Run(const Arguments& arguments) {
  if (std::ranges::any_of(arguments.shapes, IsFile)) {
    if (arguments.shapes.size() == 1 && !arguments.baseline && arguments.budget.empty()) {
      return PlanFile({.path = arguments.shapes.front(),
                       .overrides = arguments.overrides,
                       .flop_per_s = arguments.flop_per_s,
                       .format = arguments.json ? OutputFormat::kJson : OutputFormat::kText});
    }
    throw Error({.what = "a file and other things to plan",
                 .expected = "one recipe or run file, or shapes, or a search"});
  }
  if (arguments.flop_per_s > 0 || !arguments.overrides.empty()) {
    throw Error({.what = "--flop-per-s and --set belong to a recipe or run file",
                 .remedy = "sandglass plan FILE.toml --flop-per-s 2e13"});
  }
  const bool searches = arguments.baseline || !arguments.budget.empty();
  if (searches == !arguments.shapes.empty() ||
      (!searches && arguments.search_group->count_all() > 0)) {
    throw Error({.what = searches                   ? "shapes to count and a budget to search for"
                         : arguments.shapes.empty() ? "nothing to plan"
                                                    : "options of a search, but no budget",
                 .expected = "either shapes, or --baseline SHAPE or --budget NUMBER with the "
                             "options of a search",
                 .remedy = "sandglass plan --help shows both"});
  }
  if (arguments.baseline && !arguments.budget.empty()) {
    throw Error({.what = "two budgets", .expected = "either --baseline or --budget"});
  }
  searches ? FindShapes(arguments) : PlanShapes(arguments);
}

}  // namespace

void AddPlanVerb(CLI::App& program) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& verb = *program.add_subcommand(
      "plan", "Counts what shapes cost; finds the shapes that meet a parameter budget.");
  verb.add_option("SHAPE", arguments->shapes,
                  "shapes to count, side by side; or a recipe or run file");
  verb.add_option("--flop-per-s", arguments->flop_per_s,
                  "with a file: speed that days are told for")
      ->check(CLI::PositiveNumber);
  verb.add_option("--set", arguments->overrides, "with a file: override a key (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb.add_flag("--json", arguments->json, "print the result as JSON");

  CLI::App& model = *verb.add_option_group("Model");
  const PlanOptions model_options(model);
  model_options("family", arguments->family, "llama, hourglass or olmo2 [hourglass]");
  model_options("qk_norm", arguments->qk_norm, "none, head or full [the family's]");
  model_options("vocabulary", arguments->vocabulary, "number of token ids");
  model_options("tied", arguments->tied, "one matrix for input and output embeddings");
  model_options("batch", arguments->batch, "sequences per batch, for activations");
  model_options("length", arguments->length, "tokens per sequence, for activations and FLOPs");
  model_options("precision", arguments->precision,
                "of training, for memory: auto, f32, bf16 [f32]");
  model_options("recompute", arguments->recompute,
                "what is computed again, for memory: nothing, cheap, layer [cheap]");

  CLI::App& search = *verb.add_option_group("Search");
  const PlanOptions search_options(search);
  search_options("baseline", arguments->baseline, "shape whose count is the budget");
  search_options("baseline_family", arguments->baseline_family,
                 "family of the baseline [that of --family]");
  search.add_option("--budget", arguments->budget, "number of parameters, as 906M or 113246208");
  BudgetSearch::VisitFields(arguments->search, search_options);
  arguments->search_group = &search;
  AddExamples(verb, kExamples);
  verb.callback([arguments] { Run(*arguments); });
}

}  // namespace sandglass
