// What a comparison of matched shapes found, and the three forms in which it is shown. Whoever
// plans, trains and evaluates fills ReportData (texts in UTF-8); everything else follows from it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace sandglass {

// One point of a loss curve.
struct CurvePoint {
  int64_t tokens = 0;  // trained on so far
  double loss = 0.0;   // nats per token

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("tokens", self.tokens, "tokens trained on so far");
    field("loss", self.loss, "nats per token");
  }
};

enum class RunStatus { kFinished, kFailed };

template <>
struct EnumNames<RunStatus> {
  static constexpr std::array<std::pair<RunStatus, const char*>, 2> kNames{
      {{RunStatus::kFinished, "finished"}, {RunStatus::kFailed, "failed"}}};
};

// One training run: a variant with one seed. A failed run keeps what it has of curves and costs;
// its results are not shown and do not count.
struct ReportRun {
  int64_t seed = 0;
  RunStatus status = RunStatus::kFinished;
  std::string message;           // why it failed; its first line is a sentence of its own
  double validation_loss = 0.0;  // nats per token
  double perplexity = 0.0;
  double bits_per_byte = 0.0;
  int64_t tokens = 0;  // trained on
  double tokens_per_s = 0.0;
  double wall_s = 0.0;
  std::optional<int64_t> peak_memory_bytes;
  std::vector<CurvePoint> training_curve;    // ascending tokens, as in the next
  std::vector<CurvePoint> validation_curve;  // over the text that bits_per_byte is about

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("seed", self.seed, "seed of initial weights and data order");
    field("status", self.status, "finished or failed");
    field("message", self.message, "why it failed");
    field("validation_loss", self.validation_loss, "nats per token");
    field("perplexity", self.perplexity, "exp of the validation loss");
    field("bits_per_byte", self.bits_per_byte, "bits per byte of validation text");
    field("tokens", self.tokens, "tokens trained on");
    field("tokens_per_s", self.tokens_per_s, "measured training tokens per second");
    field("wall_s", self.wall_s, "seconds of wall time");
    field("peak_memory_bytes", self.peak_memory_bytes, "peak memory, null if unknown");
    field("training_curve", self.training_curve, "training loss");
    field("validation_curve", self.validation_curve, "validation loss");
  }
};

// Parameters by where they sit.
struct ReportCounts {
  int64_t attention = 0;   // its matrices
  int64_t ffn = 0;         // its matrices
  int64_t norms = 0;       // all gains, those of QK-norm too
  int64_t embeddings = 0;  // input and output, padding rows too; tied ones once

  int64_t matrices() const { return attention + ffn; }
  int64_t non_embedding() const { return matrices() + norms; }
  int64_t total() const { return non_embedding() + embeddings; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("attention", self.attention, "attention matrices");
    field("ffn", self.ffn, "FFN matrices");
    field("norms", self.norms, "norm gains");
    field("embeddings", self.embeddings, "input and output embeddings");
  }
};

// One of the models compared, with its runs.
struct ReportVariant {
  std::string name;    // distinct
  std::string family;  // "hourglass"
  std::string shape;   // "L12-d768-a12x64-f8x384"
  int layers = 0;      // L
  int d_model = 0;
  int sub_mlps = 0;        // K
  double ffn_ratio = 0.0;  // d_h / d_model, the mean over the sub-MLPs
  ReportCounts counts;
  double relative_difference = 0.0;  // of the matched quantity to the baseline's: 0.001 is 0.1 %
  double train_flops_per_token = 0.0;
  double decode_flops_per_token = 0.0;
  int64_t kv_cache_bytes_per_token = 0;
  std::vector<ReportRun> runs;  // distinct seeds

