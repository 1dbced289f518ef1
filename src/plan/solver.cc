#include "plan/solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <tuple>

#include "base/format.h"

namespace sandglass {
namespace {

// A combination takes some 25 ns, so this many take a quarter of a second.
constexpr int64_t kMaxCombinations = 10'000'000;
// More shapes than anyone reads; all are kept until they are ranked.
constexpr int64_t kMaxSolutions = 200'000;
constexpr size_t kNearest = 5;
constexpr int kMaxWidth = 1 << 20;

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t CeilDivide(int64_t a, int64_t b) { return -FloorDivide(-a, b); }

bool Holds(const BudgetSearch& search, Hold hold) {
  return std::find(search.hold.begin(), search.hold.end(), hold) != search.hold.end();
}

// The sizes of a search, with every default filled in.
struct Space {
  std::vector<int> layers;
  std::vector<int> d_model;
  std::vector<int> head_width;
  std::vector<int> heads;     // empty: d_model / head width
  std::vector<int> kv_heads;  // empty: heads / kv_group
  std::vector<int> sub_mlps;
  int kv_group = 1;
};

Space ResolveSpace(const BudgetSearch& search, const std::optional<Shape>& baseline) {
  // `otherwise` is what a size is if it is neither held nor given.
  const auto choose = [&](Hold hold, int of_baseline, const Choices& given,
                          const Choices& otherwise) {
    if (!Holds(search, hold)) return (given.empty() ? otherwise : given).values();
    if (given.empty()) return std::vector<int>{of_baseline};
    throw Error({.what = fmt::format("{} is held as in the baseline and also given as {}",
                                     EnumName(hold), given.ToString()),
                 .expected = "one of the two"});
  };
  const Shape from = baseline.value_or(Shape{.kv_heads = 1});
  const bool inherits_heads = baseline && search.attention_width == AttentionWidth::kFree;
  Space space;
  space.layers = choose(Hold::kLayers, from.layers, search.layers, Choices::Parse("4..48"));
  space.d_model =
      choose(Hold::kDModel, from.d_model, search.d_model, Choices::Parse("256..4096:64"));
  space.head_width = choose(Hold::kHeadWidth, from.head_width, search.head_width,
                            baseline ? Choices::Of(from.head_width) : Choices::Parse("64,128"));
  space.heads = choose(Hold::kHeads, from.heads, search.heads,
                       inherits_heads ? Choices::Of(from.heads) : Choices());
  space.kv_heads = choose(Hold::kKvHeads, from.kv_heads, search.kv_heads, Choices());
  space.sub_mlps = choose(Hold::kSubMlps, from.sub_mlps(), search.sub_mlps, Choices::Parse("1..8"));
  if (baseline) space.kv_group = from.heads / from.kv_heads;
  return space;
}

int64_t CombinationsOf(const Space& space) {
  double product = 1.0;
  for (const std::vector<int>* sizes : {&space.layers, &space.d_model, &space.head_width,
                                        &space.heads, &space.kv_heads, &space.sub_mlps}) {
    product *= std::max<double>(1.0, static_cast<double>(sizes->size()));
  }
  return static_cast<int64_t>(std::min(product, 9e18));
}

// Calls visit() for every combination of sizes, with `shape` set to it and K widths of zero.
template <class Visit>
void ForEachCombination(const Space& space, AttentionWidth attention_width, Shape& shape,
                        const Visit& visit) {
  const auto visit_kv_and_sub_mlps = [&](int kv_heads) {
    if (kv_heads < 1 || shape.heads % kv_heads != 0) return;
    shape.kv_heads = kv_heads;
    for (const int sub_mlps : space.sub_mlps) {
      shape.ffn.assign(sub_mlps, 0);
      visit();
    }
  };
  const auto visit_heads = [&](int heads) {
    shape.heads = heads;
    if (attention_width == AttentionWidth::kDModel && shape.attention_width() != shape.d_model) {
      return;
    }
    for (const int kv_heads : space.kv_heads) visit_kv_and_sub_mlps(kv_heads);
    if (space.kv_heads.empty() && heads % space.kv_group == 0) {
      visit_kv_and_sub_mlps(heads / space.kv_group);
    }
  };
  for (const int layers : space.layers) {
    shape.layers = layers;
    for (const int d_model : space.d_model) {
      shape.d_model = d_model;
      for (const int head_width : space.head_width) {
        shape.head_width = head_width;
        for (const int heads : space.heads) visit_heads(heads);
        if (space.heads.empty() && d_model % head_width == 0) visit_heads(d_model / head_width);
      }
    }
  }
}

// The FFN widths that a combination may take: sum(d_h) = n * spacing for n in low..high.
struct WidthGrid {
  int64_t spacing;
  int64_t low;
  int64_t high;
};

WidthGrid WidthsOf(const Shape& shape, const BudgetSearch& search) {
  const double steps_per_model = static_cast<double>(shape.d_model) / search.d_h_step;
  const double widest = static_cast<double>(kMaxWidth / search.d_h_step);
  // In steps; a width is allowed if the ratio, rounded to the step, is.
  const auto low = static_cast<int64_t>(
      std::clamp(std::ceil(search.d_h_ratio.low * steps_per_model - 0.5), 1.0, widest + 1));
  const auto high = static_cast<int64_t>(
      std::min(std::floor(search.d_h_ratio.high * steps_per_model + 0.5), widest));
  const int64_t sub_mlps = shape.sub_mlps();
  // Sub-MLPs of one width grow together; of two adjacent widths, one after the other.
  if (search.mix_widths) return {search.d_h_step, sub_mlps * low, sub_mlps * high};
  return {sub_mlps * search.d_h_step, low, high};
}

// Shares sum(d_h) = n * spacing out, the wider sub-MLPs last.
void SetWidths(Shape& shape, int64_t n, const BudgetSearch& search) {
  const int64_t sub_mlps = shape.sub_mlps();
  const int64_t steps = search.mix_widths ? n : n * sub_mlps;
  const int64_t wider = steps % sub_mlps;
  for (int64_t i = 0; i < sub_mlps; ++i) {
    const int64_t width = steps / sub_mlps + (i >= sub_mlps - wider ? 1 : 0);
    shape.ffn[i] = static_cast<int>(width * search.d_h_step);
  }
}

// How far, in natural logarithms, `value` lies outside low..high.
double LogDistance(double value, double low, double high) {
  return std::max({0.0, std::log(low / value), std::log(value / high)});
}

double DistanceToGoodRegion(const Shape& shape) {
  const double ffn_ratio = static_cast<double>(shape.ffn_width()) / shape.d_model;
  const double width_to_depth = static_cast<double>(shape.d_model) / shape.layers;
  const double of_depth = LogDistance(width_to_depth, 100.0, 250.0);
  const double of_ffn = shape.sub_mlps() >= 4 ? LogDistance(ffn_ratio / shape.sub_mlps(), 0.4, 0.4)
                                              : LogDistance(ffn_ratio, 8.0 / 3.0, 4.0);
  return of_depth + of_ffn;
}

double DistanceToShape(const Shape& a, const Shape& b) {
  const auto distance = [](int64_t x, int64_t y) {
    return std::fabs(std::log(static_cast<double>(x) / static_cast<double>(y)));
  };
  return distance(a.layers, b.layers) + distance(a.d_model, b.d_model) +
         distance(a.attention_width(), b.attention_width()) + distance(a.kv_width(), b.kv_width()) +
         distance(a.sub_mlps(), b.sub_mlps()) + distance(a.ffn_width(), b.ffn_width());
}

bool RanksBefore(const Solution& a, const Solution& b) {
  const auto key = [](const Solution& s) {
    const Shape& shape = s.shape;
    return std::make_tuple(shape.ffn.front() != shape.ffn.back(), s.cost, std::fabs(s.error),
                           shape.layers, shape.d_model, shape.heads, shape.head_width,
                           shape.kv_heads, shape.ffn.size(), std::cref(shape.ffn));
  };
  return key(a) < key(b);
}

// One walk over the space. `found` counts every solution, but at most kMaxSolutions are kept.
class Walk {
 public:
  Walk(const ModelConfig& variant, const Budget& budget, const BudgetSearch& search)
      : config_(variant), search_(search) {
    result_.budget = budget;
    slack_ =
        static_cast<int64_t>(std::floor(search.tolerance * static_cast<double>(budget.parameters)));
    if (Holds(search, Hold::kAttention)) {
      held_attention_ = CountParameters({.shape = *budget.baseline}).attention;
    }
  }

