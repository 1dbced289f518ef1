#include "train/trainer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <vector>

#include "base/cpu.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/program.h"
#include "data/samples.h"
#include "eval/perplexity.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"

namespace sandglass {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The vocabulary comes from the tokenizer unless the run file gives a larger one.
RunConfig Resolve(RunConfig config, const Tokenizer& tokenizer) {
  int& vocabulary = config.model.config.vocabulary;
  if (vocabulary == 0) vocabulary = tokenizer.vocabulary();
  config.Validate();
  if (vocabulary < tokenizer.vocabulary()) {
    throw Error({.what = fmt::format("the model has {} token ids, the tokenizer {}", vocabulary,
                                     tokenizer.vocabulary()),
                 .where = "model.vocabulary",
                 .expected = "at least the tokenizer's, or 0 to take it over"});
  }
  return config;
}

RunInfo DescribeRun(const PreparedData& data, const Backend& backend) {
  return {.version = SANDGLASS_VERSION,
          .started = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::time(nullptr))),
          .cpu = CpuModelName(),
          .backend = backend.Description(),
          .tokenizer_hash = data.tokenizer.hash(),
          .train_hash = data.train.info().content_hash,
          .validation_hash = data.validation.info().content_hash,
          .build = ProgramBuild(),
          .compiler = CompilerName(),
          .host = HostName(),
          .system = SystemName()};
}

void CheckSameRun(const std::string& directory, const RunConfig& config, const RunInfo& info) {
  // Settings of speed and memory may change, and what is recorded.
  std::vector<std::string> differences =
      Differences(ReadRunConfig(directory), config, {"system", "log"});
  const RunInfo before = ReadRunInfo(directory);
  if (before.tokenizer_hash != info.tokenizer_hash || before.train_hash != info.train_hash ||
      before.validation_hash != info.validation_hash) {
    differences.push_back("the contents of data.path");
  }
  if (differences.empty()) return;
  throw Error({.what = fmt::format("the directory holds a run of another configuration: {}",
                                   fmt::join(differences, ", ")),
               .where = directory,
               .remedy = "choose another --out, or --fresh to discard the old run"});
}

class Trainer {
 public:
  Trainer(const RunConfig& config, PreparedData data, std::unique_ptr<Backend> ops,
          const std::string& directory, const TrainCallbacks& callbacks);

  // Touches the run directory for the first time. Nothing if it was interrupted, and saved.
  std::optional<RunResult> Run();

 private:
  void Resume();
  // Throws Interrupted between steps or during validation.
  RunResult RunSteps(MetricsLog& metrics);
  StepMetrics Step();
  // Runs the batch's sequences through the model, a micro-batch at a time.
  LossSums Accumulate();
  Score Validate(int64_t max_tokens);
  void Save(MetricsLog& metrics);
  RunResult Result(const Score& score);
  bool Due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  const RunConfig& config_;
  PreparedData data_;
  std::string directory_;
  const TrainCallbacks& callbacks_;
  int64_t steps_;
  int64_t eval_every_;
  std::unique_ptr<Backend> ops_;
  Model model_;
  std::optional<AdamW> optimizer_;
  TrainSamples samples_;
  EvalWindows validation_;
  TrainState state_;
  int64_t saved_step_ = -1;
  bool measures_memory_ = false;
  int consecutive_skips_ = 0;
  std::vector<int32_t> ids_;      // [batch, length]
  std::vector<int32_t> targets_;  // [batch, length]
};

Trainer::Trainer(const RunConfig& config, PreparedData data, std::unique_ptr<Backend> ops,
                 const std::string& directory, const TrainCallbacks& callbacks)
    : config_(config),
      data_(std::move(data)),
      directory_(directory),
      callbacks_(callbacks),
      steps_(config.Steps()),
      eval_every_(config.train.eval_every > 0 ? config.train.eval_every
                                              : std::max<int64_t>(1, steps_ / 10)),
      ops_(std::move(ops)),
      model_(config.model.config, {.purpose = Purpose::kTrain,
                                   .batch = config.train.effective_micro_batch(),
                                   .length = config.train.length,
                                   .recompute = config.system.recompute}),
      samples_(data_.train, config.train.length, config.train.seed),
      validation_(data_.validation, config.train.length),
      ids_(config.train.tokens_per_step()),
      targets_(config.train.tokens_per_step()) {
  measures_memory_ = ResetPeakMemory();
  model_.Allocate(*ops_);
  optimizer_.emplace(model_.params(), config.optimizer);
}

