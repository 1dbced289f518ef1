// sandglass inspect: how signals propagate through a model.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/file.h"
#include "inspect/inspect.h"

namespace sandglass {
namespace {

struct InspectFlags {
  InspectOptions options;
  std::string family;
  std::string html;
  bool summary = false;
  bool json = false;
};

void RunInspect(InspectFlags& flags) {
  if (!flags.family.empty()) {
    flags.options.family = ParseEnum<Family>(flags.family, "--family");
  }
  const InspectReport report = Inspect(flags.options, PrintNote);
  if (!flags.html.empty()) {
    const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    WriteFileAtomically(flags.html, RenderInspectHtml(report, date));
    PrintNote("picture: " + flags.html);
  }
  if (flags.json) return PrintJson(WriteFields(report));
  Print(RenderInspectText(report,
                          flags.summary ? InspectDetail::kSummary : InspectDetail::kEverySubLayer));
}

}  // namespace

void AddInspectVerb(CLI::App& program) {
  auto flags = std::make_shared<InspectFlags>();
  InspectOptions& options = flags->options;
  CLI::App* verb = program.add_subcommand(
      "inspect",
      "Signal propagation: stream, shares, angles, gradients, attention, initial weights");
  verb->add_option("RUN_OR_SHAPE", options.targets, "Run directories, or shapes")->required();
  verb->add_option("--at", options.at,
                   "init, last, all, or a step; several between commas [last; of shapes init]")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--seeds", options.seeds, "Seeds of initial weights, between commas [the run's]")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--data", options.data, "Prepared data [the run's own; shapes: random tokens]");
  verb->add_option("--family", flags->family, "Of shapes: llama, hourglass or olmo2 [hourglass]");
  verb->add_option("--set", options.overrides,
                   "Of shapes: a key of a run file, --set model.norm=post (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--batch", options.batch, "Sequences")->check(CLI::Range(1, 1024));
  verb->add_option("--length", options.length, "Tokens of a sequence [as trained; shapes: 128]")
      ->check(CLI::Range(1, 65536));
  verb->add_option("--html", flags->html, "Write a page with charts to this file");
  verb->add_flag("--summary", flags->summary, "One line per model instead of one per sub-layer");
  verb->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass inspect L4-d64-a2x32-f8x32
      fresh weights on random tokens, and whether they start as stated
  sandglass inspect runs/kjv-llama --at init,last --html signals.html
      before and after training, on the run's own validation text, with charts
  sandglass inspect L4-d64-a2x32-f1x256 L4-d64-a2x32-f8x32 --summary --seeds 1,2,3
                    --set model.depth_scaled_init=true
      shapes side by side, mean and spread over seeds
)");
  verb->callback([flags] { RunInspect(*flags); });
}

}  // namespace sandglass