  SearchResult Run(const Space& space) {
    ForEachCombination(space, search_.attention_width, config_.shape, [&] { Visit(); });
    std::vector<Solution>& solutions = result_.solutions;
    const size_t kept = std::min<size_t>(solutions.size(), search_.limit);
    std::partial_sort(solutions.begin(), solutions.begin() + kept, solutions.end(), RanksBefore);
    solutions.resize(kept);
    if (result_.found > 0) result_.nearest.clear();
    return std::move(result_);
  }

 private:
  // The count is linear in n, so the solutions of a combination are an interval.
  void Visit() {
    ++result_.combinations;
    const ParameterCounts counts = CountParameters(config_);
    if (held_attention_ && counts.attention != *held_attention_) return;
    const Shape& shape = config_.shape;
    const WidthGrid grid = WidthsOf(shape, search_);
    if (grid.low > grid.high) return;
    const int64_t without_ffn = CountOf(counts, search_.match);
    const int64_t per_n = int64_t{3} * shape.layers * shape.d_model * grid.spacing;
    const int64_t missing = result_.budget.parameters - without_ffn;
    const int64_t first = std::max(grid.low, CeilDivide(missing - slack_, per_n));
    const int64_t last = std::min(grid.high, FloorDivide(missing + slack_, per_n));
    for (int64_t n = first; n <= last; ++n) {
      if (result_.found++ < kMaxSolutions) {
        result_.solutions.push_back(Solve(n, without_ffn + n * per_n));
      }
    }
    if (result_.found == 0) {
      const int64_t below = std::clamp(FloorDivide(missing, per_n), grid.low, grid.high);
      const int64_t above = std::min(below + 1, grid.high);
      const int64_t n =
          std::abs(missing - above * per_n) < std::abs(missing - below * per_n) ? above : below;
      KeepNearest(n, without_ffn + n * per_n);
    }
  }