void Trainer::Resume() {
  if (const auto checkpoint = FindCheckpoint(directory_, callbacks_.note)) {
    state_ = LoadCheckpoint(*checkpoint, model_.params(), *optimizer_);
    saved_step_ = state_.step;
    callbacks_.note(fmt::format("continuing from step {} of {}", state_.step, steps_));
  } else {
    model_.params().Initialize(config_.train.seed);
  }
}

std::optional<RunResult> Trainer::Run() {
  Resume();
  MetricsLog metrics(directory_, state_.step);
  try {
    return RunSteps(metrics);
  } catch (const Interrupted&) {
    Save(metrics);
    return std::nullopt;
  }
}

RunResult Trainer::RunSteps(MetricsLog& metrics) {
  const int64_t tokens_per_step = config_.train.tokens_per_step();
  Progress progress(config_.name, steps_ * tokens_per_step, "tokens", callbacks_.progress);
  progress.SkipTo(state_.step * tokens_per_step);
  const auto validate = [&](int64_t max_tokens) {
    const Score score = Validate(max_tokens);
    metrics.Add(ValidationMetrics{state_.step, state_.tokens, score.loss(), score.perplexity(),
                                  score.bits_per_byte()});
    return score;
  };
  while (state_.step < steps_) {
    if (InterruptRequested()) throw Interrupted{};
    // At the head of the loop, so that a validation that was interrupted is made up for.
    const bool due = state_.step > 0 && Due(eval_every_);
    if (due && metrics.last_validation() != state_.step) validate(config_.train.eval_tokens);
    const StepMetrics step = Step();
    metrics.Add(step);
    if (config_.log.HistogramsDue(state_.step, steps_)) {
      metrics.AddHistograms(state_.step, model_.params());
    }
    callbacks_.step(step);
    progress.Update(state_.step * tokens_per_step, fmt::format("loss {:.3f}", step.loss));
    if (Due(config_.train.checkpoint_every)) Save(metrics);
  }
  const Score score = validate(0);
  Save(metrics);
  const RunResult result = Result(score);
  WriteFileAtomically(ResultPath(directory_), WriteFields(result).dump(2) + "\n");
  progress.Finish(fmt::format("validation loss {:.4f}, {:.4f} bits per byte", score.loss(),
                              score.bits_per_byte()));
  return result;
}

StepMetrics Trainer::Step() {
  const Clock::time_point start = Clock::now();
  const int64_t first = FirstPosition(state_.step + 1, config_.train.batch);
  const int length = config_.train.length;
  for (int b = 0; b < config_.train.batch; ++b) {
    const size_t begin = size_t(b) * length;
    samples_.Fill(first + b, std::span(ids_).subspan(begin, length),
                  std::span(targets_).subspan(begin, length));
  }
  ops_->Zero(model_.params().grads());
  const LossSums sums = Accumulate();

  StepMetrics metrics;
  metrics.step = ++state_.step;
  metrics.tokens = state_.tokens += sums.tokens;
  metrics.loss = sums.cross_entropy / static_cast<double>(sums.tokens);
  metrics.z_loss = sums.z_loss / static_cast<double>(sums.tokens);
  metrics.learning_rate = LearningRateAt(config_.optimizer, state_.step, steps_);
  metrics.gradient_norm = AdamW::GradientNorm(*ops_, model_.params());
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm);
  if (metrics.skipped) {
    ++state_.skipped_steps;
    if (++consecutive_skips_ >= config_.train.max_skipped_steps) {
      throw Error(
          {.what = fmt::format("loss or gradient was not finite in {} steps in a row, up to "
                               "step {}",
                               consecutive_skips_, state_.step),
           .where = directory_,
           .remedy = "lower optimizer.learning_rate or lengthen optimizer.warmup_steps and "
                     "start again with --fresh; those steps changed no weights"});
    }
  } else {
    consecutive_skips_ = 0;
    optimizer_->Step(*ops_, model_.params(), state_.step, metrics.learning_rate,
                     metrics.gradient_norm);
  }
  metrics.step_seconds = SecondsSince(start);
  state_.train_seconds += metrics.step_seconds;
  return metrics;
}

