#include "interop/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "interop/export.h"
#include "interop/model_source.h"
#include "io/quantization.h"
#include "model/observer.h"

namespace sandglass {
namespace {

constexpr int kPositions = kVerifiedPositions;
// Of logits, against the largest logit or 1: what two orders of f32 summation explain, with room.
constexpr double kTolerance = 1e-4;

// Prose with the things that tokenizers stumble over: capitals, digits, signs, several scripts.
constexpr std::string_view kText =
    "A sandglass has two bulbs and a narrow neck. Turn it over, and what took 1,800 grains and "
    "half an hour to fall begins again; nothing is gained on the way down, and nothing is lost. "
    "\"How long is that?\" asked the child. It's as long as it takes: 25 % of the sand is through "
    "after 7.5 minutes, all of it after 30. The glass was blown in 1762 (or '63), the sand is "
    "marble dust, boiled in wine and dried nine times, as the old recipe demands. In der Mitte ist "
    "es am engsten; c'est là que tout passe, grain après grain. 砂は静かに落ちる。 And when the "
    "upper "
    "bulb is empty, the lower one is full: the same sand, the same shape, another hour.\n\n";

std::vector<TokenId> RandomIds(int vocabulary) {
  RandomStream random(1, "verify");
  std::vector<TokenId> ids(kPositions);
  for (TokenId& id : ids) id = static_cast<TokenId>(random.NextBelow(vocabulary));
  return ids;
}

std::vector<TokenId> TextIds(const Tokenizer& tokenizer, int vocabulary) {
  std::vector<TokenId> ids = {tokenizer.end_of_text()};
  Encoder encoder(tokenizer);
  while (std::ssize(ids) < kPositions) encoder.Encode(kText, ids);
  ids.resize(kPositions);
  // A model may have fewer ids than its tokenizer.
  std::erase_if(ids, [&](TokenId id) { return id >= vocabulary; });
  return ids;
}

std::vector<float> LogitsOf(Model& model, std::span<const TokenId> ids) {
  std::vector<float> logits(ids.size() * model.config().vocabulary);
  model.Logits({.batch = 1, .length = static_cast<int>(ids.size()), .ids = ids},
               ViewOf(logits.data(), std::ssize(ids), model.config().vocabulary));
  return logits;
}

double LargestDifference(std::span<const float> a, std::span<const float> b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    // A NaN is the largest difference of all.
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

double LargestValue(std::span<const float> values) {
  double largest = 0.0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

double Agreement(std::span<const float> a, std::span<const float> b, int vocabulary) {
  int64_t same = 0;
  const int64_t rows = std::ssize(a) / vocabulary;
  for (int64_t row = 0; row < rows; ++row) {
    const auto likeliest = [&](std::span<const float> logits) {
      const auto part = logits.subspan(row * vocabulary, vocabulary);
      return std::ranges::max_element(part) - part.begin();
    };
    same += likeliest(a) == likeliest(b) ? 1 : 0;
  }
  return rows == 0 ? 1.0 : static_cast<double>(same) / static_cast<double>(rows);
}

// Puts what the file holds in place of what the model holds.
void RoundAsWritten(Model& model, const ExportRoute& route, ExportType type) {
  std::map<std::string, const ParamSpec*> params;
  for (const ParamSpec& spec : model.params().specs()) params[spec.name] = &spec;
  std::vector<char> bytes;
  std::vector<float> row;
  for (const TensorPlace& place : TensorPlaces(model.config(), route.architecture)) {
    const GgufTensorType stored = StoredType(place, route, type);
    if (stored == GgufTensorType::kF32 && place.factor == 1.0) continue;
    row.resize(place.cols);
    for (int64_t r = 0; r < place.rows; ++r) {
      float* values = params.at(place.param)->param->value.Row<float>(place.first_row + r);
      for (int64_t i = 0; i < place.cols; ++i) {
        row[i] = static_cast<float>(values[i] * place.factor);
      }
      Quantize(stored, row, bytes);
      Dequantize(stored, {bytes.data(), bytes.size()}, row);
      for (int64_t i = 0; i < place.cols; ++i) {
        values[i] = static_cast<float>(row[i] / place.factor);
      }
    }
  }
}

// The stream after the embedding and after every sub-layer.
class StreamRecorder final : public Observer {
 public:
  void BeforeForward(const Pass&, const SubLayer&, ConstView x) override {
    if (streams_.empty()) Record(x);
  }
  void AfterForward(const Pass&, const SubLayer&, ConstView x) override { Record(x); }
  void AfterBackward(const Pass&, const SubLayer&, ConstView) override {}
  const std::vector<std::vector<float>>& streams() const { return streams_; }

 private:
  void Record(ConstView x) {
    std::vector<float>& stream = streams_.emplace_back(x.elements());
    for (int64_t row = 0; row < x.rows; ++row) {
      std::copy_n(x.Row<float>(row), x.cols, stream.data() + row * x.cols);
    }
  }
  std::vector<std::vector<float>> streams_;
};

std::vector<std::vector<float>> StreamsOf(Model& model, std::span<const TokenId> ids) {
  StreamRecorder recorder;
  model.SetObserver(&recorder);
  LogitsOf(model, ids);
  model.SetObserver(nullptr);
  return recorder.streams();
}

// Parameters of the part `prefix` that differ, with by how much.
std::string ParameterDifferences(const Model& original, const Model& loaded,
                                 const std::string& prefix) {
  std::map<std::string, const ParamSpec*> others;
  for (const ParamSpec& spec : loaded.params().specs()) others[spec.name] = &spec;
  std::string text;
  for (const ParamSpec& spec : original.params().specs()) {
    const auto other = others.find(spec.name);
    const bool belongs = spec.name == prefix || spec.name.starts_with(prefix + ".");
    if (!belongs || other == others.end()) continue;
    const int64_t elements = std::min(spec.elements(), other->second->elements());
    const double difference = LargestDifference(
        {spec.param->value.Row<float>(), static_cast<size_t>(elements)},
        {other->second->param->value.Row<float>(), static_cast<size_t>(elements)});
    if (difference > 1e-6)
      text += fmt::format(", {} differs by up to {:.3g}", spec.name, difference);
  }
  return text;
}

// The first place of the stream where the models part.
std::string FirstDrift(Model& original, Model& loaded, std::span<const TokenId> ids) {
  const auto expected = StreamsOf(original, ids);
  const auto found = StreamsOf(loaded, ids);
  const int per_layer = 1 + original.config().shape.sub_mlps();
  for (size_t i = 0; i < expected.size(); ++i) {
    const double scale = std::max(LargestValue(expected[i]), 1e-6);
    if (i < found.size() && LargestDifference(expected[i], found[i]) <= kTolerance * scale)
      continue;
    std::string name = "embedding";
    if (i > 0) {
      const int sub_layer = static_cast<int>(i) - 1;
      const int index = sub_layer % per_layer;
      name = fmt::format("layers.{}.", sub_layer / per_layer) +
             (index == 0 ? "attention" : fmt::format("ffn.{}", index - 1));
    }
    return name + ParameterDifferences(original, loaded, name);
  }
  return "final norm or head" + ParameterDifferences(original, loaded, "final_norm") +
         ParameterDifferences(original, loaded, "head");
}

}  // namespace

Verification VerifyExport(Model& original, Backend& backend, const ExportJob& job,
                          const std::string& path, const std::function<void(double)>& progress) {
  const int vocabulary = original.config().vocabulary;
  const std::unique_ptr<ModelSource> source = OpenForeignModel(path);
  Verification result{.sound = true};
  if (source->config().vocabulary != vocabulary) {
    return {.first_drift = fmt::format("embedding: {} ids in the file, {} in the model",
                                       source->config().vocabulary, vocabulary)};
  }
  Model loaded(source->config(), {.purpose = Purpose::kEvaluate, .length = kPositions});
  loaded.Allocate(backend);
  source->LoadWeights(loaded.params());

  // Every sequence runs three times: as it was, rounded, and through the file.
  double runs_done = 0;
  const auto logits_of = [&](Model& model, const std::vector<TokenId>& ids) {
    std::vector<float> logits = LogitsOf(model, ids);
    const double runs = job.tokenizer != nullptr ? 6.0 : 3.0;
    if (progress) progress(++runs_done / runs);
    return logits;
  };
  std::vector<std::pair<std::string, std::vector<TokenId>>> sequences;
  sequences.emplace_back("random ids", RandomIds(vocabulary));
  if (job.tokenizer != nullptr) {
    sequences.emplace_back("text", TextIds(*job.tokenizer, vocabulary));
  }
  std::vector<std::vector<float>> exact;
  for (const auto& [name, ids] : sequences) exact.push_back(logits_of(original, ids));
  RoundAsWritten(original, job.route, job.type);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& [name, ids] = sequences[i];
    const std::vector<float> expected = logits_of(original, ids);
    const std::vector<float> found = logits_of(loaded, ids);
    const double tolerance = kTolerance * std::max(1.0, LargestValue(expected));
    result.sequences.push_back({.name = name,
                                .positions = std::ssize(ids),
                                .largest = LargestDifference(expected, found),
                                .largest_rounding = LargestDifference(exact[i], found),
                                .agreement = Agreement(exact[i], found, vocabulary)});
    result.tolerance = std::max(result.tolerance, tolerance);
    if (result.sequences.back().largest > tolerance && result.sound) {
      result.sound = false;
      result.first_drift = FirstDrift(original, loaded, ids);
      for (const std::string& difference : ModelDifferences(original.config(), source->config())) {
        result.first_drift += "; " + difference;
      }
    }
  }
  return result;
}

}  // namespace sandglass