  void KeepNearest(int64_t n, int64_t parameters) {
    std::vector<Solution>& nearest = result_.nearest;
    const auto off = [&](int64_t count) { return std::abs(count - result_.budget.parameters); };
    if (nearest.size() == kNearest) {
      if (off(parameters) >= off(nearest.back().parameters)) return;
      nearest.pop_back();
    }
    const auto at = std::find_if(nearest.begin(), nearest.end(), [&](const Solution& other) {
      return off(parameters) < off(other.parameters);
    });
    nearest.insert(at, Solve(n, parameters));
  }

  Solution Solve(int64_t n, int64_t parameters) const {
    Solution solution{.shape = config_.shape, .parameters = parameters};
    SetWidths(solution.shape, n, search_);
    const auto budget = static_cast<double>(result_.budget.parameters);
    solution.error = (static_cast<double>(parameters) - budget) / budget;
    const double distance = search_.near ? DistanceToShape(solution.shape, *search_.near)
                                         : DistanceToGoodRegion(solution.shape);
    solution.cost = distance + 0.05 * std::log2(256.0 / WidthAlignment(solution.shape));
    return solution;
  }

  ModelConfig config_;  // its shape is the combination being visited
  const BudgetSearch& search_;
  int64_t slack_;
  std::optional<int64_t> held_attention_;
  SearchResult result_;
};

void CheckSearch(const ModelConfig& variant, const Budget& budget, const BudgetSearch& search) {
  const auto require = [](bool holds, std::string what, std::string expected) {
    if (!holds) throw Error({.what = std::move(what), .expected = std::move(expected)});
  };
  require(budget.parameters > 0, fmt::format("a budget of {} parameters", budget.parameters),
          "a positive number of parameters");
  require(search.tolerance >= 0.0 && search.tolerance <= 0.5,
          fmt::format("a tolerance of {}", search.tolerance),
          "a fraction from 0 to 0.5; 1e-5 is 0.001 %");
  require(search.d_h_step >= 1 && search.d_h_step <= kMaxWidth,
          fmt::format("a d_h_step of {}", search.d_h_step), "a width from 1 on, such as 8 or 64");
  require(search.limit >= 1, fmt::format("a limit of {}", search.limit), "at least one shape");
  require(search.hold.empty() || budget.baseline,
          fmt::format("{} is to be held, but there is no baseline to take it from",
                      search.hold.empty() ? "" : EnumName(search.hold.front())),
          "a baseline shape, or the size itself in place of holding it");
  require(search.match != Match::kTotal || variant.vocabulary > 0,
          "the total is to be matched, but the vocabulary is not known",
          "a vocabulary, or match = matrices or non-embedding");
  if (search.near) search.near->Validate();
}

void CheckSpace(const Space& space) {
  const int64_t combinations = CombinationsOf(space);
  if (combinations > kMaxCombinations) {
    throw Error({.what = fmt::format("the search has {} combinations of sizes",
                                     WithThousands(combinations)),
                 .expected = fmt::format("at most {}", WithThousands(kMaxCombinations)),
                 .remedy = "narrower ranges or larger steps, d_model = 1536..4096:64 for example"});
  }
  // The largest of everything must be a possible model; then so is every combination.
  for (const int head_width : space.head_width) {
    const int heads = space.heads.empty() ? 1 : space.heads.back();
    Shape{.layers = space.layers.back(),
          .d_model = space.d_model.back(),
          .heads = heads,
          .head_width = head_width,
          .kv_heads = 1,
          .ffn = std::vector<int>(space.sub_mlps.back(), 1)}
        .Validate();
  }
}

// Loosens one constraint after the other and keeps the changes that find shapes. What they examine
// together stays below kMaxCombinations, so that advice takes no longer than the longest search.
std::vector<Relaxation> FindRelaxations(const ModelConfig& variant, const Budget& budget,
                                        const BudgetSearch& search) {
  std::vector<Relaxation> relaxations;
  int64_t examined = 0;
  const auto helps = [&](BudgetSearch relaxed, std::string change) {
    relaxed.limit = 1;
    const Space space = ResolveSpace(relaxed, budget.baseline);
    if (CombinationsOf(space) > kMaxCombinations - examined) return false;
    examined += CombinationsOf(space);
    const SearchResult result = Walk(variant, budget, relaxed).Run(space);
    if (result.found == 0) return false;
    relaxations.push_back({std::move(change), result.found, result.solutions.front().shape});
    return true;
  };
  const auto without_hold = [&](Hold hold) {
    BudgetSearch relaxed = search;
    std::erase(relaxed.hold, hold);
    return relaxed;
  };

  if (!search.mix_widths) {
    BudgetSearch relaxed = search;
    relaxed.mix_widths = true;
    helps(relaxed, "mix_widths on");
  }
  for (int step = search.d_h_step / 2; step >= 1; step /= 2) {
    BudgetSearch relaxed = search;
    relaxed.d_h_step = step;
    if (helps(relaxed, fmt::format("d_h_step = {}", step))) break;
  }
  if (!search.d_h_ratio.any()) {
    BudgetSearch relaxed = search;
    relaxed.d_h_ratio = {};
    helps(relaxed, "any d_h_ratio");
  }
  if (Holds(search, Hold::kAttention)) {
    helps(without_hold(Hold::kAttention), "attention not held");
  }
  if (search.attention_width == AttentionWidth::kDModel) {
    BudgetSearch relaxed = search;
    relaxed.attention_width = AttentionWidth::kFree;
    if (relaxed.heads.empty()) relaxed.heads = Choices::Parse("1..64");
    helps(relaxed, "attention_width free, with 1..64 heads");
  }

  struct Dimension {
    Hold hold;
    Choices BudgetSearch::*sizes;
    std::vector<const char*> wider;  // the first that helps is reported
  };
  const std::vector<Dimension> dimensions = {
      {Hold::kLayers, &BudgetSearch::layers, {"1..96"}},
      {Hold::kDModel, &BudgetSearch::d_model, {"128..8192:64", "128..8192:8"}},
      {Hold::kHeads, &BudgetSearch::heads, {"1..64"}},
      {Hold::kHeadWidth, &BudgetSearch::head_width, {"32..256:32", "32..256:8"}},
      {Hold::kKvHeads, &BudgetSearch::kv_heads, {"1..64"}},
      {Hold::kSubMlps, &BudgetSearch::sub_mlps, {"1..12"}},
  };
  for (const Dimension& dimension : dimensions) {
    for (const char* wider : dimension.wider) {
      BudgetSearch relaxed = without_hold(dimension.hold);
      relaxed.*dimension.sizes = Choices::Parse(wider);
      if (helps(relaxed, fmt::format("{} = {}", EnumName(dimension.hold), wider))) break;
    }
  }
  return relaxations;
}

}  // namespace

Budget Budget::Of(const ModelConfig& baseline, Match match) {
  baseline.shape.Validate();
  return {.parameters = CountOf(CountParameters(baseline), match), .baseline = baseline.shape};
}

int64_t CountOf(const ParameterCounts& counts, Match match) {
  switch (match) {
    case Match::kMatrices:
      return counts.matrices();
    case Match::kNonEmbedding:
      return counts.non_embedding();
    case Match::kTotal:
      return counts.total();
  }
  return 0;
}

int WidthAlignment(const Shape& shape) {
  const int64_t widths =
      std::accumulate(shape.ffn.begin(), shape.ffn.end(), shape.d_model | shape.attention_width(),
                      [](int64_t bits, int width) { return bits | width; });
  // The lowest bit that any width has is the largest power of two that divides all.
  return static_cast<int>((widths | 256) & -(widths | 256));
}

SearchResult SearchShapes(const ModelConfig& variant, const Budget& budget,
                          const BudgetSearch& search) {
  CheckSearch(variant, budget, search);
  const Space space = ResolveSpace(search, budget.baseline);
  CheckSpace(space);
  SearchResult result = Walk(variant, budget, search).Run(space);
  if (result.found > kMaxSolutions) {
    throw Error({.what = fmt::format("{} shapes are within the tolerance of {}",
                                     WithThousands(result.found), search.tolerance),
                 .expected = fmt::format("at most {}", WithThousands(kMaxSolutions)),
                 .remedy = "a smaller tolerance, or narrower ranges"});
  }
  if (result.found == 0) result.relaxations = FindRelaxations(variant, budget, search);
  return result;
}

ErrorParts ExplainNoSolution(const SearchResult& result, const BudgetSearch& search) {
  ErrorParts parts;
  parts.what = fmt::format("no shape has {} parameters ({}) within {:.4g} %",
                           WithThousands(result.budget.parameters), EnumName(search.match),
                           100.0 * search.tolerance);
  if (result.nearest.empty()) {
    parts.what += result.combinations == 0 ? ": the sizes do not fit together (heads must be "
                                             "divisible by KV heads, d_model by the head width)"
                                           : ": no combination of sizes meets what is held";
  } else {
    parts.what += "; the nearest are";
    for (const Solution& near : result.nearest) {
      parts.what += fmt::format("\n    {}  {}  {:+.4f} %", near.shape.ToString(),
                                WithThousands(near.parameters), 100.0 * near.error);
    }
  }
  for (const Relaxation& relaxation : result.relaxations) {
    parts.remedy += fmt::format(
        "\n    {} ({} {}, first {})", relaxation.change, WithThousands(relaxation.found),
        relaxation.found == 1 ? "shape" : "shapes", relaxation.best.ToString());
  }
  if (!result.nearest.empty()) {
    parts.remedy += fmt::format("\n    tolerance = {:.2g} (takes the nearest above)",
                                1.05 * std::fabs(result.nearest.front().error));
  }
  if (!parts.remedy.empty()) parts.remedy = "one of these changes" + parts.remedy;
  return parts;
}

}  // namespace sandglass
