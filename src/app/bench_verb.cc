#include <fmt/format.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "bench/decode_bench.h"
#include "bench/log_bench.h"
#include "bench/op_bench.h"
#include "bench/train_bench.h"

namespace sandglass {
namespace {

struct BenchFlags {
  std::string shape;
  std::string family = "hourglass";
  std::string precision = "f32";
  std::string products = "auto";
  std::string recompute = "cheap";
  int vocabulary = 4096;
  int batch = 8;
  int length = 256;
  int repeats = 9;
  int prompt = 128;
  int tokens = 64;
  int threads = 0;
  bool json = false;

  ModelConfig Model() const {
    return FamilyConfig(ParseEnum<Family>(family, "--family"), Shape::Parse(shape), vocabulary);
  }
  SystemOptions System() const {
    SystemOptions system;
    system.threads = threads;
    system.products = ParseEnum<Products>(products, "--products");
    system.recompute = ParseEnum<Recompute>(recompute, "--recompute");
    return system;
  }
  Precision ResolvedPrecision() const {
    return Resolve(ParseEnum<Precision>(precision, "--precision"), PrintNote);
  }
};

// Each result starts with what ran: shape, backend and precision.
template <class Result>
void PrintHeading(const Result& result) {
  Print(fmt::format("{}  {}, {}\n", result.shape, result.backend, result.precision));
}

void PrintResult(const TrainBenchResult& result) {
  PrintHeading(result);
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

void PrintResult(const OpBenchResult& result) {
  PrintHeading(result);
  Print(fmt::format("peak {:.1f} GFLOP/s, copy {:.1f} GB/s\n\n", result.peak_gflop_per_s,
                    result.bandwidth_bytes_per_s / 1e9));
  Print(fmt::format("{:36} {:24} {:>10} {:>9} {:>7} {:>9} {:>9}\n", "op", "sizes", "ms", "GFLOP/s",
                    "GB/s", "of roof", "error"));
  for (const OpResult& op : result.ops) {
    Print(fmt::format("{:36} {:24} {:10.3f} {:>9} {:7.1f} {:8.0f} % {:9.1e}\n", op.op, op.sizes,
                      1e3 * op.seconds,
                      op.gflop_per_s > 0 ? fmt::format("{:.1f}", op.gflop_per_s) : "",
                      op.gbyte_per_s, 100 * op.share_of_roof, op.largest_error));
  }
}

void PrintResult(const DecodeBenchResult& result) {
  PrintHeading(result);
  Print(fmt::format("prompt      {:.0f} tokens/s\n", result.prompt_tokens_per_s));
  Print(fmt::format("decode      {:.1f} tokens/s (median; {:.1f} to {:.1f})\n", result.tokens_per_s,
                    1.0 / result.token_max_s, 1.0 / result.token_min_s));
  Print(fmt::format("memory      {} per token, {:.1f} GB/s, {:.2f} of a copy's {:.1f} GB/s\n",
                    HumanBytes(static_cast<double>(result.bytes_per_token)),
                    result.bytes_per_s / 1e9, result.share_of_bandwidth,
                    result.bandwidth_bytes_per_s / 1e9));
}

void PrintResult(const LogBenchResult& result) {
  Print(fmt::format(
      "metrics of a step  {:9.3f} ms  {}\n"
      "histograms         {:9.3f} ms  {}\n",
      1e3 * result.step_s, HumanBytes(static_cast<double>(result.step_bytes)),
      1e3 * result.histograms_s, HumanBytes(static_cast<double>(result.histograms_bytes))));
}

template <class Result>
void Show(const Result& result, const BenchFlags& flags) {
  if (flags.json) return PrintJson(WriteFields(result));
  PrintResult(result);
}

void AddModelFlags(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  verb->add_option("--shape", flags->shape, "Shape, as L6-d256-a4x64-f4x256")->required();
  verb->add_option("--family", flags->family, "llama, hourglass or olmo2")->capture_default_str();
  verb->add_option("--vocabulary,--vocab", flags->vocabulary, "Token ids")->capture_default_str();
  verb->add_flag("--json", flags->json, "Print JSON");
}

void AddComputeFlags(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  AddModelFlags(verb, flags);
  verb->add_option("--precision", flags->precision, "auto, f32 or bf16")->capture_default_str();
  verb->add_option("--threads", flags->threads, "0: all")->capture_default_str();
  verb->add_option("--products", flags->products, "Who multiplies matrices: auto, own or library")
      ->capture_default_str();
}

void AddBatchFlags(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  verb->add_option("--batch", flags->batch, "Sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--length,--seq", flags->length, "Tokens per sequence")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddBenchTrain(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  AddComputeFlags(verb, flags);
  AddBatchFlags(verb, flags);
  verb->add_option("--repeats", flags->repeats, "Timed steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--recompute", flags->recompute, "nothing, cheap or layer")
      ->capture_default_str();
  AddExamples(*verb, R"(
Examples:
  sandglass bench train --shape L6-d256-a4x64-f4x256 --vocab 4096 --batch 8 --seq 256
  sandglass bench train --shape L12-d768-a12x64-f8x384 --vocab 50304 --batch 2 --seq 512 --json

The roofline is measured in the same run: every matrix product of the step at its true size, timed
alone; the causal FLOPs of attention at the speed of a large product; the bytes that AdamW has to
move at the speed of a copy.
)");
  verb->callback([flags] {
    Show(BenchTrain({.model = flags->Model(),
                     .system = flags->System(),
                     .precision = flags->ResolvedPrecision(),
                     .batch = flags->batch,
                     .length = flags->length,
                     .repeats = flags->repeats}),
         *flags);
  });
}

void AddBenchOps(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  AddComputeFlags(verb, flags);
  AddBatchFlags(verb, flags);
  AddExamples(*verb, R"(
Examples:
  sandglass bench ops --shape L6-d256-a4x64-f4x256 --vocab 4096 --batch 8 --seq 256

Every op is compared with the reference in double before it is timed. Products and attention are set
against the speed of a large product, the others against that of a copy.
)");
  verb->callback([flags] {
    Show(BenchOps({.model = flags->Model(),
                   .system = flags->System(),
                   .precision = flags->ResolvedPrecision(),
                   .batch = flags->batch,
                   .length = flags->length}),
         *flags);
  });
}

void AddBenchDecode(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  AddComputeFlags(verb, flags);
  verb->add_option("--prompt", flags->prompt, "Tokens before the first that is timed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--tokens", flags->tokens, "Tokens that are timed, one by one")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddExamples(*verb, R"(
Examples:
  sandglass bench decode --shape L12-d768-a12x64-f8x384 --vocab 50304 --prompt 512

A token has to read every weight and the keys and values before it once: these bytes, over the time,
are set against the speed of a copy.
)");
  verb->callback([flags] {
    Show(BenchDecode({.model = flags->Model(),
                      .system = flags->System(),
                      .precision = flags->ResolvedPrecision(),
                      .prompt = flags->prompt,
                      .tokens = flags->tokens}),
         *flags);
  });
}

void AddBenchLog(CLI::App* verb, const std::shared_ptr<BenchFlags>& flags) {
  AddModelFlags(verb, flags);
  AddExamples(*verb, R"(
Example:
  sandglass bench log --shape L6-d256-a4x64-f4x256 --vocab 4096
)");
  verb->callback([flags] { Show(BenchLog(flags->Model()), *flags); });
}

}  // namespace

void AddBenchVerb(CLI::App& program) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb = program.add_subcommand("bench", "Measure speed against what the machine can do");
  verb->require_subcommand(1);
  AddBenchTrain(verb->add_subcommand("train", "One training step against its roofline"), flags);
  AddBenchOps(verb->add_subcommand("ops", "Single ops, checked and timed"), flags);
  AddBenchDecode(verb->add_subcommand("decode", "Generation against the memory's speed"), flags);
  AddBenchLog(verb->add_subcommand("log", "Processor time of recording a step"), flags);
}

}  // namespace sandglass
