#include "inspect/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/interrupt.h"
#include "base/random.h"
#include "data/data_set.h"
#include "data/samples.h"
#include "interop/gguf_tokenizer.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

constexpr int kShapeLength = 128;       // T of shapes
constexpr int kShapeVocabulary = 4096;  // V of shapes without data
constexpr const char* kCheckpointPrefix = "step-";

// A batch of tokens and what they are.
struct Text {
  std::string name;
  std::vector<int32_t> ids;      // [B*T]
  std::vector<int32_t> targets;  // [B*T]
  std::vector<int32_t> starts;   // [B*T] within documents, else empty
};

Text RandomTokens(int64_t tokens, int vocabulary) {
  RandomStream random(1, "inspect");
  Text text{.name = "random tokens"};
  for (int64_t i = 0; i < tokens; ++i) {
    text.ids.push_back(static_cast<int32_t>(random.NextBelow(vocabulary)));
    text.targets.push_back(static_cast<int32_t>(random.NextBelow(vocabulary)));
  }
  return text;
}

bool Names(const DataOptions& options) { return !options.path.empty() || !options.sources.empty(); }

// The first windows of the validation tokens.
Text ValidationText(const DataOptions& options, int batch, int length, int vocabulary) {
  const std::string name = options.path.empty() ? "[[data.sources]]" : options.path;
  const DataSet data = DataSet::Open(options, LoadAnyTokenizer);
  if (data.vocabulary > vocabulary) {
    throw Error({.what = fmt::format("the model has {} token ids, the data {}", vocabulary,
                                     data.vocabulary),
                 .where = name,
                 .expected = "data made with the model's tokenizer"});
  }
  const EvalWindows windows(data.validation, length);
  if (windows.count() < batch) {
    throw Error({.what = fmt::format("the validation text has {} windows of {} tokens",
                                     windows.count(), length),
                 .where = name,
                 .expected = fmt::format("{} or more", batch),
                 .remedy = "lower --batch or --length"});
  }
  Text text{.name = name};
  text.ids.resize(int64_t{batch} * length);
  text.targets.resize(text.ids.size());
  if (windows.within_documents()) text.starts.resize(text.ids.size());
  for (int b = 0; b < batch; ++b) {
    const auto part = [&](std::vector<int32_t>& values) {
      return values.empty() ? std::span<int32_t>()
                            : std::span(values).subspan(int64_t{b} * length, length);
    };
    windows.Fill(b, part(text.ids), part(text.targets), part(text.starts));
  }
  return text;
}

// Steps of which the run has checkpoints, in their order.
std::vector<int64_t> CheckpointSteps(const std::string& run) {
  std::vector<int64_t> steps;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(CheckpointsPath(run), missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kCheckpointPrefix)) continue;
    const std::string digits = name.substr(std::string_view(kCheckpointPrefix).size());
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos) {
      steps.push_back(std::stoll(digits));
    }
  }
  std::ranges::sort(steps);
  return steps;
}

std::string CheckpointPath(const std::string& run, int64_t step) {
  return fmt::format("{}/{}{:08}", CheckpointsPath(run), kCheckpointPrefix, step);
}

