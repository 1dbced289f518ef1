// sandglass import: a run directory from a model of another program.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/progress.h"
#include "model/model.h"
#include "train/import_run.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

struct ImportFlags {
  std::string model;
  std::string out;
  bool json = false;
};

void RunImport(const ImportFlags& flags) {
  if (IsRunDirectory(flags.model)) {
    throw Error({.what = "this is a run directory already",
                 .where = flags.model,
                 .expected = "a Hugging Face directory or a GGUF file",
                 .remedy = "every verb takes it as it is"});
  }
  const std::unique_ptr<ModelSource> source = OpenForeignModel(flags.model);
  for (const std::string& note : source->notes()) PrintNote("note: " + note);
  const Model dry_run(source->config(), {});
  Progress progress("import", dry_run.params().elements(), "parameters");
  const ImportedRun run =
      ImportRun(*source, flags.out, [&](int64_t parameters) { progress.Update(parameters); });
  progress.Finish();
  if (flags.json) {
    return PrintJson({{"run_directory", flags.out},
                      {"model", source->description()},
                      {"parameters", run.parameters},
                      {"tokenizer_hash", run.tokenizer_hash},
                      {"context_length", source->context_length()},
                      {"config", WriteFields(source->config())}});
  }
  const ModelConfig& config = source->config();
  Print(fmt::format(
      "model          {}\n"
      "shape          {}, vocabulary {}, {} embeddings\n"
      "parameters     {}\n"
      "tokenizer      {}\n"
      "run directory  {}\n",
      source->description(), config.shape.ToString(), WithThousands(config.vocabulary),
      EnumName(config.embeddings), WithThousands(run.parameters),
      run.tokenizer_hash.empty() ? "none: token ids only" : run.tokenizer_hash, flags.out));
}

}  // namespace

void AddImportVerb(CLI::App& program) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* verb = program.add_subcommand(
      "import", "Make a run directory of a model that another program wrote");
  verb->add_option("MODEL", flags->model,
                   "Hugging Face directory (Llama, Qwen3, OLMo-2, or one that Sandglass exported) "
                   "or GGUF file (llama, qwen3, olmo2, deci)")
      ->required();
  verb->add_option("--out", flags->out, "Run directory to make")->required();
  verb->add_flag("--json", flags->json, "Print JSON, with the configuration");
  AddExamples(*verb, R"(
Examples:
  sandglass import models/SmolLM2-135M-Instruct.Q4_1.gguf --out runs/smollm2
  sandglass generate runs/smollm2 --prompt "The capital of France is" --temperature 0
  sandglass import models/OLMo-2-0425-1B --out runs/olmo2-1b

To train on from it, name it in a run file with the same [model]:
  [train]
  initial_weights = "runs/smollm2"
)");
  verb->callback([flags] { RunImport(*flags); });
}

}  // namespace sandglass
