#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "train/schedule.h"

namespace sandglass {
namespace {

constexpr const char* kStepKind = "step";
constexpr const char* kValidationKind = "validation";

// Readers that follow a run see its steps no later than this.
constexpr std::chrono::seconds kFlushInterval(5);

// Drops the events of steps that a resumed run does again before the writer opens a new file.
EventWriter ContinueEvents(const std::string& directory, int64_t step) {
  CutEventFiles(directory, step);
  return EventWriter(directory, step);
}

// JSON has no NaN: what was not finite was written as null.
void RestoreNaN(Json& values) {
  for (Json& value : values) {
    if (value.is_null()) value = std::nan("");
    if (value.is_object()) RestoreNaN(value);
  }
}

template <class T>
T Parse(Json line, const std::string& where) {
  line.erase("kind");
  RestoreNaN(line);
  T metrics;
  ReadAllFields(metrics, {.values = std::move(line), .source = where});
  return metrics;
}

// Lines up to and including `last_step`.
std::string LinesUpTo(const std::string& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return "";
  std::istringstream lines(ReadFile(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto step = parsed.is_object() ? parsed.find("step") : parsed.end();
    const bool sound = step != parsed.end() && step->is_number_integer();
    if (sound && step->get<int64_t>() <= last_step) kept += line + "\n";
  }
  return kept;
}

bool IsKind(const Json& line, const char* kind) {
  const auto found = line.find("kind");
  return found != line.end() && *found == kind;
}

}  // namespace

std::string MetricsPath(const std::string& run_directory) {
  return run_directory + "/metrics.jsonl";
}

RunMetrics ReadMetrics(const std::string& run_directory) {
  const std::string path = MetricsPath(run_directory);
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
    if (IsKind(parsed, kValidationKind)) {
      metrics.validations.push_back(Parse<ValidationMetrics>(std::move(parsed), where));
    } else {
      metrics.steps.push_back(Parse<StepMetrics>(std::move(parsed), where));
    }
  }
  return metrics;
}

StepPosition PositionOf(int64_t step, const TrainOptions& options, const RunMetrics& metrics) {
  StepPosition position;
  for (const StepMetrics& recorded : metrics.steps) {
    if (recorded.step > step) break;
    if (recorded.sequences) {
      position.passed_over = *recorded.sequences - SequencesBefore(options, recorded.step + 1);
    }
  }
  position.first = SequencesBefore(options, step) + position.passed_over;
  return position;
}

MetricsLog::MetricsLog(const std::string& run_directory, int64_t step)
    : path_(MetricsPath(run_directory)), events_(ContinueEvents(run_directory, step)) {
  WriteFileAtomically(path_, step > 0 ? LinesUpTo(path_, step) : "");
  file_.open(path_, std::ios::app);
  const RunMetrics before = ReadMetrics(run_directory);
  if (!before.validations.empty()) last_validation_ = before.validations.back().step;
}

void MetricsLog::Add(const StepMetrics& metrics) {
  Write(kStepKind, WriteFields(metrics));
  events_.Scalar(metrics.step, "train/loss", metrics.loss);
  events_.Scalar(metrics.step, "train/z_loss", metrics.z_loss);
  events_.Scalar(metrics.step, "train/learning_rate", metrics.learning_rate);
  events_.Scalar(metrics.step, "train/gradient_norm", metrics.gradient_norm);
  if (metrics.gradient_norms) {
    PerRole::VisitFields(*metrics.gradient_norms, [&](const char* role, double norm, const char*) {
      events_.Scalar(metrics.step, std::string("gradient_norm/") + role, norm);
    });
  }
  events_.Scalar(metrics.step, "train/step_seconds", metrics.step_seconds);
  if (Clock::now() - last_flush_ >= kFlushInterval) Flush();
}

void MetricsLog::AddHistograms(int64_t step, const ParamTable& params) {
  for (const ParamSpec& spec : params.specs()) {
    events_.Histogram(step, "weights/" + spec.name, MakeHistogram(spec.param->value));
    events_.Histogram(step, "gradients/" + spec.name, MakeHistogram(spec.param->grad));
  }
}

void MetricsLog::Add(const ValidationMetrics& metrics) {
  if (metrics.step == last_validation_) return;
  last_validation_ = metrics.step;
  Write(kValidationKind, WriteFields(metrics));
  events_.Scalar(metrics.step, "validation/loss", metrics.loss);
  events_.Scalar(metrics.step, "validation/perplexity", metrics.perplexity);
  events_.Scalar(metrics.step, "validation/bits_per_byte", metrics.bits_per_byte);
  if (metrics.average_loss) {
    events_.Scalar(metrics.step, "validation/average_loss", *metrics.average_loss);
    events_.Scalar(metrics.step, "validation/average_bits_per_byte",
                   *metrics.average_bits_per_byte);
  }
  Flush();
}

void MetricsLog::Flush() {
  if (!file_.flush()) {
    throw Error({.what = "cannot write the metrics",
                 .where = path_,
                 .remedy = "free some space; the same command continues from the last checkpoint"});
  }
  events_.Flush();
  last_flush_ = Clock::now();
}

void MetricsLog::Sync() {
  Flush();
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fdatasync(descriptor) == 0;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) throw Error({.what = "cannot write the metrics to the disk", .where = path_});
}

void MetricsLog::Write(const char* kind, Json values) {
  Json line = {{"kind", kind}};
  for (const auto& [key, value] : values.items()) {
    if (!value.is_null()) line[key] = value;
  }
  file_ << line.dump() << '\n';
}

}  // namespace sandglass
