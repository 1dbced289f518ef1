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
#include "data/data_set.h"
#include "data/samples.h"
#include "eval/perplexity.h"
#include "interop/gguf_tokenizer.h"
#include "train/averaging.h"
#include "train/branch.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"
#include "train/open_model.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/spike_detector.h"

namespace sandglass {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The vocabulary comes from the data unless the run file gives a larger one; an automatic precision
// becomes what it is on this machine, so that the run goes on in it anywhere.
RunConfig Resolve(RunConfig config, const DataSet& data, const TrainCallbacks& callbacks) {
  config.train.precision = Resolve(config.train.precision, callbacks.note);
  int& vocabulary = config.model.config.vocabulary;
  if (vocabulary == 0) vocabulary = static_cast<int>(data.vocabulary);
  config.Validate();
  if (vocabulary < data.vocabulary) {
    throw Error({.what = fmt::format("the model has {} token ids, the data {}", vocabulary,
                                     data.vocabulary),
                 .where = "model.vocabulary",
                 .expected = "at least those of the data, or 0 to take them over"});
  }
  return config;
}

RunInfo DescribeRun(const DataSet& data, const Backend& backend, Precision precision) {
  return {.version = SANDGLASS_VERSION,
          .started = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::time(nullptr))),
          .cpu = CpuModelName(),
          .backend = DescribeCompute(backend, precision),
          .tokenizer_hash = data.tokenizer_hash(),
          .train_hash = data.train_hash(),
          .validation_hash = data.validation_hash(),
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
    differences.push_back("the contents of the data");
  }
  if (differences.empty()) return;
  throw Error({.what = fmt::format("the directory holds a run of another configuration: {}",
                                   fmt::join(differences, ", ")),
               .where = directory,
               .remedy = "choose another --out, or --fresh to discard the old run"});
}

// A checkpoint belongs to the configuration that it was made with, whatever run.toml says now.
void CheckCheckpointConfig(const std::string& checkpoint, const RunConfig& config) {
  const std::vector<std::string> differences =
      Differences(ReadCheckpointConfig(checkpoint), config, {"system", "log"});
  if (differences.empty()) return;
  throw Error({.what = fmt::format("the checkpoint was made with another configuration: {}",
                                   fmt::join(differences, ", ")),
               .where = checkpoint,
               .expected = "the settings that run.toml had when the run began",
               .remedy = "put them back, or start another run with train.branch_from"});
}

// Averaged weights are scored beside the raw ones, so a validation has one score or two.
struct Validation {
  Score raw;
  std::optional<Score> average;
};

// values[begin, begin + count), or nothing of nothing.
std::span<int32_t> Part(std::vector<int32_t>& values, size_t begin, size_t count) {
  return values.empty() ? std::span<int32_t>() : std::span(values).subspan(begin, count);
}

class Trainer {
 public:
  Trainer(const RunConfig& config, DataSet data, std::unique_ptr<Backend> ops, const RunInfo& info,
          const std::string& directory, const TrainCallbacks& callbacks);

  // The state in which a run begins: another run's, given weights or new ones. Touches nothing.
  void Start();
  // Touches the run directory for the first time. Continues from its newest sound checkpoint, if it
  // has one and the run has not been started. Nothing if it was interrupted, and saved.
  std::optional<RunResult> Run();

