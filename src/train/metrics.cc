#include "train/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace sandglass {
namespace {

constexpr const char* kStepKind = "step";
constexpr const char* kValidationKind = "validation";

std::string PathOf(const std::string& run_directory) { return run_directory + "/metrics.jsonl"; }

template <class T>
T Parse(Json line, const std::string& where) {
  line.erase("kind");
  // JSON has no NaN: what was not finite was written as null.
  for (auto& value : line) {
    if (value.is_null()) value = std::nan("");
  }
  T metrics;
  ReadFields(metrics, {.values = std::move(line), .source = where});
  return metrics;
}

// Lines up to and including `last_step`; all for a negative one.
std::string LinesUpTo(const std::string& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return "";
  std::istringstream lines(ReadFile(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object() && parsed.value("step", int64_t{0}) <= last_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

RunMetrics ReadMetrics(const std::string& run_directory) {
  const std::string path = PathOf(run_directory);
  std::istringstream lines(ReadFile(path));
  RunMetrics metrics;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) {
      if (lines.eof()) break;
      throw Error({.what = "not a JSON object", .where = where});
    }
    if (parsed.value("kind", "") == kValidationKind) {
      metrics.validations.push_back(Parse<ValidationMetrics>(std::move(parsed), where));
    } else {
      metrics.steps.push_back(Parse<StepMetrics>(std::move(parsed), where));
    }
  }
  return metrics;
}

MetricsLog::MetricsLog(const std::string& run_directory, int64_t step)
    : path_(PathOf(run_directory)), events_(run_directory) {
  WriteFileAtomically(path_, step > 0 ? LinesUpTo(path_, step) : "");
  file_.open(path_, std::ios::app);
}

void MetricsLog::Add(const StepMetrics& metrics) {
  Write(kStepKind, WriteFields(metrics));
  events_.Scalar(metrics.step, "train/loss", metrics.loss);
  events_.Scalar(metrics.step, "train/z_loss", metrics.z_loss);
  events_.Scalar(metrics.step, "train/learning_rate", metrics.learning_rate);
  events_.Scalar(metrics.step, "train/gradient_norm", metrics.gradient_norm);
  events_.Scalar(metrics.step, "train/step_seconds", metrics.step_seconds);
}

void MetricsLog::Add(const ValidationMetrics& metrics) {
  Write(kValidationKind, WriteFields(metrics));
  events_.Scalar(metrics.step, "validation/loss", metrics.loss);
  events_.Scalar(metrics.step, "validation/perplexity", metrics.perplexity);
  events_.Scalar(metrics.step, "validation/bits_per_byte", metrics.bits_per_byte);
  Flush();
}

void MetricsLog::Flush() {
  if (!file_.flush()) {
    throw Error({.what = "cannot write the metrics",
                 .where = path_,
                 .remedy = "free some space; the same command continues from the last checkpoint"});
  }
  events_.Flush();
}

void MetricsLog::Write(const char* kind, Json values) {
  Json line = {{"kind", kind}};
  line.update(values);
  file_ << line.dump() << '\n';
}

}  // namespace sandglass
