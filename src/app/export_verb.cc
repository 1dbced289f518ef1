#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "app/field_options.h"
#include "app/model_options.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "interop/export.h"
#include "interop/gguf_tokenizer_writer.h"
#include "interop/text_marks.h"
#include "interop/verify.h"
#include "train/open_model.h"

namespace sandglass {

namespace {

// Positions that are claimed for a model that says nothing itself.
constexpr int64_t kDefaultContext = 2048;

struct ExportFlags {
  std::string model;
  ExportTarget to = ExportTarget::kHf;
  ExportType type = ExportType::kF32;
  std::string out;
  int64_t context = 0;
  int threads = 0;
  WeightsKind weights = WeightsKind::kRaw;
  bool verify = false;
  bool force = false;
  bool json = false;
};

uint64_t SizeOnDisk(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return fs::file_size(path);
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) bytes += entry.file_size();
  return bytes;
}

[[noreturn]] void FailVerification(const Verification& verification, const std::string& path) {
  const VerifiedSequence* worst = &verification.sequences.front();
  for (const VerifiedSequence& sequence : verification.sequences) {
    if (sequence.largest > worst->largest) worst = &sequence;
  }
  throw Error({.what = fmt::format("what was written computes something else: logits differ by up "
                                   "to {:.3g} on {}",
                                   worst->largest, worst->name),
               .where = fmt::format("{}, first at {}", path, verification.first_drift),
               .expected = fmt::format("a difference of at most {:.3g}", verification.tolerance),
               .remedy = "nothing was left at the output path; please report this"});
}

Json VerificationJson(const Verification& verification) {
  Json sequences = Json::array();
  for (const VerifiedSequence& sequence : verification.sequences) {
    sequences.push_back({{"tokens", sequence.name},
                         {"positions", sequence.positions},
                         {"largest_difference", sequence.largest},
                         {"largest_difference_to_f32", sequence.largest_rounding},
                         {"same_likeliest_token", sequence.agreement}});
  }
  return {{"tolerance", verification.tolerance}, {"sequences", sequences}};
}

std::string VerificationText(const Verification& verification) {
  std::string text;
  for (const VerifiedSequence& sequence : verification.sequences) {
    text += fmt::format(
        "verified  {} positions of {}: logits within {:.2g} (allowed {:.2g}); to the f32 model "
        "{:.2g}, same likeliest token at {:.1f} %\n",
        sequence.positions, sequence.name, sequence.largest, verification.tolerance,
        sequence.largest_rounding, 100.0 * sequence.agreement);
  }
  return text;
}

void RunExport(const ExportFlags& flags) {
  const Existing existing = flags.force ? Existing::kReplace : Existing::kRefuse;
  const std::unique_ptr<ModelSource> source = OpenModel(flags.model, PrintNote, flags.weights);
  const ModelConfig config = source->config();
  const ExportRoute route = RouteTo(flags.to, flags.type, config);
  RequireRoute(route, flags.model);
  RequireFreePath(flags.to, flags.out, existing);
  std::optional<Tokenizer> tokenizer = source->LoadTokenizer();
  if (tokenizer && source->text_start() == TextStart::kDocument) {
    tokenizer = BeginningLikeDocuments(*tokenizer);
  }
  std::vector<std::string> cautions = route.cautions;
  if (tokenizer && flags.to == ExportTarget::kGguf) {
    std::ranges::move(GgufTokenizerCautions(*tokenizer), std::back_inserter(cautions));
  }
  for (const std::string& caution : cautions) PrintNote("note: " + caution);

  int64_t context = flags.context > 0 ? flags.context : source->context_length();
  if (context == 0) context = kDefaultContext;
  const auto stop_if_asked = [] {
    if (InterruptRequested()) throw Interrupted{"nothing was written; run the same command again"};
  };
  const Model dry_run(config, {});
  Progress loading("load", dry_run.params().elements(), "parameters");
  const LoadedModel loaded =
      LoadModel(*source, {.purpose = Purpose::kEvaluate, .length = kVerifiedPositions},
                SystemFor(flags.model, flags.threads), [&](int64_t parameters) {
                  loading.Update(parameters);
                  stop_if_asked();
                });
  loading.Finish();

  std::optional<Progress> writing;
  const ExportJob job{.config = config,
                      .params = loaded.model->params(),
                      .tokenizer = tokenizer ? &*tokenizer : nullptr,
                      .context_length = context,
                      .name = std::filesystem::path(flags.model).filename().string(),
                      .route = route,
                      .type = flags.type,
                      .progress = [&](uint64_t bytes) {
                        writing->Update(bytes);
                        stop_if_asked();
                      }};
  writing.emplace("write", WeightBytes(job), "bytes");
  std::optional<Verification> verification;
  WriteExport(job, flags.out, existing, [&](const std::string& written) {
    writing->Finish();
    if (!flags.verify) return;
    Progress verifying("verify", 100, "percent");
    verification = VerifyExport(*loaded.model, *loaded.backend, job, written, [&](double share) {
      verifying.Update(static_cast<uint64_t>(100 * share));
      stop_if_asked();
    });
    verifying.Finish();
    if (!verification->sound) FailVerification(*verification, flags.out);
  });
  const uint64_t bytes = SizeOnDisk(flags.out);
  std::string begins;
  if (tokenizer) {
    if (const auto begin = MarksOf(*tokenizer).begin) {
      begins = tokenizer->spec().tokens[*begin];
    }
  }
  if (flags.json) {
    Json json = {{"model", flags.model},
                 {"out", flags.out},
                 {"to", EnumName(flags.to)},
                 {"architecture", EnumName(route.architecture)},
                 {"type", EnumName(flags.type)},
                 {"context_length", context},
                 {"bytes", bytes},
                 {"bos", tokenizer ? Json(begins) : Json(nullptr)},
                 {"cautions", cautions},
                 {"notes", route.notes}};
    if (verification) json["verification"] = VerificationJson(*verification);
    return PrintJson(json);
  }
  Print(fmt::format("{}  {}, {}, {}{}\n", flags.out, EnumName(route.architecture),
                    EnumName(flags.type), HumanBytes(static_cast<double>(bytes)),
                    tokenizer ? (begins.empty() ? std::string(", texts begin without a BOS token")
                                                : ", texts begin with " + begins)
                              : ", without a tokenizer"));
  for (const std::string& note : route.notes) Print(note + "\n");
  if (verification) Print(VerificationText(*verification));
}

}  // namespace

