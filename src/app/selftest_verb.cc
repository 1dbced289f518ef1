// sandglass selftest: proofs that need the user's own machine.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "train/kill_test.h"

namespace sandglass {
namespace {

struct ResumeFlags {
  KillTestOptions test;
  std::string directory = ".";
  bool json = false;
};

void RunResume(ResumeFlags flags) {
  flags.test.program = "/proc/self/exe";
  flags.test.directory = fmt::format("{}/sandglass-selftest-{}", flags.directory, ::getpid());
  const KillTestReport report = RunKillTest(flags.test);
  if (flags.json) return PrintJson(WriteFields(report));
  Print(fmt::format(
      "killed       {} times, {} of them while a checkpoint was being written\n"
      "disk full    {}\n"
      "finished     {} runs, each with the weights {}, the losses and the metrics of the "
      "undisturbed one\n"
      "checkpoints  {} looked at, none damaged\n"
      "time         {}\n",
      report.kills, report.kills_in_save,
      report.full_disk_obstacle.empty() ? fmt::format("{} times", report.full_disks)
                                        : "not tried: " + report.full_disk_obstacle,
      report.runs, report.weights_hash, WithThousands(report.checkpoints),
      HumanDuration(report.seconds)));
}

void AddResume(CLI::App& selftest) {
  auto flags = std::make_shared<ResumeFlags>();
  CLI::App* verb = selftest.add_subcommand(
      "resume", "Kills training again and again, fills its disk, and compares how it ends");
  verb->add_option("--kills", flags->test.kills, "SIGKILLs in all")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--dir", flags->directory,
                   "Directory on the disk to be tested; a few megabytes are written below it and "
                   "removed")
      ->capture_default_str();
  verb->add_option("--seed", flags->test.seed, "Of the moments at which it is killed")
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "Print the result as JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass selftest resume
      200 kills of a small run on the disk of the current directory
  sandglass selftest resume --kills 1000 --dir /mnt/scratch
      more of them, on the disk that checkpoints will go to
)");
  verb->callback([flags] { RunResume(*flags); });
}

}  // namespace

void AddSelftestVerb(CLI::App& program) {
  CLI::App* selftest =
      program.add_subcommand("selftest", "Prove on this machine what must not fail in a long run");
  selftest->require_subcommand(1);
  AddResume(*selftest);
}

}  // namespace sandglass
