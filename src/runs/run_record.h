// What a run directory says, as tables of flat keys: for the index, for lists and for differences.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace sandglass {

// Key and value in the order of declaration; keys of nested tables are joined by '_', lists are
// JSON text.
using FlatFields = std::vector<std::pair<std::string, Json>>;

// A section of a record: "run" (what it is and how far it came), the sections of the run file
// (model, data, train, optimizer, log, system), "info" (what it ran with) and "result" (the
// outcome, null values while it has not finished). Every record has the same sections and keys.
struct RecordSection {
  std::string name;
  FlatFields fields;
};

struct RunRecord {
  std::string path;
  std::vector<RecordSection> sections;
};

// Never throws for what a directory holds: a run that cannot be read has the status "damaged" and
// says why in `message`.
RunRecord ReadRunRecord(const std::string& run_directory);

// A record without a run: all sections and keys, values null.
RunRecord EmptyRecord();

// Changes when a file changes that the record is made from.
std::string RecordStamp(const std::string& run_directory);

// Run directories at and below `root`, sorted. Checkpoints and directories that may not be read are
// passed over, symbolic links not followed.
std::vector<std::string> FindRuns(const std::string& root);

}  // namespace sandglass
