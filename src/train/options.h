// How a run trains. Everything here stands in the run file; names are the keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "model/config.h"
#include "model/sub_layer.h"
#include "tensor/param_table.h"

namespace sandglass {

template <>
struct EnumNames<ParamRole> {
  static constexpr std::array<std::pair<ParamRole, const char*>, kParamRoles> kNames{
      {{ParamRole::kAttention, "attention"},
       {ParamRole::kFfn, "ffn"},
       {ParamRole::kNorm, "norm"},
       {ParamRole::kQkNorm, "qk_norm"},
       {ParamRole::kEmbedding, "embedding"},
       {ParamRole::kHead, "head"}}};
};

// AdamW and its schedule: linear warm-up, then cosine to the minimum.
struct OptimizerOptions {
  double learning_rate = 1e-3;
  std::optional<double> min_learning_rate;  // a tenth of learning_rate
  std::optional<int64_t> warmup_steps;      // min(100, steps / 10)
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  std::vector<ParamRole> decay = {ParamRole::kAttention, ParamRole::kFfn, ParamRole::kEmbedding,
                                  ParamRole::kHead};
  double clip_norm = 1.0;  // 0 switches clipping off

  void Validate() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("learning_rate", self.learning_rate, "peak learning rate");
    field("min_learning_rate", self.min_learning_rate, "at the end; default: a tenth of the peak");
    field("warmup_steps", self.warmup_steps, "linear warm-up; default: min(100, steps / 10)");
    field("beta1", self.beta1, "decay of the first moment");
    field("beta2", self.beta2, "decay of the second moment");
    field("epsilon", self.epsilon, "added to the root of the second moment");
    field("weight_decay", self.weight_decay, "decoupled weight decay");
    field("decay", self.decay,
          "parameter groups that decay: attention, ffn, norm, qk_norm, embedding, head");
    field("clip_norm", self.clip_norm, "largest global gradient norm; 0: no clipping");
  }
};

struct TrainOptions {
  int64_t tokens = 0;
  double tokens_per_parameter = 0.0;
  int batch = 16;
  int micro_batch = 0;
  int length = 256;
  uint64_t seed = 1;
  int64_t eval_every = 0;
  int64_t eval_tokens = 0;
  int64_t checkpoint_every = 0;
  int keep_checkpoints = 2;
  int max_skipped_steps = 10;

  void Validate() const;
  // Sequences that go through the model at a time.
  int effective_micro_batch() const { return micro_batch > 0 ? micro_batch : batch; }
  int64_t tokens_per_step() const { return int64_t{batch} * length; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokens", self.tokens, "budget in tokens, rounded up to whole steps");
    field("tokens_per_parameter", self.tokens_per_parameter,
          "budget in tokens per non-embedding parameter, instead of tokens");
    field("batch", self.batch, "sequences per optimizer step");
    field("micro_batch", self.micro_batch, "sequences at a time, the rest is accumulated; 0: all");
    field("length", self.length, "tokens per sequence");
    field("seed", self.seed, "of the initial weights and of the data order");
    field("eval_every", self.eval_every, "steps between validations; 0: a tenth of the run");
    field("eval_tokens", self.eval_tokens, "validation tokens used while training; 0: all");
    field("checkpoint_every", self.checkpoint_every, "steps between checkpoints; 0: at the end");
    field("keep_checkpoints", self.keep_checkpoints, "newest checkpoints that are kept");
    field("max_skipped_steps", self.max_skipped_steps,
          "consecutive steps with a non-finite loss or gradient before the run stops");
  }
};

struct DataOptions {
  std::string path;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("path", self.path, "directory that `sandglass prepare` wrote");
  }
};

enum class BackendKind { kCpu, kReference };
template <>
struct EnumNames<BackendKind> {
  static constexpr std::array<std::pair<BackendKind, const char*>, 2> kNames{
      {{BackendKind::kCpu, "cpu"}, {BackendKind::kReference, "reference"}}};
};

// What a run records beside its metrics. Changes nothing of what is computed.
struct LogOptions {
  std::optional<int64_t> histogram_every;  // max(20, steps / 10)

  void Validate() const;
  // Whether histograms are due after `step` of `steps`.
  bool HistogramsDue(int64_t step, int64_t steps) const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("histogram_every", self.histogram_every,
          "steps between histograms of weights and gradients for TensorBoard; 0: none; default: "
          "max(20, steps / 10)");
  }
};

// Settings that change speed and memory but not what is computed (but for rounding).
struct SystemOptions {
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;
  Recompute recompute = Recompute::kCheap;

  std::unique_ptr<Backend> MakeBackend() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("backend", self.backend, "cpu, or reference (slow, for checking)");
    field("threads", self.threads, "0: as many CPUs as this process may use");
    field(
        "recompute", self.recompute,
        "what the backward pass computes again to save memory: nothing or cheap (elementwise) ops");
  }
};

// A model section names a family for its defaults; every other key of ModelConfig overrides them.
struct ModelSection {
  Family family = Family::kLlama;
  ModelConfig config;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("family", self.family, "llama, hourglass or olmo2: defaults for the keys below");
    ModelConfig::VisitFields(self.config, field);
  }
};

// A run file.
struct RunConfig {
  std::string name = "run";
  ModelSection model;
  DataOptions data;
  TrainOptions train;
  OptimizerOptions optimizer;
  LogOptions log;
  SystemOptions system;

  // Reads `tree` and the `--set` overrides over the defaults of the model's family.
  static RunConfig FromTree(const ConfigTree& tree, const std::vector<std::string>& overrides = {});
  void Validate() const;
  // Optimizer steps that the token budget makes. Non-embedding parameters are counted as in `plan`.
  int64_t Steps() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "name of the run in reports");
    field("model", self.model, "shape and architecture");
    field("data", self.data, "prepared tokens");
    field("train", self.train, "budget, batch, validation, checkpoints");
    field("optimizer", self.optimizer, "AdamW and its schedule");
    field("log", self.log, "what is recorded beside the metrics");
    field("system", self.system, "backend, threads, memory");
  }
};

}  // namespace sandglass
