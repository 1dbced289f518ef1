#include "runs/run_record.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "train/metrics.h"
#include "train/run_directory.h"

namespace sandglass {
namespace {

namespace fs = std::filesystem;

void Flatten(const Json& object, const std::string& prefix, FlatFields& out) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      Flatten(value, prefix + key + "_", out);
    } else {
      out.emplace_back(prefix + key, value.is_array() ? Json(value.dump()) : value);
    }
  }
}

FlatFields Flattened(const Json& object) {
  FlatFields out;
  Flatten(object, "", out);
  return out;
}

void Set(FlatFields& fields, const std::string& key, Json value) {
  const auto field = std::ranges::find(fields, key, &FlatFields::value_type::first);
  SANDGLASS_CHECK(field != fields.end(), "no such key in the record");
  if (value.is_number_float() && !std::isfinite(value.get<double>())) value = nullptr;
  field->second = std::move(value);
}

FlatFields& SectionOf(RunRecord& record, const std::string& name) {
  const auto section = std::ranges::find(record.sections, name, &RecordSection::name);
  SANDGLASS_CHECK(section != record.sections.end(), "no such section in the record");
  return section->fields;
}

// Values of `object` for the keys that the section knows.
void SetAll(FlatFields& fields, const Json& object) {
  for (auto& [key, value] : Flattened(object)) Set(fields, key, value);
}

void ReadConfiguration(RunRecord& record, FlatFields& run) {
  const RunConfig config = ReadRunConfig(record.path);
  Set(run, "name", config.name);
  const Json sections = WriteFields(config);
  for (const auto& [name, section] : sections.items()) {
    if (section.is_object()) SetAll(SectionOf(record, name), section);
  }
  Set(run, "steps", config.Steps());
  const Model dry_run(config.model.config, {});
  Set(run, "parameters", dry_run.params().elements());
  Set(run, "matrices",
      dry_run.params().elements(ParamRole::kAttention) +
          dry_run.params().elements(ParamRole::kFfn));
}

void ReadOutcome(RunRecord& record, FlatFields& run) {
  SetAll(SectionOf(record, "info"), WriteFields(ReadRunInfo(record.path)));
  const std::optional<RunResult> result = FindResult(record.path);
  if (fs::exists(MetricsPath(record.path))) {
    const RunMetrics metrics = ReadMetrics(record.path);
    if (!metrics.steps.empty()) {
      Set(run, "step", metrics.steps.back().step);
      Set(run, "train_loss", metrics.steps.back().loss);
    }
    if (!metrics.validations.empty()) {
      const Json last = WriteFields(metrics.validations.back());
      Set(run, "val_loss", last.at("loss"));
      Set(run, "bpb", last.at("bits_per_byte"));
    }
  }
  if (!result) return Set(run, "status", "unfinished");
  const Json values = WriteFields(*result);
  SetAll(SectionOf(record, "result"), values);
  Set(run, "status", "finished");
  Set(run, "step", values.at("steps"));
  Set(run, "val_loss", values.at("validation_loss"));
  Set(run, "bpb", values.at("bits_per_byte"));
}

}  // namespace

RunRecord EmptyRecord() {
  RunRecord record;
  record.sections.push_back({"run",
                             {{"name", nullptr},
                              {"status", nullptr},
                              {"step", nullptr},
                              {"steps", nullptr},
                              {"val_loss", nullptr},
                              {"bpb", nullptr},
                              {"train_loss", nullptr},
                              {"parameters", nullptr},
                              {"matrices", nullptr},
                              {"message", nullptr}}});
  const auto add = [&](const std::string& name, const Json& values) {
    FlatFields fields = Flattened(values);
    for (auto& [key, value] : fields) value = nullptr;
    record.sections.push_back({name, std::move(fields)});
  };
  const Json config = WriteFields(RunConfig{});
  for (const auto& [name, section] : config.items()) {
    if (section.is_object()) add(name, section);
  }
  add("info", WriteFields(RunInfo{}));
  add("result", WriteFields(RunResult{}));
  return record;
}

RunRecord ReadRunRecord(const std::string& run_directory) {
  RunRecord record = EmptyRecord();
  record.path = run_directory;
  FlatFields& run = record.sections.front().fields;
  Set(run, "name", fs::path(run_directory).filename().string());
  try {
    ReadConfiguration(record, run);
    ReadOutcome(record, run);
  } catch (const Error& failure) {
    Set(run, "status", "damaged");
    Set(run, "message", fmt::format("{} ({})", failure.parts().what, failure.parts().where));
  } catch (const fs::filesystem_error& failure) {
    Set(run, "status", "damaged");
    Set(run, "message", std::string(failure.what()));
  }
  return record;
}

std::string RecordStamp(const std::string& run_directory) {
  std::string stamp;
  for (const std::string& path : {ConfigPath(run_directory), InfoPath(run_directory),
                                  ResultPath(run_directory), MetricsPath(run_directory)}) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
      stamp += "-;";
    } else {
      stamp += fmt::format("{}.{}.{}.{};", status.st_size, status.st_mtim.tv_sec,
                           status.st_mtim.tv_nsec, status.st_ino);
    }
  }
  return stamp;
}

std::vector<std::string> FindRuns(const std::string& root) {
  std::vector<std::string> runs;
  if (IsRunDirectory(root)) return {root};
  std::error_code ignored;
  fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied,
                                         ignored);
  for (; !ignored && entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
    if (!entry->is_directory(ignored) || entry->is_symlink(ignored)) continue;
    if (IsRunDirectory(entry->path().string())) {
      runs.push_back(entry->path().string());
      entry.disable_recursion_pending();
    }
  }
  std::ranges::sort(runs);
  return runs;
}

}  // namespace sandglass