  double width_per_layer() const { return static_cast<double>(d_model) / layers; }
  double attention_share() const {  // of the matrices
    return static_cast<double>(counts.attention) / static_cast<double>(counts.matrices());
  }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "name of the variant");
    field("family", self.family, "model family");
    field("shape", self.shape, "shape notation");
    field("layers", self.layers, "layers, L");
    field("d_model", self.d_model, "width of the residual stream");
    field("sub_mlps", self.sub_mlps, "sub-MLPs per layer, K");
    field("ffn_ratio", self.ffn_ratio, "d_h/d_model");
    field("counts", self.counts, "parameters");
    field("relative_difference", self.relative_difference,
          "of the matched quantity to the baseline's");
    field("train_flops_per_token", self.train_flops_per_token, "forward and backward");
    field("decode_flops_per_token", self.decode_flops_per_token, "one generated token");
    field("kv_cache_bytes_per_token", self.kv_cache_bytes_per_token, "keys and values");
    field("runs", self.runs, "one per seed");
  }
};

// A general-purpose compressor on the same validation text, as a yardstick.
struct ReportCompressor {
  std::string name;  // "gzip -9"
  double bits_per_byte = 0.0;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "program and level");
    field("bits_per_byte", self.bits_per_byte, "of the validation text");
  }
};

struct ReportText {
  std::string source;  // what it is and where it came from
  std::string tokenizer_hash;
  int64_t vocabulary = 0;
  int64_t training_tokens = 0;
  int64_t training_bytes = 0;
  int64_t training_documents = 0;
  int64_t validation_tokens = 0;
  int64_t validation_bytes = 0;
  int64_t validation_documents = 0;
  std::vector<ReportCompressor> compressors;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("source", self.source, "what the text is");
    field("tokenizer_hash", self.tokenizer_hash, "hash of the tokenizer");
    field("vocabulary", self.vocabulary, "tokens known to the tokenizer");
    field("training_tokens", self.training_tokens, "tokens to train on");
    field("training_bytes", self.training_bytes, "bytes of UTF-8");
    field("training_documents", self.training_documents, "documents");
    field("validation_tokens", self.validation_tokens, "tokens held out");
    field("validation_bytes", self.validation_bytes, "bytes of UTF-8");
    field("validation_documents", self.validation_documents, "documents");
    field("compressors", self.compressors, "yardsticks on the validation text");
  }
};

// A line of "how to repeat this".
struct ReportSetting {
  std::string name;
  std::string value;

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("name", self.name, "name");
    field("value", self.value, "value");
  }
};

struct ReportHost {
  std::string cpu;      // model name
  int threads = 0;      // used
  std::string backend;  // instruction set, who multiplies matrices

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("cpu", self.cpu, "processor");
    field("threads", self.threads, "threads used");
    field("backend", self.backend, "instruction set and who multiplies matrices");
  }
};

struct ReportData {
  std::string title;
  std::string question;
  std::string baseline;    // name of one of the variants
  std::string matched;     // what is equal: "matrices", "non-embedding parameters"
  double tolerance = 0.0;  // of the match, relative: 1e-5 is 0.001 %
  ReportText text;
  std::vector<ReportSetting> settings;  // of training
  std::string recipe;                   // TOML: the whole of it, defaults too
  std::string command;
  std::string version;
  std::string date;
  ReportHost host;
  std::vector<ReportVariant> variants;  // in the order in which they are shown

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor&& field) {
    field("title", self.title, "title");
    field("question", self.question, "what was asked");
    field("baseline", self.baseline, "variant that the others are compared with");
    field("matched", self.matched, "what is equal");
    field("tolerance", self.tolerance, "of the match, relative");
    field("text", self.text, "the text");
    field("settings", self.settings, "training settings");
    field("recipe", self.recipe, "recipe, TOML");
    field("command", self.command, "command line");
    field("version", self.version, "version of the program");
    field("date", self.date, "when it was finished");
    field("host", self.host, "where it ran");
    field("variants", self.variants, "the models");
  }
};

// One self-contained page: no request leaves it, so it opens from a disk without a network.
std::string RenderHtml(const ReportData& data);

enum class TextStyle { kPlain, kColored };

// Tables for a terminal of 100 columns; longer names and shapes are cut. Control characters in the
// data are shown as '?'.
std::string RenderText(const ReportData& data, TextStyle style = TextStyle::kPlain);

// All of `data` as its fields, full curves included, and under "summary" what the other two forms
// show: means, spreads, differences with their intervals, verdicts. Values that are not finite are
// null.
Json ReportJson(const ReportData& data);

}  // namespace sandglass
