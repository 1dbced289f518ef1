#include "compare/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace sandglass {
namespace {

[[noreturn]] void Fail(const std::string& what, const std::string& where,
                       const std::string& expected, const std::string& remedy = "") {
  throw Error({.what = what, .where = where, .expected = expected, .remedy = remedy});
}

// A variant's keys override the defaults of its family, so the families are looked up before the
// recipe is read as a whole.
void SetFamilyDefaults(const ConfigTree& tree, std::vector<VariantOptions>& variants) {
  const auto list = tree.values.find("variant");
  if (list == tree.values.end() || !list->is_array()) return;
  variants.resize(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (entry.is_object() && entry.contains("family") && entry["family"].is_string()) {
      variants[i].model.family =
          ParseEnum<Family>(entry["family"].get<std::string>(),
                            fmt::format("{}, variant[{}].family", tree.source, i));
    }
    variants[i].model.config = FamilyConfig(variants[i].model.family, Shape{}, 0);
  }
}

bool IsDirectoryName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string::npos;
}

}  // namespace

Recipe Recipe::Load(const std::string& path, const std::vector<std::string>& overrides) {
  return FromTree(LoadToml(path), overrides);
}

Recipe Recipe::FromTree(const ConfigTree& tree, const std::vector<std::string>& overrides) {
  Recipe recipe;
  SetFamilyDefaults(tree, recipe.variants);
  ReadFields(recipe, tree);
  for (const std::string& assignment : overrides) ReadFields(recipe, ParseAssignment(assignment));
  // What is matched is one thing for the whole comparison.
  for (VariantOptions& variant : recipe.variants) {
    if (!variant.search) continue;
    variant.search->match = recipe.match;
    variant.search->tolerance = recipe.tolerance;
  }
  recipe.Validate();
  return recipe;
}

void Recipe::Validate() const {
  if (!IsDirectoryName(name)) {
    Fail(fmt::format("\"{}\" cannot name a comparison", name), "name",
         "a non-empty name without slashes");
  }
  if (variants.size() < 2) {
    Fail(fmt::format("{} variants are too few for a comparison", variants.size()), "[[variant]]",
         "at least two", "add a [[variant]] table for each model");
  }
  std::vector<std::string> names;
  for (const VariantOptions& variant : variants) {
    const std::string where = fmt::format("[[variant]] \"{}\"", variant.name);
    if (!IsDirectoryName(variant.name))
      Fail("a variant has no usable name", where, "name = \"...\"");
    if (std::ranges::find(names, variant.name) != names.end()) {
      Fail(fmt::format("two variants are called \"{}\"", variant.name), where, "distinct names");
    }
    names.push_back(variant.name);
    if (variant.shape.has_value() == variant.search.has_value()) {
      Fail(variant.shape ? "the variant has a shape and a search" : "the variant has no shape",
           where, "either shape = \"L4-d128-a4x32-f1x512\" or a [variant.search] table");
    }
  }
  if (std::ranges::find(names, baseline) == names.end()) {
    Fail(fmt::format("there is no variant called \"{}\"", baseline), "baseline",
         fmt::format("one of {}", fmt::join(names, ", ")), DidYouMean(baseline, names));
  }
  if (seeds.empty())
    Fail("no seeds are given", "seeds", "at least one, better two: seeds = [1, 2]");
  if (std::set(seeds.begin(), seeds.end()).size() != seeds.size()) {
    Fail("a seed is given twice", "seeds", "distinct seeds: a repeated run shows nothing new");
  }
  if (std::ranges::any_of(seeds, [](int64_t seed) { return seed < 0; })) {
    Fail("a seed is negative", "seeds", "whole numbers from 0");
  }
  if (budget < 0) Fail("the budget is negative", "budget", "0 (the baseline's) or parameters");
  if (!(tolerance >= 0 && tolerance < 1)) {
    Fail(fmt::format("tolerance = {} makes no sense", tolerance), "tolerance",
         "a small fraction: 1e-5 is 0.001 %");
  }
  if (text.prepared.empty() == text.corpus.inputs.empty()) {
    Fail(text.prepared.empty() ? "no text is given" : "raw text and a prepared directory are given",
         "[text]", "either inputs = [\"book.txt\"] or prepared = \"data/book\"");
  }
  if (text.prepared.empty() && text.vocabulary < 257) {
    Fail(fmt::format("a vocabulary of {} is too small", text.vocabulary), "text.vocabulary",
         "at least 257: the 256 bytes and end-of-text");
  }
  if (!(text.validation > 0 && text.validation < 1)) {
    Fail(fmt::format("validation = {} makes no sense", text.validation), "text.validation",
         "a share of the documents, between 0 and 1");
  }
  train.options.Validate();
  optimizer.Validate();
}

MatchedPlan PlanVariants(const Recipe& recipe, int vocabulary) {
  const auto with_vocabulary = [&](const VariantOptions& variant) {
    ModelConfig config = variant.model.config;
    config.shape = variant.shape.value_or(Shape{});
    if (config.vocabulary == 0) config.vocabulary = vocabulary;
    return config;
  };
  const VariantOptions& baseline =
      *std::ranges::find(recipe.variants, recipe.baseline, &VariantOptions::name);
  Budget budget;
  if (!baseline.search) {
    const ModelConfig config = with_vocabulary(baseline);
    config.Validate();
    budget = Budget::Of(config, recipe.match);
  }
  if (recipe.budget > 0) budget.parameters = recipe.budget;
  if (budget.parameters == 0) {
    Fail("nothing says how many parameters to match", "budget",
         "a budget, or a baseline with a shape",
         "write budget = 1e6, or give the baseline a shape instead of a search");
  }

  MatchedPlan plan{.budget = budget.parameters};
  for (const VariantOptions& variant : recipe.variants) {
    ModelConfig config = with_vocabulary(variant);
    if (variant.search) {
      const SearchResult result = SearchShapes(config, budget, *variant.search);
      if (result.solutions.empty()) {
        ErrorParts parts = ExplainNoSolution(result, *variant.search);
        parts.where = fmt::format("[[variant]] \"{}\"", variant.name);
        throw Error(parts);
      }
      config.shape = result.solutions.front().shape;
    }
    config.Validate();
    const int64_t parameters = CountOf(CountParameters(config), recipe.match);
    const double difference =
        static_cast<double>(parameters - plan.budget) / static_cast<double>(plan.budget);
    if (std::fabs(difference) > recipe.tolerance) {
      Fail(fmt::format("{} has {} {} parameters, {:+.4f} % off the budget of {}",
                       config.shape.ToString(), parameters, EnumName(recipe.match),
                       100 * difference, plan.budget),
           fmt::format("[[variant]] \"{}\"", variant.name),
           fmt::format("within {:.4f} %", 100 * recipe.tolerance),
           "replace its shape by a [variant.search] table, which finds one that fits; "
           "`sandglass plan --baseline` shows the choice");
    }
    plan.variants.push_back({variant.name, variant.model.family, config, parameters, difference});
  }
  return plan;
}

}  // namespace sandglass
