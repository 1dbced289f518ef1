#include "compare/compare.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/cpu.h"
#include "base/file.h"
#include "base/hash.h"
#include "compare/yardstick.h"
#include "data/prepare.h"
#include "train/trainer.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

// What a data directory was made from: if it is the same, the directory is not made again.
std::string TextFingerprint(const Recipe& recipe) {
  Json facts = {{"text", WriteFields(recipe.text)}};
  for (const std::string& input : recipe.text.corpus.inputs) {
    if (!fs::is_directory(input)) {
      facts["inputs"].push_back(HashHex(HashFile(input)));
      continue;
    }
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(input)) {
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
    }
    std::ranges::sort(paths);
    for (const std::string& path : paths) {
      facts["inputs"].push_back(path + " " + HashHex(HashFile(path)));
    }
  }
  return facts.dump(2) + "\n";
}

RunConfig ConfigOf(const Recipe& recipe, const PlannedVariant& variant, int64_t seed,
                   const std::string& data) {
  RunConfig config;
  config.name = fmt::format("{}-s{}", variant.name, seed);
  config.model = {variant.family, variant.config};
  config.data.path = data;
  config.train = recipe.train.options;
  config.train.seed = static_cast<uint64_t>(seed);
  config.optimizer = recipe.optimizer;
  config.system = recipe.system;
  return config;
}

// The validation documents, a line end after each, as the models saw them.
std::string ValidationText(const PreparedData& data) {
  std::vector<TokenId> ids(data.validation.tokens());
  data.validation.Read(0, ids);
  std::string text;
  for (auto at = ids.begin(); at != ids.end();) {
    const auto begin = at + 1;  // behind the end-of-text token that opens each document
    at = std::find(begin, ids.end(), data.tokenizer.end_of_text());
    text += data.tokenizer.Decode(std::span(begin, at));
    text += '\n';
  }
  return text;
}

ReportText DescribeText(const Recipe& recipe, const PreparedData& data) {
  const ShardInfo& train = data.train.info();
  const ShardInfo& validation = data.validation.info();
  const std::string text = ValidationText(data);
  const auto bits_per_byte = [&](int64_t compressed_bytes) {
    return 8.0 * static_cast<double>(compressed_bytes) / static_cast<double>(validation.text_bytes);
  };
  return {.source = recipe.text.prepared.empty()
                        ? fmt::format("{}", fmt::join(recipe.text.corpus.inputs, ", "))
                        : train.source,
          .tokenizer_hash = data.tokenizer.hash(),
          .vocabulary = data.tokenizer.vocabulary(),
          .training_tokens = train.tokens,
          .training_bytes = train.text_bytes,
          .training_documents = train.documents,
          .validation_tokens = validation.tokens,
          .validation_bytes = validation.text_bytes,
          .validation_documents = validation.documents,
          .compressors = {{"gzip -9", bits_per_byte(GzipBytes(text))},
                          {"xz -9", bits_per_byte(XzBytes(text))}}};
}

ReportVariant DescribeVariant(const PlannedVariant& variant, int length) {
  const ParameterCounts counts = CountParameters(variant.config);
  const FlopCounts flops = CountFlops(variant.config, length);
  const Shape& shape = variant.config.shape;
  return {.name = variant.name,
          .family = EnumName(variant.family),
          .shape = shape.ToString(),
          .layers = shape.layers,
          .d_model = shape.d_model,
          .sub_mlps = shape.sub_mlps(),
          .ffn_ratio = RatiosOf(shape).ffn_to_model,
          .counts = {.attention = counts.attention,
                     .ffn = counts.ffn,
                     .norms = counts.norms,
                     .embeddings = counts.embeddings + counts.head},
          .relative_difference = variant.relative_difference,
          .train_flops_per_token = static_cast<double>(flops.training),
          .decode_flops_per_token = static_cast<double>(flops.decoding),
          .kv_cache_bytes_per_token = KvCacheBytesPerToken(shape, DType::kF32)};
}

