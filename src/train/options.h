// How a run trains. Everything here stands in the run file; names are the keys.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "data/data_set.h"
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

// One number for each kind of parameter.
struct PerRole {
  double attention = 0.0;
  double ffn = 0.0;
  double norm = 0.0;
  double qk_norm = 0.0;
  double embedding = 0.0;
  double head = 0.0;

  static PerRole All(double value) { return {value, value, value, value, value, value}; }
  double& operator[](ParamRole role);
  double operator[](ParamRole role) const { return const_cast<PerRole&>(*this)[role]; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("attention", self.attention, "matrices of attention");
    field("ffn", self.ffn, "matrices of the sub-MLPs");
    field("norm", self.norm, "gains of the norms");
    field("qk_norm", self.qk_norm, "gains of the norms of queries and keys");
    field("embedding", self.embedding, "input embeddings (and the head, if tied)");
    field("head", self.head, "output matrix");
  }
};

// How the learning rate goes on after the warm-up (train/schedule.h):
//   cosine    half a cosine to the minimum at the last step
//   linear    a straight line to the minimum at the last step
//   wsd       constant, then a cool-down to the minimum over the last cooldown_steps
//   constant  constant
enum class Schedule { kCosine, kLinear, kWsd, kConstant };
template <>
struct EnumNames<Schedule> {
  static constexpr std::array<std::pair<Schedule, const char*>, 4> kNames{
      {{Schedule::kCosine, "cosine"},
       {Schedule::kLinear, "linear"},
       {Schedule::kWsd, "wsd"},
       {Schedule::kConstant, "constant"}}};
};

// The way down at the end of wsd: a straight line, or 1 - sqrt(progress), which is faster at first.
enum class CoolDown { kLinear, kSqrt };
template <>
struct EnumNames<CoolDown> {
  static constexpr std::array<std::pair<CoolDown, const char*>, 2> kNames{
      {{CoolDown::kLinear, "linear"}, {CoolDown::kSqrt, "sqrt"}}};
};

enum class OptimizerKind { kAdamW, kMuon };
template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array<std::pair<OptimizerKind, const char*>, 2> kNames{
      {{OptimizerKind::kAdamW, "adamw"}, {OptimizerKind::kMuon, "muon"}}};
};

// What an orthogonalised update [rows, cols] is multiplied by:
//   rms       0.2 sqrt(max(rows, cols)): as large as a usual AdamW update, so that learning rates
//             and decay carry over ("Muon is scalable for LLM training", arXiv 2502.16982)
//   spectral  sqrt(max(1, rows / cols))
enum class MuonScale { kRms, kSpectral };
template <>
struct EnumNames<MuonScale> {
  static constexpr std::array<std::pair<MuonScale, const char*>, 2> kNames{
      {{MuonScale::kRms, "rms"}, {MuonScale::kSpectral, "spectral"}}};
};

struct MuonOptions {
  std::vector<ParamRole> roles = {ParamRole::kAttention, ParamRole::kFfn};
  std::optional<double> learning_rate;  // optimizer.learning_rate
  double momentum = 0.95;
  bool nesterov = true;
  int iterations = 5;
  MuonScale scale = MuonScale::kRms;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("roles", self.roles, "matrices that Muon updates: attention, ffn, embedding, head");
    field("learning_rate", self.learning_rate, "peak; default: optimizer.learning_rate");
    field("momentum", self.momentum, "decay of the sum of gradients");
    field("nesterov", self.nesterov, "look ahead by one gradient");
    field("iterations", self.iterations, "of Newton and Schulz");
    field("scale", self.scale, "size of an update: rms (as AdamW's) or spectral");
  }
};