void AddExportVerb(CLI::App& program) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* verb = program.add_subcommand(
      "export", "Write a model for Hugging Face transformers, vLLM or llama.cpp");
  verb->add_option("MODEL", flags->model, "Run directory, Hugging Face directory or GGUF file")
      ->required();
  const FieldOptions options(*verb);
  options("to", flags->to,
          "hf (transformers; vLLM too), vllm (vLLM's own kernels) or gguf (llama.cpp)");
  options("type", flags->type, "Type of the weights: f32, f16, bf16, or q8_0 with --to gguf");
  verb->add_option("--out", flags->out, "Directory, or file with --to gguf")->required();
  verb->add_option("--context", flags->context, "Positions the model is said to take [the model's]")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--verify", flags->verify,
                 "Load what was written and compare logits up to position 200 before it is put in "
                 "place");
  verb->add_flag("--force", flags->force, "Replace an earlier export");
  AddWeightsOption(*verb, flags->weights);
  verb->add_option("--threads", flags->threads, "Threads [all]")->check(CLI::PositiveNumber);
  verb->add_flag("--json", flags->json, "Print JSON");
  verb->get_option("--to")->required();
  AddExamples(*verb, R"(
Examples:
  sandglass export runs/kjv-llama --to hf --out kjv-llama --verify
      a directory that AutoModelForCausalLM.from_pretrained loads; an hourglass comes with its own
      modelling file and needs trust_remote_code=True
  sandglass export runs/kjv-hourglass --to vllm --type bf16 --out kjv-vllm
      vllm serve kjv-vllm --trust-remote-code
  sandglass export runs/kjv-hourglass --to gguf --type q8_0 --out kjv.gguf --verify
      llama-cli -m kjv.gguf
What a target cannot hold is refused with the reason before anything is written; sandglass plan
says the same of a shape before it is trained.
)");
  verb->callback([flags] { RunExport(*flags); });
}

}  // namespace sandglass