// Shape, family, and the keys that differ from the family's.
std::string Describe(const ModelSection& model) {
  const ModelConfig& config = model.config;
  ModelConfig usual = FamilyConfig(model.family, config.shape, config.vocabulary);
  std::string out = fmt::format("{} {}", config.shape.ToString(), EnumName(model.family));
  const Json before = WriteFields(usual);
  const Json now = WriteFields(config);
  for (const auto& [key, value] : now.items()) {
    if (value == before[key]) continue;
    out += fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return out;
}

// One run or shape.
class Target {
 public:
  Target(const std::string& name, const InspectOptions& options)
      : options_(options), is_run_(IsRunDirectory(name)) {
    if (is_run_) {
      run_ = name;
      if (!options.overrides.empty() || options.family) {
        throw Error({.what = "a run keeps the model it was trained with",
                     .where = name,
                     .remedy = "leave out --set and --family, or inspect a shape"});
      }
      config_ = ReadRunConfig(name);
    } else {
      config_ = ShapeConfig(name);
    }
    length_ = options.length > 0 ? options.length : is_run_ ? config_.train.length : kShapeLength;
  }

  void Measure(std::vector<Snapshot>& out, const std::function<void(std::string_view)>& report) {
    ModelConfig& model = config_.model.config;
    DataOptions data = config_.data;
    if (!options_.data.empty()) {
      data = DataOptions{};
      data.path = options_.data;
      data.document_masking = config_.data.document_masking;
    }
    if (model.vocabulary == 0) {
      model.vocabulary = Names(data)
                             ? static_cast<int>(DataSet::Open(data, LoadAnyTokenizer).vocabulary)
                             : kShapeVocabulary;
    }
    text_ = Names(data) ? ValidationText(data, options_.batch, length_, model.vocabulary)
                        : RandomTokens(int64_t{options_.batch} * length_, model.vocabulary);
    backend_ = config_.system.MakeBackend();
    model_ = std::make_unique<Model>(
        model, Capacity{.purpose = Purpose::kTrain, .batch = options_.batch, .length = length_});
    model_->Allocate(*backend_);
    for (const std::string& at : Moments()) MeasureAt(at, out, report);
  }

 private:
  RunConfig ShapeConfig(const std::string& name) const {
    if (fs::exists(name)) {
      throw Error({.what = "this is not a run directory: it has no run.toml",
                   .where = name,
                   .expected = "a directory that `sandglass train` wrote, or a shape"});
    }
    Shape::Parse(name);  // so that a mistake is shown with a caret
    ConfigTree tree;
    tree.source = name;
    tree.values["model"] = {{"family", EnumName(options_.family.value_or(Family::kHourglass))},
                            {"shape", name}};
    return RunConfig::FromTree(tree, options_.overrides);
  }

  std::vector<std::string> Moments() const {
    if (options_.at.empty()) return {is_run_ ? "last" : "init"};
    std::vector<std::string> moments;
    for (const std::string& at : options_.at) {
      if (at != "all") {
        moments.push_back(at);
        continue;
      }
      moments.push_back("init");
      if (!is_run_) continue;
      for (const int64_t step : CheckpointSteps(run_)) moments.push_back(std::to_string(step));
    }
    return moments;
  }

  void MeasureAt(const std::string& at, std::vector<Snapshot>& out,
                 const std::function<void(std::string_view)>& report) {
    if (at == "init") {
      std::vector<int64_t> seeds = options_.seeds;
      if (seeds.empty()) seeds = {static_cast<int64_t>(config_.train.seed)};
      for (const int64_t seed : seeds) {
        model_->params().Initialize(static_cast<uint64_t>(seed));
        Add("init", seed, out, report).init = CheckInit(config_.model.config, model_->params());
      }
      return;
    }
    if (!is_run_) {
      throw Error({.what = fmt::format("a shape has no checkpoint \"{}\"", at),
                   .where = "--at",
                   .expected = "init",
                   .remedy = "train it, and inspect the run directory"});
    }
    const std::string directory = FindMoment(at, report);
    LoadWeights(directory, model_->params());
    const std::string name = fs::path(directory).filename().string();
    const int64_t step = std::stoll(name.substr(std::string_view(kCheckpointPrefix).size()));
    Add(fmt::format("step {}", step), static_cast<int64_t>(config_.train.seed), out, report);
  }

  std::string FindMoment(const std::string& at,
                         const std::function<void(std::string_view)>& report) const {
    if (at == "last") {
      if (const auto newest = FindCheckpoint(run_, report)) return *newest;
      throw Error({.what = "the run has no sound checkpoint",
                   .where = run_,
                   .remedy = "train it first, or look at its initial weights: --at init"});
    }
    const std::vector<int64_t> steps = CheckpointSteps(run_);
    for (const int64_t step : steps) {
      if (std::to_string(step) == at) return CheckpointPath(run_, step);
    }
    throw Error({.what = fmt::format("the run has no checkpoint \"{}\"", at),
                 .where = run_,
                 .expected = fmt::format(
                     "init, last, all, or a step: {}",
                     steps.empty() ? "there is none" : fmt::format("{}", fmt::join(steps, " ")))});
  }

  Snapshot& Add(std::string at, int64_t seed, std::vector<Snapshot>& out,
                const std::function<void(std::string_view)>& report) {
    if (InterruptRequested()) throw Interrupted{"nothing was written; start it again"};
    const std::string model = Describe(config_.model);
    report(fmt::format("{}  {}  seed {}", model, at, seed));
    out.push_back({.model = model,
                   .source = run_,
                   .at = std::move(at),
                   .seed = seed,
                   .text = text_.name,
                   .propagation = MeasurePropagation(
                       *model_, *backend_,
                       {options_.batch, length_, text_.ids, text_.targets, text_.starts})});
    return out.back();
  }

  const InspectOptions& options_;
  bool is_run_;
  std::string run_;
  RunConfig config_;
  int length_ = 0;
  Text text_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

SnapshotSummary::Figure FigureOf(const std::vector<const Snapshot*>& snapshots,
                                 const std::function<double(const Propagation&)>& value) {
  std::vector<double> values;
  for (const Snapshot* snapshot : snapshots) values.push_back(value(snapshot->propagation));
  SnapshotSummary::Figure figure;
  for (const double v : values) figure.mean += v / static_cast<double>(values.size());
  if (values.size() < 2) return figure;
  double sum = 0.0;
  for (const double v : values) sum += (v - figure.mean) * (v - figure.mean);
  figure.deviation = std::sqrt(sum / static_cast<double>(values.size() - 1));
  return figure;
}

double SmallestShare(const Propagation& propagation) {
  return std::ranges::min(propagation.sub_layers, {}, &SubLayerSignals::share).share;
}

double LastAngle(const Propagation& propagation) {
  const size_t all = propagation.sub_layers.size();
  const size_t last = std::max<size_t>(1, all / 4);
  double sum = 0.0;
  for (size_t i = all - last; i < all; ++i) sum += propagation.sub_layers[i].angle;
  return sum / static_cast<double>(last);
}

double MeanRelativeEntropy(const Propagation& propagation) {
  double sum = 0.0;
  int layers = 0;
  for (const SubLayerSignals& signals : propagation.sub_layers) {
    if (!signals.relative_entropy) continue;
    sum += *signals.relative_entropy;
    ++layers;
  }
  return layers > 0 ? sum / layers : std::nan("");
}

double LargestLogit(const Propagation& propagation) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const SubLayerSignals& signals : propagation.sub_layers) {
    if (signals.largest_logit) largest = std::max(largest, *signals.largest_logit);
  }
  return largest;
}

}  // namespace

