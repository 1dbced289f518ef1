#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "bench/log_bench.h"
#include "bench/train_bench.h"

namespace sandglass {
namespace {

struct BenchFlags {
  std::string shape;
  std::string family = "hourglass";
  std::string recompute = "cheap";
  int vocabulary = 4096;
  int batch = 8;
  int length = 256;
  int repeats = 9;
  int threads = 0;
  bool json = false;
};

void PrintResult(const TrainBenchResult& result) {
  Print(fmt::format("{}  {}\n", result.shape, result.backend));
  Print(
      fmt::format("step        {:.4f} s (median; {:.4f} to {:.4f})   {:.0f} tokens/s   {:.1f} "
                  "model GFLOP/s\n",
                  result.step_s, result.step_min_s, result.step_max_s, result.tokens_per_s,
                  result.model_gflop_per_s));
  Print(
      fmt::format("roofline    {:.4f} s: products alone {:.4f}, attention FLOPs at peak {:.4f}, "
                  "AdamW bytes {:.4f}\n",
                  result.roofline_s, result.matmul_s, result.attention_s, result.optimizer_s));
  Print(fmt::format("step / roofline  {:.3f}   (peak {:.1f} GFLOP/s, copy {:.1f} GB/s)\n",
                    result.step_over_roofline, result.peak_gflop_per_s,
                    result.bandwidth_bytes_per_s / 1e9));
  Print(fmt::format(
      "memory      {} allocated, peak resident {}\n",
      HumanBytes(static_cast<double>(result.allocated_bytes)),
      result.peak_rss_bytes ? HumanBytes(static_cast<double>(*result.peak_rss_bytes)) : "unknown"));
  for (const OpTime& op : result.ops) {
    Print(fmt::format("  {:20} {:9.3f} ms  {:5.1f} %\n", op.op, 1e3 * op.seconds,
                      100 * op.seconds / result.step_s));
  }
}

void RunBenchTrain(const BenchFlags& flags) {
  TrainBenchOptions options{.model = FamilyConfig(ParseEnum<Family>(flags.family, "--family"),
                                                  Shape::Parse(flags.shape), flags.vocabulary),
                            .batch = flags.batch,
                            .length = flags.length,
                            .repeats = flags.repeats};
  options.system.threads = flags.threads;
  options.system.recompute = ParseEnum<Recompute>(flags.recompute, "--recompute");
  const TrainBenchResult result = BenchTrain(options);
  if (flags.json) return PrintJson(WriteFields(result));
  PrintResult(result);
}

void RunBenchLog(const BenchFlags& flags) {
  const LogBenchResult result = BenchLog(FamilyConfig(ParseEnum<Family>(flags.family, "--family"),
                                                      Shape::Parse(flags.shape), flags.vocabulary));
  if (flags.json) return PrintJson(WriteFields(result));
  Print(fmt::format(
      "metrics of a step  {:9.3f} ms  {}\n"
      "histograms         {:9.3f} ms  {}\n",
      1e3 * result.step_s, HumanBytes(static_cast<double>(result.step_bytes)),
      1e3 * result.histograms_s, HumanBytes(static_cast<double>(result.histograms_bytes))));
}

}  // namespace

void AddBenchVerb(CLI::App& program) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb = program.add_subcommand("bench", "Measure speed against what the machine can do");
  verb->require_subcommand(1);
  CLI::App* train = verb->add_subcommand("train", "One training step against its roofline");
  train->add_option("--shape", flags->shape, "Shape, as L6-d256-a4x64-f4x256")->required();
  train->add_option("--family", flags->family, "llama, hourglass or olmo2")->capture_default_str();
  train->add_option("--vocabulary,--vocab", flags->vocabulary, "Token ids")->capture_default_str();
  train->add_option("--batch", flags->batch, "Sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  train->add_option("--length,--seq", flags->length, "Tokens per sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  train->add_option("--repeats", flags->repeats, "Timed steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  train->add_option("--recompute", flags->recompute, "nothing or cheap")->capture_default_str();
  train->add_option("--threads", flags->threads, "0: all")->capture_default_str();
  train->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*train, R"(
Examples:
  sandglass bench train --shape L6-d256-a4x64-f4x256 --vocab 4096 --batch 8 --seq 256
  sandglass bench train --shape L12-d768-a12x64-f8x384 --vocab 50304 --batch 2 --seq 512 --json

The roofline is measured in the same run: every matrix product of the step at its true size, timed
alone; the causal FLOPs of attention at the speed of a large product; the bytes that AdamW has to
move at the speed of a copy.
)");
  train->callback([flags] { RunBenchTrain(*flags); });

  CLI::App* log = verb->add_subcommand("log", "Processor time of recording a step");
  log->add_option("--shape", flags->shape, "Shape, as L6-d256-a4x64-f4x256")->required();
  log->add_option("--family", flags->family, "llama, hourglass or olmo2")->capture_default_str();
  log->add_option("--vocabulary,--vocab", flags->vocabulary, "Token ids")->capture_default_str();
  log->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*log, R"(
Example:
  sandglass bench log --shape L6-d256-a4x64-f4x256 --vocab 4096
)");
  log->callback([flags] { RunBenchLog(*flags); });
}

}  // namespace sandglass