 private:
  void Continue();
  void OpenDirectory();
  void RecordStart();
  void Restore(const std::string& checkpoint);
  // New or given weights, and nothing learnt.
  void Restart();
  // Throws Interrupted between steps or during validation.
  RunResult RunSteps();
  StepMetrics Step();
  void FillBatch(int batch);
  // Runs the batch's sequences through the model, a micro-batch at a time.
  LossSums Accumulate(int batch);
  void Update(const StepMetrics& metrics);
  void CountSkip();
  // What a spike's z-score means for the run: a note, or a rewind.
  void HandleSpike(double z_score, double loss);
  void Rewind();
  Validation Validate(int64_t max_tokens);
  void Save();
  RunResult Result(const Validation& validation);
  bool Due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  const RunConfig& config_;
  DataSet data_;
  const RunInfo& info_;
  std::string directory_;
  const TrainCallbacks& callbacks_;
  int64_t steps_;
  int64_t eval_every_;
  std::unique_ptr<Backend> ops_;
  Model model_;
  std::optional<Optimizer> optimizer_;
  std::optional<WeightAverage> average_;
  SpikeDetector spikes_;
  TrainSamples samples_;
  EvalWindows validation_;
  TrainState state_;
  bool started_ = false;
  int64_t start_step_ = 0;  // this process has computed the steps behind it
  int64_t saved_step_ = -1;
  bool measures_memory_ = false;
  std::vector<int32_t> ids_;      // [batch, length]
  std::vector<int32_t> targets_;  // [batch, length]
  std::vector<int32_t> starts_;   // [batch, length] within documents, else empty
  std::optional<MetricsLog> metrics_;
  std::optional<CheckpointWriter> writer_;
};

Trainer::Trainer(const RunConfig& config, DataSet data, std::unique_ptr<Backend> ops,
                 const RunInfo& info, const std::string& directory, const TrainCallbacks& callbacks)
    : config_(config),
      data_(std::move(data)),
      info_(info),
      directory_(directory),
      callbacks_(callbacks),
      steps_(config.Steps()),
      eval_every_(config.train.eval_every > 0 ? config.train.eval_every
                                              : std::max<int64_t>(1, steps_ / 10)),
      ops_(std::move(ops)),
      model_(config.model.config, {.purpose = Purpose::kTrain,
                                   .batch = config.train.effective_micro_batch(),
                                   .length = config.train.length,
                                   .recompute = config.system.recompute,
                                   .activations = ActivationType(config.train.precision)}),
      spikes_(config.train.spikes),
      samples_(data_.train, config.train.length, config.train.seed),
      validation_(data_.validation, config.train.length),
      ids_(config.train.tokens_per_step()),
      targets_(config.train.tokens_per_step()),
      starts_(samples_.within_documents() ? ids_.size() : 0) {
  measures_memory_ = ResetPeakMemory();
  model_.Allocate(*ops_);
  optimizer_.emplace(model_.params(), config.optimizer);
  if (config.train.average_decay > 0) {
    average_.emplace(model_.params(), config.train.average_decay);
  }
}

void Trainer::Start() {
  started_ = true;
  if (config_.train.branch_from.empty()) return Restart();
  const BranchPoint point = FindBranchPoint(config_, info_, callbacks_.note);
  Restore(point.checkpoint);
  if (!point.same_data) state_.sequences = 0;
  if (state_.step < steps_) return;
  throw Error({.what = fmt::format("the branch has nothing to train: it begins after step {}, and "
                                   "the budget is {} steps",
                                   state_.step, steps_),
               .where = "train.tokens",
               .remedy = "raise the budget, which counts from the beginning of the run that is "
                         "branched from"});
}

void Trainer::Continue() {
  const auto checkpoint = FindCheckpoint(directory_, callbacks_.note);
  if (!checkpoint) return;
  CheckCheckpointConfig(*checkpoint, config_);
  Restore(*checkpoint);
  started_ = true;
  saved_step_ = state_.step;
  callbacks_.note(fmt::format("continuing from step {} of {}", state_.step, steps_));
}

void Trainer::OpenDirectory() {
  RemovePartialCheckpoints(directory_);
  metrics_.emplace(directory_, state_.step);
  RecordStart();
  writer_.emplace(*ops_, directory_,
                  Retention{.newest = config_.train.keep_checkpoints,
                            .every = config_.train.keep_every,
                            .due_every = config_.train.checkpoint_every},
                  config_.system.background_saves ? SaveMode::kBackground : SaveMode::kForeground);
  // A branch has a checkpoint of its own from the start and needs its source no longer.
  if (state_.step > 0) Save();
}

// That this process computes the steps from here on.
void Trainer::RecordStart() {
  start_step_ = state_.step;
  sandglass::RecordStart(directory_, info_, start_step_);
}