// The optimizer and its schedule.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  PerRole learning_rate_factors = PerRole::All(1.0);
  Schedule schedule = Schedule::kCosine;
  std::optional<double> min_learning_rate;  // a tenth of learning_rate
  std::optional<int64_t> warmup_steps;      // min(100, steps / 10)
  std::optional<int64_t> cooldown_steps;    // steps / 5
  CoolDown cooldown = CoolDown::kLinear;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  std::vector<ParamRole> decay = {ParamRole::kAttention, ParamRole::kFfn, ParamRole::kEmbedding,
                                  ParamRole::kHead};
  double clip_norm = 1.0;  // 0 switches clipping off
  MuonOptions muon;

  void Validate() const;
  double WeightDecayOf(ParamRole role) const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("kind", self.kind, "adamw, or muon for the matrices of muon.roles and adamw elsewhere");
    field("learning_rate", self.learning_rate, "peak learning rate");
    field("learning_rate_factors", self.learning_rate_factors, "by kind of parameter");
    field("schedule", self.schedule, "after the warm-up: cosine, linear, wsd or constant");
    field("min_learning_rate", self.min_learning_rate, "at the end; default: a tenth of the peak");
    field("warmup_steps", self.warmup_steps, "linear warm-up; default: min(100, steps / 10)");
    field("cooldown_steps", self.cooldown_steps, "last steps of wsd; default: steps / 5");
    field("cooldown", self.cooldown, "the way down of wsd: linear or sqrt");
    field("beta1", self.beta1, "decay of the first moment");
    field("beta2", self.beta2, "decay of the second moment");
    field("epsilon", self.epsilon, "added to the root of the second moment");
    field("weight_decay", self.weight_decay, "decoupled weight decay");
    field("decay", self.decay,
          "parameter groups that decay: attention, ffn, norm, qk_norm, embedding, head");
    field("clip_norm", self.clip_norm, "largest global gradient norm; 0: no clipping");
    field("muon", self.muon, "for kind = \"muon\"");
  }
};

// What is done when the loss jumps (train/spike_detector.h).
enum class SpikeAction { kNote, kRewind };
template <>
struct EnumNames<SpikeAction> {
  static constexpr std::array<std::pair<SpikeAction, const char*>, 2> kNames{
      {{SpikeAction::kNote, "note"}, {SpikeAction::kRewind, "rewind"}}};
};

struct SpikeOptions {
  double z_score = 0.0;
  int window = 100;
  SpikeAction action = SpikeAction::kNote;
  int max_rewinds = 5;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("z_score", self.z_score,
          "standard deviations above the mean of the last losses that make a spike; 0: off");
    field("window", self.window, "losses that mean and deviation are taken over");
    field("action", self.action,
          "note, or rewind: back to the last scheduled checkpoint, and past the data since");
    field("max_rewinds", self.max_rewinds, "after so many the run stops");
  }
};

// Type of activations and of the factors of matrix products. Weights, moments, gradients, the
// residual stream and all sums are f32 in any case.
enum class Precision { kAuto, kF32, kBF16 };
template <>
struct EnumNames<Precision> {
  static constexpr std::array<std::pair<Precision, const char*>, 3> kNames{
      {{Precision::kAuto, "auto"}, {Precision::kF32, "f32"}, {Precision::kBF16, "bf16"}}};
};

// kAuto becomes kBF16 where this machine is faster at it and kF32 elsewhere; `note` is told what
// was chosen and why, also where kBF16 was asked for in vain.
Precision Resolve(Precision precision, const std::function<void(std::string_view)>& note);
// Of a resolved precision.
DType ActivationType(Precision precision);
// What computes, as runs, reports and the first line of a training say it:
// "cpu: AVX2, own products, 2 threads, f32".
std::string DescribeCompute(const Backend& backend, Precision precision);

