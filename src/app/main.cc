// sandglass: plans, trains, evaluates and compares Transformer language models of any shape.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/verbs.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/program.h"

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

// Exit statuses: 0 done, 1 a failure that the message explains, 2 a command line that is no
// command, 70 a bug, 130 interrupted.
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kBug = 70;
constexpr int kInterrupted = 130;

int Report(const sandglass::Error& error, int status) {
  std::fprintf(stderr, "sandglass: error: %s\n", error.what());
  return status;
}

// Long names of all options of `app`, those of its groups among them.
void CollectFlags(const CLI::App& app, std::vector<std::string>& flags) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const CLI::App* group : app.get_subcommands({})) {
    if (group->get_name().empty()) CollectFlags(*group, flags);
  }
}

// Walks the verbs at the start of the command line. A word that is no verb is an error with the
// closest one; where the verb is missing, the help is shown. Returns false if nothing is wrong with
// them.
bool RefuseVerbs(CLI::App& program, int argc, char** argv) {
  CLI::App* app = &program;
  std::string command = program.get_name();
  for (int i = 1; app->get_require_subcommand_min() > 0; ++i) {
    if (i >= argc) {
      std::fputs(app->help().c_str(), stderr);
      return true;
    }
    const std::string word = argv[i];
    if (word.starts_with('-')) return false;
    std::vector<std::string> names;
    std::string expected = "one of";
    CLI::App* found = nullptr;
    for (CLI::App* verb : app->get_subcommands({})) {
      names.push_back(verb->get_name());
      expected += " " + verb->get_name();
      if (verb->get_name() == word) found = verb;
    }
    if (found == nullptr) {
      std::string remedy = sandglass::DidYouMean(word, names);
      if (remedy.empty()) remedy = command + " --help explains them";
      Report(sandglass::Error({.what = "unknown verb \"" + word + "\"",
                               .where = command,
                               .expected = expected,
                               .remedy = remedy}),
             kUsage);
      return true;
    }
    command += " " + word;
    app = found;
  }
  return false;
}

// For arguments that no verb takes.
sandglass::Error UnknownArgument(const CLI::App& program) {
  const CLI::App* app = &program;
  std::string command = program.get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    command += " " + app->get_name();
  }
  const std::vector<std::string> extras = program.remaining(/*recurse=*/true);
  std::string argument = extras.empty() ? "" : extras.front();
  std::string remedy;
  if (argument.starts_with("--")) {
    argument.resize(std::min(argument.find('='), argument.size()));
    std::vector<std::string> flags;
    CollectFlags(*app, flags);
    remedy = sandglass::DidYouMean(argument, flags);
  }
  if (remedy.empty()) remedy = command + " --help lists what it takes";
  return sandglass::Error(
      {.what = "unknown argument \"" + argument + "\"", .where = command, .remedy = remedy});
}

// A result that did not reach standard output is a failure, whoever wrote it.
int FinishOutput(int status) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || status != 0) return status;
  return Report(sandglass::CannotWriteResult(), kFailed);
}

int Run(CLI::App& program, int argc, char** argv) {
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ExtrasError&) {
    return Report(UnknownArgument(program), kUsage);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : kUsage;
  } catch (const sandglass::Error& error) {
    // Work that an interrupt cut short and that had nothing to save fails with an Error.
    return Report(error, sandglass::InterruptRequested() ? kInterrupted : kFailed);
  } catch (const sandglass::Interrupted& interrupted) {
    std::fprintf(stderr, "sandglass: interrupted: %s\n", interrupted.how_to_continue.c_str());
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return Report(
        sandglass::Error({.what = "not enough memory",
                          .remedy = "a smaller batch, length or shape, or less text at a time; "
                                    "sandglass plan tells what a shape needs"}),
        kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return Report(sandglass::Error({.what = "cannot use the path: " + error.code().message(),
                                    .where = error.path2().empty() ? error.path1().string()
                                                                   : error.path1().string() + ", " +
                                                                         error.path2().string(),
                                    .remedy = "check the path and its permissions"}),
                  kFailed);
  } catch (const std::exception& error) {
    // Whoever printed the result may have reported by an exception of its own that it could not.
    if (std::ferror(stdout) != 0) return FinishOutput(0);
    std::fprintf(stderr, "sandglass: unexpected failure: %s\n", error.what());
    return kBug;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program(
      "Plans, trains, evaluates and compares Transformer language models of any shape "
      "under an exact parameter budget.",
      "sandglass");
  program.footer(kExamples);
  program.require_subcommand(1);
  program.set_version_flag("--version", [] {
    return std::string(SANDGLASS_VERSION) + " (build " + sandglass::ProgramBuild() + ", " +
           sandglass::CompilerName() + ")";
  });
  sandglass::AddPlanVerb(program);
  sandglass::AddTokenizerVerb(program);
  sandglass::AddPrepareVerb(program);
  sandglass::AddDataVerb(program);
  sandglass::AddTrainVerb(program);
  sandglass::AddEvalVerb(program);
  sandglass::AddGenerateVerb(program);
  sandglass::AddImportVerb(program);
  sandglass::AddLogitsVerb(program);
  sandglass::AddExportVerb(program);
  sandglass::AddCompareVerb(program);
  sandglass::AddInspectVerb(program);
  sandglass::AddRunsVerb(program);
  sandglass::AddBenchVerb(program);
  sandglass::AddSelftestVerb(program);
  sandglass::CatchInterrupts();
  if (RefuseVerbs(program, argc, argv)) return kUsage;
  return FinishOutput(Run(program, argc, argv));
}
