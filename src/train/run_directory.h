// A run directory: everything needed to continue, to compare and to cite a run.
//
//   run.toml         the resolved configuration
//   run.json         what it ran with: version, build, host, backend, hashes of the data
//   tokenizer.json   so that the model can be used without the data
//   metrics.jsonl    a line per step and per validation (metrics.h)
//   events.out...    the same for TensorBoard
//   checkpoints/     checkpoint.h
//   result.json      the outcome, once the run has finished
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/token_shard.h"
#include "data/tokenizer.h"
#include "model/model.h"
#include "train/options.h"

namespace sandglass {

// One start of the program: it computed the steps after `step`, up to that of the next start.
struct RunStart {
  int64_t step = 0;
  std::string started;  // UTC
  std::string version;
  std::string build;
  std::string host;
  std::string cpu;
  std::string backend;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("step", self.step, "the steps after it were computed");
    field("started", self.started, "UTC");
    field("version", self.version, "of sandglass");
    field("build", self.build, "XXH3 of the program's file");
    field("host", self.host, "name of the machine");
    field("cpu", self.cpu, "processor model");
    field("backend", self.backend, "backend, instruction set, who multiplies, threads");
  }
};

// What a run ran with, recorded when it starts and checked when it is resumed.
struct RunInfo {
  std::string version;
  std::string started;  // UTC
  std::string cpu;
  std::string backend;
  std::string tokenizer_hash;
  std::string train_hash;
  std::string validation_hash;
  // Not known of runs that began before these were recorded.
  std::optional<std::string> build;
  std::optional<std::string> compiler;
  std::optional<std::string> host;
  std::optional<std::string> system;
  std::optional<std::string> imported_from;  // the model of another program that it was made of
  // By step. What a later start did again is that one's alone.
  std::optional<std::vector<RunStart>> starts;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("version", self.version, "of sandglass");
    field("started", self.started, "UTC");
    field("cpu", self.cpu, "processor model");
    field("backend", self.backend, "backend, instruction set, who multiplies, threads");
    field("tokenizer_hash", self.tokenizer_hash, "XXH3 of the canonical tokenizer.json");
    field("train_hash", self.train_hash, "XXH3 of the training tokens");
    field("validation_hash", self.validation_hash, "XXH3 of the validation tokens");
    field("build", self.build, "XXH3 of the program's file");
    field("compiler", self.compiler, "that made the program");
    field("host", self.host, "name of the machine");
    field("system", self.system, "operating system and architecture");
    field("imported_from", self.imported_from, "model of another program");
    field("starts", self.starts, "which start computed which steps");
  }
};

// The outcome of a finished run.
struct RunResult {
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t skipped_steps = 0;
  std::optional<int64_t> spikes;  // not known of runs from before these were counted
  std::optional<int64_t> rewinds;
  double validation_loss = 0.0;  // nats per token, over the whole validation stream
  double perplexity = 0.0;
  double bits_per_byte = 0.0;
  int64_t validation_tokens = 0;
  int64_t validation_bytes = 0;
  std::optional<double> average_validation_loss;  // of averaged weights, if the run keeps them
  std::optional<double> average_bits_per_byte;
  double tokens_per_s = 0.0;   // trained tokens over the time spent in steps
  double train_seconds = 0.0;  // in steps, without validation and saving
  // That training waited for checkpoints, the end aside; not known of older runs.
  std::optional<double> save_seconds;
  int64_t peak_memory_bytes = 0;
  std::string weights_hash;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("steps", self.steps, "optimizer steps");
    field("tokens", self.tokens, "target tokens trained on");
    field("skipped_steps", self.skipped_steps, "steps without an update");
    field("spikes", self.spikes, "loss spikes seen");
    field("rewinds", self.rewinds, "rewinds after a spike");
    field("validation_loss", self.validation_loss, "nats per token");
    field("perplexity", self.perplexity, "exp(validation_loss)");
    field("bits_per_byte", self.bits_per_byte, "bits per byte of validation text");
    field("validation_tokens", self.validation_tokens, "tokens scored");
    field("validation_bytes", self.validation_bytes, "bytes of text scored");
    field("average_validation_loss", self.average_validation_loss, "with averaged weights");
    field("average_bits_per_byte", self.average_bits_per_byte, "with averaged weights");
    field("tokens_per_s", self.tokens_per_s, "trained tokens over the time in steps");
    field("train_seconds", self.train_seconds, "time in steps");
    field("save_seconds", self.save_seconds, "time that training waited for checkpoints");
    field("peak_memory_bytes", self.peak_memory_bytes, "largest resident set");
    field("weights_hash", self.weights_hash, "XXH3 of the final weights");
  }
};

// The tokens of a data directory, with everything checked that can be wrong between its files.
struct PreparedData {
  Tokenizer tokenizer;
  TokenShard train;
  TokenShard validation;

  // Throws Error if the directory is not what `sandglass prepare` writes, or if the tokenizer does
  // not belong to the tokens.
  static PreparedData Open(const std::string& directory);
};

// Paths inside a run directory.
std::string ConfigPath(const std::string& run_directory);
std::string InfoPath(const std::string& run_directory);
std::string TokenizerPath(const std::string& run_directory);
std::string ResultPath(const std::string& run_directory);

RunInfo ReadRunInfo(const std::string& run_directory);
// Adds to run.json that a program with these facts computes the steps after `step`.
void RecordStart(const std::string& run_directory, const RunInfo& info, int64_t step);
// Whether the directory holds a run, finished or not.
bool IsRunDirectory(const std::string& directory);
// Removes the files of a run, and nothing else that lies beside them.
void DiscardRun(const std::string& run_directory);
// Removes what a killed process left half-written beside the files of a run. Nobody else may be
// writing there.
void RemoveUnfinishedFiles(const std::string& run_directory);
// The result of a finished run, or nothing if it has not finished. Throws Error if the file is
// damaged.
std::optional<RunResult> FindResult(const std::string& run_directory);
// The configuration of a run; Error if the directory is not a run.
RunConfig ReadRunConfig(const std::string& run_directory);

}  // namespace sandglass
