#include "train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "model/model.h"
#include "train/schedule.h"

namespace sandglass {
namespace {

void Require(bool condition, const char* key, const std::string& value, const char* expected) {
  if (condition) return;
  throw Error({.what = fmt::format("{} = {} makes no sense", key, value),
               .where = key,
               .expected = expected});
}

}  // namespace

Precision Resolve(Precision precision, const std::function<void(std::string_view)>& note) {
  const std::string obstacle = WhyBF16IsNoFaster();
  if (precision == Precision::kBF16 && !obstacle.empty()) {
    note("precision: bf16 as asked for, but no faster than f32 here: " + obstacle);
  }
  if (precision != Precision::kAuto) return precision;
  note(obstacle.empty() ? "precision: bf16" : "precision: f32, because " + obstacle);
  return obstacle.empty() ? Precision::kBF16 : Precision::kF32;
}

DType ActivationType(Precision precision) {
  SANDGLASS_CHECK(precision != Precision::kAuto, "resolve the precision first");
  return precision == Precision::kBF16 ? DType::kBF16 : DType::kF32;
}

std::string DescribeCompute(const Backend& backend, Precision precision) {
  const Precision resolved = Resolve(precision, [](std::string_view) {});
  return backend.Description() + ", " + EnumName(resolved);
}

double& PerRole::operator[](ParamRole role) {
  switch (role) {
    case ParamRole::kAttention:
      return attention;
    case ParamRole::kFfn:
      return ffn;
    case ParamRole::kNorm:
      return norm;
    case ParamRole::kQkNorm:
      return qk_norm;
    case ParamRole::kEmbedding:
      return embedding;
    case ParamRole::kHead:
      break;
  }
  return head;
}

double OptimizerOptions::WeightDecayOf(ParamRole role) const {
  return std::ranges::find(decay, role) != decay.end() ? weight_decay : 0.0;
}

void OptimizerOptions::Validate() const {
  const auto require = [](bool condition, const char* key, double value, const char* expected) {
    Require(condition && std::isfinite(value), key, fmt::format("{}", value), expected);
  };
  require(learning_rate > 0, "optimizer.learning_rate", learning_rate, "a positive number");
  require(min_learning_rate.value_or(0) >= 0 && min_learning_rate.value_or(0) <= learning_rate,
          "optimizer.min_learning_rate", min_learning_rate.value_or(0),
          "between 0 and optimizer.learning_rate");
  require(warmup_steps.value_or(0) >= 0, "optimizer.warmup_steps",
          static_cast<double>(warmup_steps.value_or(0)), "0 or more steps");
  require(beta1 >= 0 && beta1 < 1, "optimizer.beta1", beta1, "in [0, 1)");
  require(beta2 >= 0 && beta2 < 1, "optimizer.beta2", beta2, "in [0, 1)");
  require(epsilon > 0, "optimizer.epsilon", epsilon, "a positive number");
  require(weight_decay >= 0, "optimizer.weight_decay", weight_decay, "0 or more");
  require(clip_norm >= 0, "optimizer.clip_norm", clip_norm, "0 (off) or more");
  require(cooldown_steps.value_or(0) >= 0, "optimizer.cooldown_steps",
          static_cast<double>(cooldown_steps.value_or(0)), "0 or more steps");
  PerRole::VisitFields(learning_rate_factors, [&](const char* role, double factor, const char*) {
    require(factor >= 0, fmt::format("optimizer.learning_rate_factors.{}", role).c_str(), factor,
            "0 (frozen) or more");
  });
  require(muon.learning_rate.value_or(1) > 0, "optimizer.muon.learning_rate",
          muon.learning_rate.value_or(1), "a positive number");
  require(muon.momentum >= 0 && muon.momentum < 1, "optimizer.muon.momentum", muon.momentum,
          "in [0, 1)");
  require(muon.iterations >= 1 && muon.iterations <= 100, "optimizer.muon.iterations",
          muon.iterations, "from 1 to 100; 5 is usual");
  for (const ParamRole role : muon.roles) {
    if (role != ParamRole::kNorm && role != ParamRole::kQkNorm) continue;
    throw Error(
        {.what = fmt::format("Muon cannot update {}: gains are not matrices", EnumName(role)),
         .where = "optimizer.muon.roles",
         .expected = "some of attention, ffn, embedding, head"});
  }
}

void TrainOptions::Validate() const {
  const auto require = [](bool condition, const char* key, auto value, const char* expected) {
    Require(condition, key, fmt::format("{}", value), expected);
  };
  require(tokens >= 0, "train.tokens", tokens, "a positive number of tokens");
  require(tokens_per_parameter >= 0, "train.tokens_per_parameter", tokens_per_parameter,
          "a positive number");
  if ((tokens > 0) == (tokens_per_parameter > 0)) {
    throw Error(
        {.what = tokens > 0 ? "two training budgets are given" : "no training budget is given",
         .where = "[train]",
         .expected = "either tokens or tokens_per_parameter",
         .remedy = "write, for example, tokens = 2e6"});
  }
  if (!branch_from.empty() && !initial_weights.empty()) {
    throw Error({.what = "two beginnings are given",
                 .where = "[train]",
                 .expected = "either branch_from (everything) or initial_weights (weights alone)"});
  }
  require(batch >= 1, "train.batch", batch, "1 or more sequences");
  constexpr int64_t kMostTokensPerStep = int64_t{1} << 24;
  require(length <= kMostTokensPerStep && tokens_per_step() <= kMostTokensPerStep, "train.batch",
          batch, "batch times length of at most 16,777,216 tokens");
  require(batch_start >= 0 && batch_start <= batch, "train.batch_start", batch_start,
          "between 1 and train.batch");
  constexpr int64_t kMostWarmupSteps = 1'000'000;
  require(batch_warmup_steps >= 0 && batch_warmup_steps <= kMostWarmupSteps,
          "train.batch_warmup_steps", batch_warmup_steps, "between 0 and 1,000,000 steps");
  if ((batch_start > 0) != (batch_warmup_steps > 0)) {
    throw Error({.what = batch_start > 0 ? "train.batch_warmup_steps is missing"
                                         : "train.batch_start is missing",
                 .where = "[train]",
                 .expected = "both batch_start and batch_warmup_steps, or neither"});
  }
  require(micro_batch >= 0 && micro_batch <= batch, "train.micro_batch", micro_batch,
          "between 0 and train.batch");
  require(length >= 1, "train.length", length, "1 or more tokens");
  require(eval_every >= 0, "train.eval_every", eval_every, "0 or more steps");
  require(eval_tokens >= 0, "train.eval_tokens", eval_tokens, "0 (all) or more tokens");
  require(checkpoint_every >= 0, "train.checkpoint_every", checkpoint_every, "0 or more steps");
  require(keep_checkpoints >= 1, "train.keep_checkpoints", keep_checkpoints, "1 or more");
  require(keep_every >= 0, "train.keep_every", keep_every, "0 (none) or more steps");
  if (keep_every > 0 && (checkpoint_every == 0 || keep_every % checkpoint_every != 0)) {
    throw Error({.what = fmt::format("no checkpoint is due every {} steps", keep_every),
                 .where = "train.keep_every",
                 .expected = "a multiple of train.checkpoint_every"});
  }
  require(average_decay >= 0 && average_decay < 1, "train.average_decay", average_decay,
          "0 (no average) or below 1, as 0.999");
  require(max_skipped_steps >= 1, "train.max_skipped_steps", max_skipped_steps, "1 or more");
  require(spikes.z_score >= 0 && std::isfinite(spikes.z_score), "train.spikes.z_score",
          spikes.z_score, "0 (off) or a number such as 6");
  require(spikes.window >= 2 && spikes.window <= 100'000, "train.spikes.window", spikes.window,
          "between 2 and 100,000 losses");
  require(spikes.max_rewinds >= 0, "train.spikes.max_rewinds", spikes.max_rewinds, "0 or more");
}

void LogOptions::Validate() const {
  Require(histogram_every.value_or(0) >= 0, "log.histogram_every",
          fmt::format("{}", histogram_every.value_or(0)), "0 (none) or more steps");
}

bool LogOptions::HistogramsDue(int64_t step, int64_t steps) const {
  const int64_t every = histogram_every.value_or(std::max<int64_t>(20, steps / 10));
  return every > 0 && step % every == 0;
}

std::unique_ptr<Backend> SystemOptions::MakeBackend() const {
  if (backend == BackendKind::kReference) return MakeReferenceBackend(DType::kF32);
  if (products == Products::kLibrary && !HasProductLibrary()) {
    throw Error({.what = "there is no library of matrix products to use",
                 .where = "system.products",
                 .expected = "auto or own: this program was built with SANDGLASS_GEMM=none"});
  }
  return MakeCpuBackend(ResolveThreads(threads, "system.threads"), products);
}

RunConfig RunConfig::FromTree(const ConfigTree& tree, const std::vector<std::string>& overrides) {
  std::vector<ConfigTree> layers = {tree};
  for (const std::string& assignment : overrides) layers.push_back(ParseAssignment(assignment));
  // The family decides defaults, so it is looked for first, in the layer that has the last word.
  RunConfig config;
  for (const ConfigTree& layer : layers) {
    const auto model = layer.values.find("model");
    if (model == layer.values.end() || !model->is_object() || !model->contains("family")) continue;
    const Json& family = (*model)["family"];
    if (family.is_string()) {
      config.model.family =
          ParseEnum<Family>(family.get<std::string>(), layer.source + ", model.family");
    }
  }
  config.model.config = FamilyConfig(config.model.family, Shape{}, 0);
  for (const ConfigTree& layer : layers) ReadFields(config, layer);
  return config;
}

void RunConfig::Validate() const {
  if (name.empty() || name.find('/') != std::string::npos) {
    throw Error({.what = fmt::format("\"{}\" cannot name a run", name),
                 .where = "name",
                 .expected = "a non-empty name without slashes"});
  }
  model.config.Validate();
  train.Validate();
  optimizer.Validate();
  log.Validate();
  ResolveThreads(system.threads, "system.threads");
}

int64_t RunConfig::Steps() const {
  double tokens = static_cast<double>(train.tokens);
  if (train.tokens_per_parameter > 0) {
    const Model dry_run(model.config, {});
    const ParamTable& params = dry_run.params();
    tokens = train.tokens_per_parameter *
             static_cast<double>(params.elements() - params.elements(ParamRole::kEmbedding) -
                                 params.elements(ParamRole::kHead));
  }
  return StepsFor(train, tokens);
}

}  // namespace sandglass