std::vector<SnapshotSummary> Summarize(const std::vector<Snapshot>& snapshots) {
  std::vector<std::vector<const Snapshot*>> groups;
  for (const Snapshot& snapshot : snapshots) {
    const auto same = std::ranges::find_if(groups, [&](const auto& group) {
      return group[0]->model == snapshot.model && group[0]->at == snapshot.at;
    });
    if (same != groups.end()) {
      same->push_back(&snapshot);
    } else {
      groups.push_back({&snapshot});
    }
  }
  std::vector<SnapshotSummary> out;
  for (const auto& group : groups) {
    out.push_back(
        {.model = group[0]->model,
         .at = group[0]->at,
         .seeds = static_cast<int>(group.size()),
         .additions = static_cast<int64_t>(group[0]->propagation.sub_layers.size()),
         .loss = FigureOf(group, [](const Propagation& p) { return p.loss; }),
         .stream_growth = FigureOf(group, [](const Propagation& p) { return p.StreamGrowth(); }),
         .gradient_growth =
             FigureOf(group, [](const Propagation& p) { return p.GradientGrowth(); }),
         .smallest_share = FigureOf(group, SmallestShare),
         .last_angle = FigureOf(group, LastAngle),
         .relative_entropy = FigureOf(group, MeanRelativeEntropy),
         .largest_logit = FigureOf(group, LargestLogit)});
  }
  return out;
}

InspectReport Inspect(const InspectOptions& options,
                      const std::function<void(std::string_view)>& report) {
  InspectReport result{.version = SANDGLASS_VERSION, .batch = options.batch};
  for (const std::string& name : options.targets) {
    Target(name, options).Measure(result.snapshots, report);
  }
  result.summary = Summarize(result.snapshots);
  return result;
}

}  // namespace sandglass
