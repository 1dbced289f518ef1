// A comparison as a TOML file: what is matched, which shapes, on what text, trained how.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_trainer.h"
#include "data/corpus.h"
#include "plan/solver.h"
#include "train/options.h"

namespace sandglass {

// The text: raw inputs, from which a tokenizer is trained and token shards are made, or a directory
// that is prepared already.
struct TextOptions {
  CorpusOptions corpus;
  double validation = 0.05;
  uint64_t split_seed = 0;
  int vocabulary = 4096;
  SplitPattern pattern = SplitPattern::kGpt2;
  std::string prepared;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    CorpusOptions::VisitFields(self.corpus, field);
    field("validation", self.validation, "share of the documents kept for validation");
    field("split_seed", self.split_seed, "of the split into training and validation");
    field("vocabulary", self.vocabulary, "size of the tokenizer that is trained on the text");
    field("pattern", self.pattern, "how the tokenizer splits text: gpt2 or cl100k");
    field("prepared", self.prepared, "a directory of `sandglass prepare`, instead of inputs");
  }
};

// One model of the comparison: a shape, or a search that finds the shape of the right size.
struct VariantOptions {
  std::string name;
  std::optional<Shape> shape;
  std::optional<BudgetSearch> search;
  ModelSection model;  // everything but the shape

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "name in the report");
    field("shape", self.shape, "sizes, as L12-d768-a12x64-f8x384[-kv4]; or a search");
    ModelSection::VisitFields(self.model, [&](const char* key, auto& value, const char* help) {
      if (std::string_view(key) != "shape") field(key, value, help);
    });
    field("search", self.search, "finds the shape: the keys of `sandglass plan --baseline`");
  }
};

// Training options without the seed: a recipe lists `seeds`.
struct RecipeTraining {
  TrainOptions options;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    TrainOptions::VisitFields(self.options, [&](const char* key, auto& value, const char* help) {
      if (std::string_view(key) != "seed") field(key, value, help);
    });
  }
};

struct Recipe {
  std::string name;
  std::string title;
  std::string question;
  std::string baseline;
  Match match = Match::kMatrices;
  int64_t budget = 0;
  double tolerance = 1e-5;
  std::vector<int64_t> seeds = {1, 2};
  TextOptions text;
  RecipeTraining train;
  OptimizerOptions optimizer;
  SystemOptions system;
  std::vector<VariantOptions> variants;

  // Reads and checks a recipe; `overrides` are `key=value` assignments. Throws Error.
  static Recipe Load(const std::string& path, const std::vector<std::string>& overrides);
  static Recipe FromTree(const ConfigTree& tree, const std::vector<std::string>& overrides);
  void Validate() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "of the directory under runs/");
    field("title", self.title, "of the report");
    field("question", self.question, "that the comparison answers");
    field("baseline", self.baseline, "variant that the others are matched and compared with");
    field("match", self.match, "count that is matched: matrices, non-embedding or total");
    field("budget", self.budget, "parameters to match; 0: the baseline's");
    field("tolerance", self.tolerance, "largest relative difference to the budget");
    field("seeds", self.seeds, "each variant is trained once with each");
    field("text", self.text, "the text and how it becomes tokens");
    field("train", self.train, "budget in tokens, batch, validation");
    field("optimizer", self.optimizer, "optimizer and schedule");
    field("system", self.system, "backend, threads, memory");
    field("variant", self.variants, "the models");
  }
};

// A variant whose shape is known.
struct PlannedVariant {
  std::string name;
  Family family = Family::kLlama;
  ModelConfig config;
  int64_t matched_parameters = 0;
  double relative_difference = 0.0;  // to the budget
};

// The budget that the variants meet.
struct MatchedPlan {
  int64_t budget = 0;
  std::vector<PlannedVariant> variants;  // in the order of the recipe
};

// Solves every search and checks every given shape. `vocabulary` is the tokenizer's. Throws Error
// if a shape misses the budget by more than the tolerance, or if a search finds nothing.
MatchedPlan PlanVariants(const Recipe& recipe, int vocabulary);

}  // namespace sandglass