ReportRun DescribeRun(const std::string& directory, int64_t seed, const RunResult& result,
                      const CompareOptions& options) {
  ReportRun run{.seed = seed,
                .validation_loss = result.validation_loss,
                .perplexity = result.perplexity,
                .bits_per_byte = result.bits_per_byte,
                .tokens = result.tokens,
                .tokens_per_s = result.tokens_per_s,
                .wall_s = result.train_seconds};
  if (result.peak_memory_bytes > 0) run.peak_memory_bytes = result.peak_memory_bytes;
  RunMetrics metrics;
  try {
    metrics = ReadMetrics(directory);
  } catch (const Error& failure) {  // the result stands without its curves
    options.note(fmt::format("no curves for {}: {}", directory, failure.what()));
  }
  for (const StepMetrics& step : metrics.steps) {
    if (!step.skipped) run.training_curve.push_back({step.tokens, step.loss});
  }
  for (const ValidationMetrics& validation : metrics.validations) {
    run.validation_curve.push_back({validation.tokens, validation.loss});
  }
  return run;
}

std::vector<ReportSetting> DescribeSettings(const Recipe& recipe) {
  std::vector<ReportSetting> settings;
  const auto add_all = [&](const char* table, const Json& values) {
    for (const auto& [key, value] : values.items()) {
      if (value.is_null()) continue;
      settings.push_back({fmt::format("{}.{}", table, key), value.dump()});
    }
  };
  settings.push_back({"seeds", Json(recipe.seeds).dump()});
  add_all("train", WriteFields(recipe.train));
  add_all("optimizer", WriteFields(recipe.optimizer));
  add_all("system", WriteFields(recipe.system));
  return settings;
}

// An early or partial report shows the runs that have finished; without any there is nothing to
// show, and an older report stays.
void WriteReports(const ReportData& report, const std::string& directory) {
  const bool any_finished = std::ranges::any_of(report.variants, [](const ReportVariant& variant) {
    return std::ranges::any_of(
        variant.runs, [](const ReportRun& run) { return run.status == RunStatus::kFinished; });
  });
  if (!any_finished) return;
  WriteFileAtomically(directory + "/report.html", RenderHtml(report));
  WriteFileAtomically(directory + "/report.txt", RenderText(report));
  WriteFileAtomically(directory + "/report.json", ReportJson(report).dump(1) + "\n");
}

std::string RecipePath(const std::string& directory) { return directory + "/recipe.toml"; }

// A directory holds one comparison: with other settings its runs would not belong together. More
// seeds and variants, and other words, are welcome.
void CheckSameComparison(const Recipe& recipe, const std::string& directory) {
  if (!fs::exists(RecipePath(directory))) return;
  const std::vector<std::string> differences =
      Differences(Recipe::Load(RecipePath(directory), {}), recipe,
                  {"title", "question", "system", "seeds", "variant"});
  if (differences.empty()) return;
  throw Error({.what = fmt::format("the directory holds a comparison with other settings: {}",
                                   fmt::join(differences, ", ")),
               .where = directory,
               .remedy = "choose another --out, or remove this directory to start over"});
}

// Everything that is known before the first run.
ReportData BeginReport(const Recipe& recipe, const MatchedPlan& plan, const PreparedData& data,
                       const CompareOptions& options) {
  ReportData report{.title = recipe.title.empty() ? recipe.name : recipe.title,
                    .question = recipe.question,
                    .baseline = recipe.baseline,
                    .matched = EnumName(recipe.match),
                    .tolerance = recipe.tolerance,
                    .text = DescribeText(recipe, data),
                    .settings = DescribeSettings(recipe),
                    .recipe = ToToml(WriteFields(recipe)),
                    .command = options.command,
                    .version = SANDGLASS_VERSION,
                    .date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))),
                    .host = {.cpu = CpuModelName(),
                             .threads = ResolveThreads(recipe.system.threads, "system.threads"),
                             .backend = DescribeCompute(*recipe.system.MakeBackend(),
                                                        recipe.train.options.precision)}};
  for (const PlannedVariant& variant : plan.variants) {
    report.variants.push_back(DescribeVariant(variant, recipe.train.options.length));
  }
  return report;
}

}  // namespace