void Trainer::Restore(const std::string& checkpoint) {
  state_ =
      LoadCheckpoint(checkpoint, model_.params(), *optimizer_, average_ ? &*average_ : nullptr);
  spikes_.Restore(state_.recent_losses);
}

void Trainer::Restart() {
  if (config_.train.initial_weights.empty()) {
    model_.params().Initialize(config_.train.seed);
  } else {
    LoadInitialWeights(config_.train.initial_weights, config_.model.config, model_.params(),
                       callbacks_.note);
  }
  optimizer_.emplace(model_.params(), config_.optimizer);
  state_ = {};
  spikes_.Restore({});
}

std::optional<RunResult> Trainer::Run() {
  if (!started_) Continue();
  if (!started_) Start();
  OpenDirectory();
  try {
    return RunSteps();
  } catch (const Interrupted&) {
    Save();
    writer_->Wait();
    return std::nullopt;
  }
}

RunResult Trainer::RunSteps() {
  const int64_t length = config_.train.length;
  Progress progress(config_.name, SequencesBefore(config_.train, steps_ + 1) * length, "tokens",
                    callbacks_.progress);
  const auto tokens_done = [&] { return SequencesBefore(config_.train, state_.step + 1) * length; };
  progress.SkipTo(tokens_done());
  const auto validate = [&](int64_t max_tokens) {
    const Validation validation = Validate(max_tokens);
    const Score& raw = validation.raw;
    ValidationMetrics metrics{state_.step, state_.tokens, raw.loss(), raw.perplexity(),
                              raw.bits_per_byte()};
    if (validation.average) {
      metrics.average_loss = validation.average->loss();
      metrics.average_perplexity = validation.average->perplexity();
      metrics.average_bits_per_byte = validation.average->bits_per_byte();
    }
    metrics_->Add(metrics);
    return validation;
  };
  while (state_.step < steps_) {
    if (InterruptRequested()) throw Interrupted{};
    writer_->Poll();
    // At the head of the loop, so that a validation that was interrupted is made up for.
    const bool due = state_.step > 0 && Due(eval_every_);
    if (due && metrics_->last_validation() != state_.step) validate(config_.train.eval_tokens);
    const StepMetrics step = Step();
    metrics_->Add(step);
    if (config_.log.HistogramsDue(state_.step, steps_)) {
      metrics_->AddHistograms(state_.step, model_.params());
    }
    callbacks_.step(step);
    if (const auto z_score = step.skipped ? std::nullopt : spikes_.Add(step.loss)) {
      HandleSpike(*z_score, step.loss);
    }
    progress.Update(tokens_done(), fmt::format("loss {:.3f}", step.loss));
    if (Due(config_.train.checkpoint_every)) Save();
  }
  const Validation validation = validate(0);
  Save();
  writer_->Wait();
  const RunResult result = Result(validation);
  WriteFileAtomically(ResultPath(directory_), WriteFields(result).dump(2) + "\n");
  progress.Finish(fmt::format("validation loss {:.4f}, {:.4f} bits per byte", validation.raw.loss(),
                              validation.raw.bits_per_byte()));
  return result;
}

StepMetrics Trainer::Step() {
  const Clock::time_point start = Clock::now();
  const int batch = BatchAt(config_.train, state_.step + 1);
  FillBatch(batch);
  ops_->Zero(model_.params().grads());
  const LossSums sums = Accumulate(batch);
  const GradientNorms norms = MeasureGradients(*ops_, model_.params());

  StepMetrics metrics;
  metrics.step = ++state_.step;
  metrics.tokens = state_.tokens += sums.tokens;
  metrics.sequences = state_.sequences += batch;
  metrics.loss = sums.cross_entropy / static_cast<double>(sums.tokens);
  metrics.z_loss = sums.z_loss / static_cast<double>(sums.tokens);
  metrics.learning_rate = LearningRateAt(config_.optimizer, state_.step, steps_);
  metrics.gradient_norm = norms.global;
  metrics.gradient_norms = norms.by_role;
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.gradient_norm);
  metrics.skipped ? CountSkip() : Update(metrics);
  metrics.step_seconds = SecondsSince(start);
  state_.train_seconds += metrics.step_seconds;
  return metrics;
}