LossSums Trainer::Accumulate() {
  const TrainOptions& train = config_.train;
  // Every token of the step counts alike, however it is cut into micro-batches.
  const int64_t scored = std::ranges::count_if(targets_, [](int32_t id) { return id >= 0; });
  LossSums sums;
  for (int first = 0; first < train.batch; first += train.effective_micro_batch()) {
    const int batch = std::min(train.effective_micro_batch(), train.batch - first);
    const size_t begin = size_t(first) * train.length;
    const size_t count = size_t(batch) * train.length;
    sums += model_.LossAndGradients({batch, train.length, std::span(ids_).subspan(begin, count),
                                     std::span(targets_).subspan(begin, count)},
                                    1.0 / static_cast<double>(scored));
  }
  return sums;
}

Score Trainer::Validate(int64_t max_tokens) {
  return ScoreStream(model_, validation_, data_.tokenizer.byte_counts(),
                     {.batch = config_.train.effective_micro_batch(), .max_tokens = max_tokens});
}

void Trainer::Save(MetricsLog& metrics) {
  if (saved_step_ == state_.step) return;
  metrics.Flush();  // first, so that the log is never behind a checkpoint
  if (measures_memory_) {
    state_.peak_memory_bytes = std::max(state_.peak_memory_bytes, PeakMemoryBytes().value_or(0));
  }
  SaveCheckpoint(directory_, model_.params(), *optimizer_, state_, config_.train.keep_checkpoints);
  saved_step_ = state_.step;
}

RunResult Trainer::Result(const Score& score) {
  const View weights = model_.params().values();
  const std::string_view bytes(reinterpret_cast<const char*>(weights.data),
                               weights.elements() * SizeOf(weights.dtype));
  return {.steps = state_.step,
          .tokens = state_.tokens,
          .skipped_steps = state_.skipped_steps,
          .validation_loss = score.loss(),
          .perplexity = score.perplexity(),
          .bits_per_byte = score.bits_per_byte(),
          .validation_tokens = score.tokens,
          .validation_bytes = score.bytes,
          .tokens_per_s = static_cast<double>(state_.tokens) / state_.train_seconds,
          .train_seconds = state_.train_seconds,
          .peak_memory_bytes = state_.peak_memory_bytes,
          .weights_hash = HashHex(HashBytes(bytes))};
}

}  // namespace

std::optional<RunResult> Train(const RunConfig& asked, const std::string& directory,
                               ExistingRun existing, const TrainCallbacks& callbacks) {
  PreparedData data = PreparedData::Open(asked.data.path);
  const RunConfig config = Resolve(asked, data.tokenizer);
  std::unique_ptr<Backend> ops = config.system.MakeBackend();
  const RunInfo info = DescribeRun(data, *ops);
  const bool continues = existing == ExistingRun::kContinue && IsRunDirectory(directory);
  if (continues) {
    CheckSameRun(directory, config, info);
    if (const auto result = FindResult(directory)) {
      callbacks.note("this run has finished already");
      return result;
    }
  }
  // What cannot be trained fails here, before the directory is touched.
  const std::string tokenizer = data.tokenizer.ToJson();
  Trainer trainer(config, std::move(data), std::move(ops), directory, callbacks);
  if (!continues) {
    if (IsRunDirectory(directory)) DiscardRun(directory);
    CreateDirectories(directory);
    WriteFileAtomically(TokenizerPath(directory), tokenizer);
    WriteFileAtomically(InfoPath(directory), WriteFields(info).dump(2) + "\n");
    WriteFileAtomically(ConfigPath(directory), ToToml(WriteFields(config)));
  }
  return trainer.Run();
}

}  // namespace sandglass
