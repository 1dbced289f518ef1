// sandglass logits: what a model computes from token ids, for comparison with other software.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>

#include "app/model_options.h"
#include "app/output.h"
#include "app/verbs.h"
#include "base/format.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "train/open_model.h"

namespace sandglass {
namespace {

struct LogitsFlags {
  std::string model;
  std::string ids;
  std::string out;
  std::string gradients;
  int top = 10;
  int threads = 0;
  WeightsKind weights = WeightsKind::kRaw;
  bool json = false;
};

std::vector<int32_t> ParseIds(const std::string& text, int vocabulary) {
  const auto fail = [&](const std::string& what) {
    throw Error({.what = what,
                 .where = "--ids",
                 .expected = fmt::format("token ids from 0 to {}, as 5,17,3", vocabulary - 1)});
  };
  std::vector<int32_t> ids;
  const char* const end = text.data() + text.size();
  for (const char* next = text.data(); next < end || ids.empty();) {
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(next, end, id);
    const bool more = stop < end && *stop == ',' && stop + 1 < end;
    if (error != std::errc() || (stop < end && !more)) {
      fail(fmt::format("\"{}\" is not a list of token ids", text));
    }
    if (id < 0 || id >= vocabulary) fail(fmt::format("there is no token id {}", id));
    ids.push_back(id);
    next = more ? stop + 1 : end;
  }
  return ids;
}

void WriteLogits(const LogitsFlags& flags, const ModelSource& source,
                 const std::vector<int32_t>& ids) {
  const int length = static_cast<int>(ids.size());
  const int64_t vocabulary = source.config().vocabulary;
  const LoadedModel loaded = LoadModel(source, {.purpose = Purpose::kEvaluate, .length = length},
                                       SystemFor(flags.model, flags.threads));
  std::vector<float> logits(length * vocabulary);
  const View matrix = ViewOf(logits.data(), length, vocabulary);
  loaded.model->Logits({.batch = 1, .length = length, .ids = ids}, matrix);
  if (!flags.out.empty()) {
    WriteNpy(flags.out, matrix);
    if (flags.json) return PrintJson({{"out", flags.out}, {"shape", {length, vocabulary}}});
    return Print(fmt::format("{}  logits [{}, {}] of {}\n", flags.out, length, vocabulary,
                             source.description()));
  }

  // The most likely ids to follow, as a table.
  const std::span<const float> last = std::span(logits).last(vocabulary);
  const double largest = *std::ranges::max_element(last);
  double sum = 0;
  for (const float logit : last) sum += std::exp(logit - largest);
  std::vector<int32_t> order(vocabulary);
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min<int64_t>(flags.top, vocabulary);
  std::ranges::partial_sort(order, order.begin() + count,
                            [&](int32_t a, int32_t b) { return last[a] > last[b]; });
  const std::optional<Tokenizer> tokenizer = source.LoadTokenizer();
  Json rows = Json::array();
  for (int64_t i = 0; i < count; ++i) {
    const int32_t id = order[i];
    Json row = {
        {"id", id}, {"logit", last[id]}, {"probability", std::exp(last[id] - largest) / sum}};
    if (tokenizer && id < tokenizer->vocabulary()) row["text"] = tokenizer->TokenBytes(id);
    rows.push_back(std::move(row));
  }
  const auto spelled = [](const Json& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  if (flags.json) {
    return Print(spelled({{"model", source.description()}, {"ids", ids}, {"top", rows}}, 2) + "\n");
  }
  Print(fmt::format("{}\nafter {} ids, the likeliest next:\n{:>8} {:>10} {:>12}\n",
                    source.description(), length, "id", "logit", "probability"));
  for (const Json& row : rows) {
    Print(fmt::format("{:>8} {:>10.4f} {:>12.6f}  {}\n", row["id"].get<int32_t>(),
                      row["logit"].get<double>(), row["probability"].get<double>(),
                      row.contains("text") ? spelled(row["text"], -1) : ""));
  }
}

void WriteGradients(const LogitsFlags& flags, const ModelSource& source,
                    const std::vector<int32_t>& ids) {
  if (ids.size() < 2) {
    throw Error({.what = "one id predicts nothing, so it has no loss",
                 .where = "--ids",
                 .expected = "two or more ids with --gradients"});
  }
  const int length = static_cast<int>(ids.size()) - 1;
  ModelConfig config = source.config();
  config.z_loss = 0;  // the cross-entropy alone
  const auto backend = SystemFor(flags.model, flags.threads).MakeBackend();
  Model model(config, {.purpose = Purpose::kTrain, .length = length});
  model.Allocate(*backend);
  source.LoadWeights(model.params());
  backend->Zero(model.params().grads());
  const LossSums sums = model.LossAndGradients({.batch = 1,
                                                .length = length,
                                                .ids = std::span(ids).first(length),
                                                .targets = std::span(ids).subspan(1)},
                                               1.0 / length);
  std::vector<NamedTensor> tensors;
  for (const ParamSpec& spec : model.params().specs()) {
    std::vector<int64_t> shape = {spec.rows, spec.cols};
    if (spec.rows == 1) shape = {spec.cols};
    tensors.push_back({spec.name, shape, spec.param->grad});
  }
  const double loss = sums.cross_entropy / length;
  WriteSafetensors(flags.gradients, tensors, {{"loss", fmt::format("{:.17g}", loss)}});
  if (flags.json) {
    return PrintJson({{"gradients", flags.gradients}, {"loss", loss}, {"tokens", length}});
  }
  Print(fmt::format("{}  gradients of {} parameters; loss {:.6f} nats/token over {} tokens\n",
                    flags.gradients, tensors.size(), loss, length));
}

void RunLogits(const LogitsFlags& flags) {
  const std::unique_ptr<ModelSource> source = OpenModel(flags.model, PrintNote, flags.weights);
  const std::vector<int32_t> ids = ParseIds(flags.ids, source->config().vocabulary);
  if (!flags.gradients.empty()) return WriteGradients(flags, *source, ids);
  WriteLogits(flags, *source, ids);
}

}  // namespace

void AddLogitsVerb(CLI::App& program) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* verb = program.add_subcommand(
      "logits",
      "Logits or gradients of a model at given token ids, to check against other software");
  verb->add_option("MODEL", flags->model, "Run directory, Hugging Face directory or GGUF file")
      ->required();
  verb->add_option("--ids", flags->ids, "Token ids: 5,17,3")->required();
  CLI::Option* out = verb->add_option("--out", flags->out,
                                      "Write all logits, f32 [ids, vocabulary], to this .npy file");
  verb->add_option("--gradients", flags->gradients,
                   "Write the gradients of the mean next-token cross-entropy over the ids, for "
                   "every parameter under its own name, to this .safetensors file")
      ->excludes(out);
  verb->add_option("--top", flags->top, "Rows of the table of likely next ids")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddWeightsOption(*verb, flags->weights);
  verb->add_option("--threads", flags->threads, "Threads [all]")->check(CLI::PositiveNumber);
  verb->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*verb, R"(
Examples:
  sandglass logits runs/kjv-llama --ids 5,17,3
      the likeliest ids to follow
  sandglass logits models/SmolLM2.gguf --ids 5,17,3 --out logits.npy
      numpy.load("logits.npy") is an array [3, 49152]
  sandglass logits models/llama-tiny --ids 5,17,3 --gradients gradients.safetensors
      of -(log p(17 | 5) + log p(3 | 5, 17)) / 2
)");
  verb->callback([flags] { RunLogits(*flags); });
}

}  // namespace sandglass