void Trainer::FillBatch(int batch) {
  const int length = config_.train.length;
  for (int b = 0; b < batch; ++b) {
    const size_t begin = size_t(b) * length;
    samples_.Fill(state_.sequences + b, std::span(ids_).subspan(begin, length),
                  std::span(targets_).subspan(begin, length), Part(starts_, begin, length));
  }
}

LossSums Trainer::Accumulate(int batch) {
  const int length = config_.train.length;
  const auto targets = std::span(targets_).first(size_t(batch) * length);
  // Every token of the step counts alike, however it is cut into micro-batches.
  const int64_t scored = std::ranges::count_if(targets, [](int32_t id) { return id >= 0; });
  LossSums sums;
  for (int first = 0; first < batch; first += config_.train.effective_micro_batch()) {
    const int sequences = std::min(config_.train.effective_micro_batch(), batch - first);
    const size_t begin = size_t(first) * length;
    const size_t count = size_t(sequences) * length;
    sums += model_.LossAndGradients({sequences, length, std::span(ids_).subspan(begin, count),
                                     targets.subspan(begin, count), Part(starts_, begin, count)},
                                    1.0 / static_cast<double>(std::max<int64_t>(1, scored)));
  }
  return sums;
}

void Trainer::Update(const StepMetrics& metrics) {
  state_.consecutive_skips = 0;
  optimizer_->Step(*ops_, model_.params(),
                   {.update = state_.updates(),
                    .learning_rate = metrics.learning_rate,
                    .gradient_norm = metrics.gradient_norm});
  if (average_) average_->Add(*ops_, model_.params(), ++state_.averaged_updates);
}

void Trainer::CountSkip() {
  ++state_.skipped_steps;
  if (++state_.consecutive_skips < config_.train.max_skipped_steps) return;
  throw Error(
      {.what = fmt::format("loss or gradient was not finite in {} steps in a row, up to step {}",
                           state_.consecutive_skips, state_.step),
       .where = directory_,
       .remedy = "lower optimizer.learning_rate or lengthen optimizer.warmup_steps and start again "
                 "with --fresh; those steps changed no weights"});
}

void Trainer::HandleSpike(double z_score, double loss) {
  ++state_.spikes;
  callbacks_.note(
      fmt::format("step {}: the loss of {:.4f} lies {:.1f} standard deviations above "
                  "the last {}",
                  state_.step, loss, z_score, config_.train.spikes.window));
  if (config_.train.spikes.action == SpikeAction::kRewind) Rewind();
}

// The target is the last checkpoint that was due, not one that an interrupt happened to make, so
// that a run that is interrupted rewinds to where an uninterrupted one does.
void Trainer::Rewind() {
  if (state_.rewinds >= config_.train.spikes.max_rewinds) {
    throw Error({.what = fmt::format("the loss spiked again at step {}, after {} rewinds",
                                     state_.step, state_.rewinds),
                 .where = directory_,
                 .remedy = "lower optimizer.learning_rate, look at the data there, or raise "
                           "train.spikes.max_rewinds"});
  }
  writer_->Wait();
  const TrainState before = state_;
  const auto checkpoint = FindCheckpoint(directory_, callbacks_.note, [&](int64_t step) {
    const int64_t every = config_.train.checkpoint_every;
    return every > 0 && step % every == 0 && step < before.step;
  });
  if (checkpoint) {
    Restore(*checkpoint);
  } else {
    Restart();
  }
  state_.sequences = before.sequences;
  state_.spikes = before.spikes;
  state_.rewinds = before.rewinds + 1;
  state_.train_seconds = before.train_seconds;
  state_.save_seconds = before.save_seconds;
  saved_step_ = -1;
  metrics_.emplace(directory_, state_.step);
  if (state_.step < start_step_) RecordStart();
  callbacks_.note(fmt::format("back to step {}, and past the data of steps {} to {}", state_.step,
                              state_.step + 1, before.step));
}

