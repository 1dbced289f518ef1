// The budget solver: all shapes that have a given number of parameters, ranked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "model/config.h"
#include "plan/choices.h"
#include "plan/count.h"

namespace sandglass {

// Which count has to meet the budget. "Matched" says nothing without it: a pair matched in
// matrices can differ by 16 % in total.
enum class Match { kMatrices, kNonEmbedding, kTotal };

// What a shape must share with the baseline. kAttention is the number of attention parameters, not
// their arrangement; the others are sizes.
enum class Hold { kAttention, kLayers, kDModel, kHeads, kHeadWidth, kKvHeads, kSubMlps };

// Whether heads x head width may differ from d_model.
enum class AttentionWidth { kFree, kDModel };

template <>
struct EnumNames<Match> {
  static constexpr std::array<std::pair<Match, const char*>, 3> kNames{
      {{Match::kMatrices, "matrices"},
       {Match::kNonEmbedding, "non-embedding"},
       {Match::kTotal, "total"}}};
};
template <>
struct EnumNames<Hold> {
  static constexpr std::array<std::pair<Hold, const char*>, 7> kNames{
      {{Hold::kAttention, "attention"},
       {Hold::kLayers, "layers"},
       {Hold::kDModel, "d_model"},
       {Hold::kHeads, "heads"},
       {Hold::kHeadWidth, "head_width"},
       {Hold::kKvHeads, "kv_heads"},
       {Hold::kSubMlps, "sub_mlps"}}};
};
template <>
struct EnumNames<AttentionWidth> {
  static constexpr std::array<std::pair<AttentionWidth, const char*>, 2> kNames{
      {{AttentionWidth::kFree, "free"}, {AttentionWidth::kDModel, "d_model"}}};
};

// What to search and how; a table of a recipe, or the flags of `sandglass plan`. Sizes that are not
// given are the baseline's (heads, head width, and KV heads in proportion) or the defaults named
// below. The widths of the sub-MLPs are never given: the budget determines them.
struct BudgetSearch {
  Match match = Match::kMatrices;
  double tolerance = 1e-5;  // |parameters - budget| / budget
  std::vector<Hold> hold;
  Choices layers;      // 4..48
  Choices d_model;     // 256..4096:64
  Choices heads;       // without a baseline: d_model / head width
  Choices head_width;  // without a baseline: 64,128
  Choices kv_heads;    // without a baseline: the heads
  AttentionWidth attention_width = AttentionWidth::kFree;
  Choices sub_mlps;  // 1..8
  int d_h_step = 8;
  Range d_h_ratio;
  bool mix_widths = false;
  std::optional<Shape> near;
  int limit = 20;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("match", self.match, "count to match: matrices, non-embedding or total");
    field("tolerance", self.tolerance, "largest relative difference to the budget");
    field("hold", self.hold,
          "what stays as in the baseline: attention (its number of parameters), layers, d_model, "
          "heads, head_width, kv_heads, sub_mlps");
    field("layers", self.layers, "numbers of layers to try, as 12 or 8..24 [4..48]");
    field("d_model", self.d_model, "widths to try, as 1536..4096:64 [256..4096:64]");
    field("heads", self.heads, "numbers of heads to try [the baseline's, or d_model/head_width]");
    field("head_width", self.head_width, "head widths to try [the baseline's, or 64,128]");
    field("kv_heads", self.kv_heads,
          "numbers of KV heads to try [as many heads to each as in the "
          "baseline, or the heads]");
    field("attention_width", self.attention_width,
          "heads x head_width: free, or d_model to follow it");
    field("sub_mlps", self.sub_mlps, "numbers of sub-MLPs (K) to try [1..8]");
    field("d_h_step", self.d_h_step, "sub-MLP widths are multiples of this");
    field("d_h_ratio", self.d_h_ratio,
          "allowed d_h/d_model, as 0.3..0.5 or 0.4, rounded to the step [any]");
    field("mix_widths", self.mix_widths,
          "let the sub-MLPs of a layer have two adjacent widths (d_h and d_h + step)");
    field("near", self.near, "rank by closeness to this shape");
    field("limit", self.limit, "number of shapes to list");
  }
};

// A number of parameters to meet, and the shape that it comes from, if any.
struct Budget {
  int64_t parameters = 0;  // counted as the search's `match` says
  std::optional<Shape> baseline;

  static Budget Of(const ModelConfig& baseline, Match match);
};

struct Solution {
  Shape shape;
  int64_t parameters = 0;  // the matched count
  double error = 0.0;      // (parameters - budget) / budget
  double cost = 0.0;       // of the ranking, see SearchShapes
};

// A change of one constraint that makes an empty search succeed.
struct Relaxation {
  std::string change;  // "layers = 1..96 (now held)"
  int64_t found = 0;
  Shape best;
};

struct SearchResult {
  Budget budget;
  int64_t combinations = 0;         // examined; each stands for all its widths
  int64_t found = 0;                // shapes within the tolerance
  std::vector<Solution> solutions;  // the first `limit` of them
  // If nothing was found: the closest shapes, one for each combination, and what would help.
  std::vector<Solution> nearest;
  std::vector<Relaxation> relaxations;
};

int64_t CountOf(const ParameterCounts& counts, Match match);

// The largest of 256, 128, 64 ... 1 that divides d_model, heads x head width and every d_h.
int WidthAlignment(const Shape& shape);

// Finds every shape within the tolerance; `variant` gives everything but the shape. The order:
//   1. uniform widths before mixed ones;
//   2. lowest cost = distance + 0.05 * log2(256 / alignment): shapes whose widths suit hardware and
//      quantisation, unless one that is less aligned lies clearly closer. The distance sums natural
//      logarithms of ratios: to `near` if given (L, D, H*E, KV*E, K and sum(d_h)), else to the
//      region that the paper found best: d_model/L in 100..250 and, for K >= 4, d_h/d_model = 0.4.
//      Below K = 4, of which the paper says nothing, the FFN is held against conventional ones:
//      sum(d_h)/d_model in 8/3..4;
//   3. smallest |error|; 4. the smaller L, D, H, E, KV, K, widths.
// Throws Error for contradictory or absurdly wide searches.
SearchResult SearchShapes(const ModelConfig& variant, const Budget& budget,
                          const BudgetSearch& search);

// What to tell the user about a search that found nothing.
ErrorParts ExplainNoSolution(const SearchResult& result, const BudgetSearch& search);

}  // namespace sandglass
