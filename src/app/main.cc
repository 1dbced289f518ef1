// sandglass: plans, trains, evaluates and compares Transformer language models of any shape.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "app/verbs.h"
#include "base/error.h"
#include "base/interrupt.h"

namespace {

constexpr const char* kExamples = R"(
Examples:
  sandglass plan L12-d768-a12x64-f8x384
      counts the parameters, FLOPs and memory of a shape
  sandglass plan --baseline L12-d768-a12x64-f1x3072 --hold attention --sub-mlps 8
      finds hourglass shapes with exactly the baseline's budget
  sandglass tokenizer train --vocabulary 2048 --out tokenizer.json book.txt
  sandglass prepare --tokenizer tokenizer.json --out data/book book.txt
  sandglass train recipes/kjv-run.toml
  sandglass compare recipes/kjv-demo.toml
      plans matched shapes, trains and evaluates each, writes report.html

Every verb explains itself: sandglass VERB --help
)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App program(
      "Plans, trains, evaluates and compares Transformer language models of any shape "
      "under an exact parameter budget.",
      "sandglass");
  program.footer(kExamples);
  program.require_subcommand(1);
  program.set_version_flag("--version", SANDGLASS_VERSION);
  sandglass::AddPlanVerb(program);
  sandglass::AddTokenizerVerb(program);
  sandglass::AddPrepareVerb(program);
  sandglass::AddTrainVerb(program);
  sandglass::AddEvalVerb(program);
  sandglass::AddGenerateVerb(program);
  sandglass::AddCompareVerb(program);
  sandglass::AddBenchVerb(program);
  sandglass::CatchInterrupts();
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const sandglass::Error& error) {
    std::fprintf(stderr, "sandglass: error: %s\n", error.what());
    return 1;
  } catch (const sandglass::Interrupted& interrupted) {
    std::fprintf(stderr, "sandglass: interrupted: %s\n", interrupted.how_to_continue.c_str());
    return 130;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sandglass: unexpected failure: %s\n", error.what());
    return 70;
  }
}