Validation Trainer::Validate(int64_t max_tokens) {
  const auto score = [&] {
    return ScoreStream(model_, validation_, data_.byte_counts(),
                       {.batch = config_.train.effective_micro_batch(), .max_tokens = max_tokens});
  };
  Validation validation{.raw = score()};
  if (average_ && state_.averaged_updates > 0) {
    const AveragedWeights averaged(model_.params(), *average_);
    validation.average = score();
  }
  return validation;
}

void Trainer::Save() {
  if (saved_step_ == state_.step) return;
  metrics_->Sync();  // first, so that no checkpoint knows of steps that the log has lost
  if (measures_memory_) {
    state_.peak_memory_bytes = std::max(state_.peak_memory_bytes, PeakMemoryBytes().value_or(0));
  }
  state_.recent_losses = spikes_.losses();
  const double stalled_before = writer_->stalled_seconds();
  writer_->Save(
      {.files = TensorFilesOf(model_.params(), *optimizer_, average_ ? &*average_ : nullptr),
       .state = state_,
       .configuration = ToToml(WriteFields(config_))});
  saved_step_ = state_.step;
  state_.save_seconds += writer_->stalled_seconds() - stalled_before;
}

RunResult Trainer::Result(const Validation& validation) {
  const View weights = model_.params().values();
  const std::string_view bytes(reinterpret_cast<const char*>(weights.data),
                               weights.elements() * SizeOf(weights.dtype));
  const Score& score = validation.raw;
  RunResult result{.steps = state_.step,
                   .tokens = state_.tokens,
                   .skipped_steps = state_.skipped_steps,
                   .spikes = state_.spikes,
                   .rewinds = state_.rewinds,
                   .validation_loss = score.loss(),
                   .perplexity = score.perplexity(),
                   .bits_per_byte = score.bits_per_byte(),
                   .validation_tokens = score.tokens,
                   .validation_bytes = score.bytes,
                   .tokens_per_s = static_cast<double>(state_.tokens) / state_.train_seconds,
                   .train_seconds = state_.train_seconds,
                   .save_seconds = state_.save_seconds,
                   .peak_memory_bytes = state_.peak_memory_bytes,
                   .weights_hash = HashHex(HashBytes(bytes))};
  if (validation.average) {
    result.average_validation_loss = validation.average->loss();
    result.average_bits_per_byte = validation.average->bits_per_byte();
  }
  return result;
}

}  // namespace

std::optional<RunResult> Train(const RunConfig& asked, const std::string& directory,
                               ExistingRun existing, const TrainCallbacks& callbacks) {
  DataSet data = DataSet::Open(asked.data, LoadAnyTokenizer);
  const RunConfig config = Resolve(asked, data, callbacks);
  std::unique_ptr<Backend> ops = config.system.MakeBackend();
  const RunInfo info = DescribeRun(data, *ops, config.train.precision);
  const bool continues = existing == ExistingRun::kContinue && IsRunDirectory(directory);
  if (continues) {
    CheckSameRun(directory, config, info);
    if (const auto result = FindResult(directory)) {
      callbacks.note("this run has finished already");
      return result;
    }
  }
  // What cannot be trained fails here, before the directory is touched.
  const std::string tokenizer = data.tokenizer ? data.tokenizer->ToJson() : "";
  Trainer trainer(config, std::move(data), std::move(ops), info, directory, callbacks);
  if (!continues) trainer.Start();
  CreateDirectories(directory);
  const DirectoryLock lock(directory, "trains");
  RemoveUnfinishedFiles(directory);
  if (!continues) {
    if (IsRunDirectory(directory)) DiscardRun(directory);
    if (!tokenizer.empty()) WriteFileAtomically(TokenizerPath(directory), tokenizer);
    WriteFileAtomically(InfoPath(directory), WriteFields(info).dump(2) + "\n");
    WriteFileAtomically(ConfigPath(directory), ToToml(WriteFields(config)));
  }
  return trainer.Run();
}

}  // namespace sandglass