struct TrainOptions {
  int64_t tokens = 0;
  double tokens_per_parameter = 0.0;
  std::string branch_from;
  std::string initial_weights;
  int batch = 16;
  int batch_start = 0;
  int64_t batch_warmup_steps = 0;
  int micro_batch = 0;
  int length = 256;
  Precision precision = Precision::kF32;
  uint64_t seed = 1;
  int64_t eval_every = 0;
  int64_t eval_tokens = 0;
  int64_t checkpoint_every = 0;
  int keep_checkpoints = 2;
  int64_t keep_every = 0;
  double average_decay = 0.0;
  int max_skipped_steps = 10;
  SpikeOptions spikes;

  void Validate() const;
  // Sequences that go through the model at a time.
  int effective_micro_batch() const { return micro_batch > 0 ? micro_batch : batch; }
  int64_t tokens_per_step() const { return int64_t{batch} * length; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokens", self.tokens, "budget in tokens, rounded up to whole steps");
    field("tokens_per_parameter", self.tokens_per_parameter,
          "budget in tokens per non-embedding parameter, instead of tokens");
    field("branch_from", self.branch_from,
          "run directory or checkpoint to start from: weights, optimizer, step and data position");
    field("initial_weights", self.initial_weights,
          "run directory, Hugging Face directory or GGUF file to take only the weights from");
    field("batch", self.batch, "sequences per optimizer step");
    field("batch_start", self.batch_start, "sequences of the first step, if the batch warms up");
    field("batch_warmup_steps", self.batch_warmup_steps,
          "steps over which the batch grows from batch_start to batch");
    field("micro_batch", self.micro_batch, "sequences at a time, the rest is accumulated; 0: all");
    field("length", self.length, "tokens per sequence");
    field("precision", self.precision,
          "activations and factors of products: f32, bf16, or auto (bf16 where it is faster)");
    field("seed", self.seed, "of the initial weights and of the data order");
    field("eval_every", self.eval_every, "steps between validations; 0: a tenth of the run");
    field("eval_tokens", self.eval_tokens, "validation tokens used while training; 0: all");
    field("checkpoint_every", self.checkpoint_every, "steps between checkpoints; 0: at the end");
    field("keep_checkpoints", self.keep_checkpoints, "newest checkpoints that are kept");
    field("keep_every", self.keep_every,
          "steps between checkpoints that are kept for good; 0: none");
    field("average_decay", self.average_decay,
          "of an exponential average of the weights, evaluated beside them; 0: none");
    field("max_skipped_steps", self.max_skipped_steps,
          "consecutive steps with a non-finite loss or gradient before the run stops");
    field("spikes", self.spikes, "detection of loss spikes");
  }
};

enum class BackendKind { kCpu, kReference };
template <>
struct EnumNames<BackendKind> {
  static constexpr std::array<std::pair<BackendKind, const char*>, 2> kNames{
      {{BackendKind::kCpu, "cpu"}, {BackendKind::kReference, "reference"}}};
};

template <>
struct EnumNames<Products> {
  static constexpr std::array<std::pair<Products, const char*>, 3> kNames{
      {{Products::kAuto, "auto"}, {Products::kOwn, "own"}, {Products::kLibrary, "library"}}};
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
  Products products = Products::kAuto;
  Recompute recompute = Recompute::kCheap;
  bool background_saves = true;

  std::unique_ptr<Backend> MakeBackend() const;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("backend", self.backend, "cpu, or reference (slow, for checking)");
    field("threads", self.threads, "0: as many CPUs as this process may use");
    field("products", self.products,
          "who multiplies matrices: own, the library, or auto (own, but for bf16 with AMX)");
    field("recompute", self.recompute,
          "what the backward pass computes again to save memory: nothing, cheap (elementwise) ops "
          "or every layer");
    field("background_saves", self.background_saves,
          "write checkpoints while training goes on, if there is memory for a copy");
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
    field("data", self.data, "token streams for training and validation");
    field("train", self.train, "budget, batch, validation, checkpoints");
    field("optimizer", self.optimizer, "optimizer and schedule");
    field("log", self.log, "what is recorded beside the metrics");
    field("system", self.system, "backend, threads, memory");
  }
};

}  // namespace sandglass