std::string PrepareText(const Recipe& recipe, const CompareOptions& options) {
  if (!recipe.text.prepared.empty()) return recipe.text.prepared;
  const std::string directory = options.out + "/data";
  const std::string fingerprint_path = directory + "/made-from.json";
  const std::string fingerprint = TextFingerprint(recipe);
  if (fs::exists(fingerprint_path)) {
    if (ReadFile(fingerprint_path) != fingerprint) {
      throw Error({.what = "the text has changed since this comparison began",
                   .where = options.out,
                   .remedy = "choose another --out, or remove this directory to start over"});
    }
    const auto is_there = [&](const char* name) { return fs::exists(directory + "/" + name); };
    if (is_there(kTrainShardName) && is_there(kValidationShardName) && is_there(kTokenizerName)) {
      return directory;
    }
  }
  CreateDirectories(directory);
  const std::string tokenizer_path = options.out + "/tokenizer.json";
  CorpusReader corpus(recipe.text.corpus);
  TrainBpe(corpus,
           {.vocabulary = recipe.text.vocabulary,
            .pattern = recipe.text.pattern,
            .threads = recipe.system.threads},
           options.progress)
      .Save(tokenizer_path);
  PrepareCorpus({.tokenizer = tokenizer_path,
                 .out = directory,
                 .corpus = recipe.text.corpus,
                 .validation = recipe.text.validation,
                 .seed = recipe.text.split_seed,
                 .threads = recipe.system.threads},
                options.progress);
  WriteFileAtomically(fingerprint_path, fingerprint);
  return directory;
}

std::optional<ReportData> Compare(const Recipe& recipe, const CompareOptions& options) {
  // The plan needs only the size of the vocabulary, so mistakes in it show before any work is done.
  if (recipe.text.prepared.empty()) PlanVariants(recipe, recipe.text.vocabulary);
  CheckSameComparison(recipe, options.out);
  CreateDirectories(options.out);
  const std::string data_directory = PrepareText(recipe, options);
  const PreparedData data = PreparedData::Open(data_directory);
  const MatchedPlan plan = PlanVariants(recipe, data.tokenizer.vocabulary());
  WriteFileAtomically(RecipePath(options.out), ToToml(WriteFields(recipe)));
  ReportData report = BeginReport(recipe, plan, data, options);

  // Seed by seed, so that an early look compares all variants.
  const size_t total = recipe.seeds.size() * plan.variants.size();
  size_t number = 0;
  for (const int64_t seed : recipe.seeds) {
    for (size_t v = 0; v < plan.variants.size(); ++v) {
      const RunConfig config = ConfigOf(recipe, plan.variants[v], seed, data_directory);
      const std::string directory = options.out + "/" + config.name;
      options.note(fmt::format("run {} of {}: {}  {}", ++number, total, config.name,
                               plan.variants[v].config.shape.ToString()));
      try {
        const auto result = Train(config, directory, ExistingRun::kContinue,
                                  {.progress = options.progress, .note = options.note});
        if (!result) {
          WriteReports(report, options.out);
          return std::nullopt;
        }
        report.variants[v].runs.push_back(DescribeRun(directory, seed, *result, options));
      } catch (const std::exception& failure) {
        options.note(fmt::format("{} failed: {}", config.name, failure.what()));
        report.variants[v].runs.push_back(
            {.seed = seed, .status = RunStatus::kFailed, .message = failure.what()});
      }
    }
  }
  WriteReports(report, options.out);
  return report;
}

}  // namespace sandglass
