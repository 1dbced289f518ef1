// The runs below a directory in one SQLite file, for listing and filtering. The file is a cache:
// everything in it is read from the run directories again if it is missing, damaged or of another
// version.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/progress.h"

struct sqlite3;

namespace sandglass {

// What to list. Expressions are SQL over the columns; a column of a section that shares its name
// with one of another section is written section.column, as train.batch.
struct RunQuery {
  std::string where;                 // "val_loss < 3.2 and shape like 'L4%'"; "": all
  std::string sort;                  // "val_loss", "started desc"; "": by directory
  std::vector<std::string> columns;  // empty: a selection that fits a terminal
};

struct RunTable {
  std::vector<std::string> columns;
  std::vector<std::vector<Json>> rows;
};

struct IndexChanges {
  int64_t runs = 0;     // in the index now
  int64_t read = 0;     // new or changed
  int64_t removed = 0;  // whose directories are gone
};

std::string RunIndexPath(const std::string& root);

class RunIndex {
 public:
  // Opens the index of the runs below `root`, or begins one; where no file can be written, it is
  // kept in memory. A damaged file is told to `report` and replaced. Throws Error if there is no
  // such directory.
  RunIndex(const std::string& root, const std::function<void(std::string_view)>& report);
  ~RunIndex();
  RunIndex(const RunIndex&) = delete;
  RunIndex& operator=(const RunIndex&) = delete;

  // Reads runs that are new or have changed and forgets those that are gone.
  IndexChanges Refresh(ProgressMode mode = ProgressMode::kAutomatic);
  // Forgets everything and reads it again.
  IndexChanges Rebuild(ProgressMode mode = ProgressMode::kAutomatic);

  // Throws Error for an expression that SQLite does not understand, with the column that was meant.
  RunTable List(const RunQuery& query) const;
  // Every column, as section.column.
  std::vector<std::string> Columns() const;

 private:
  void Open(const std::string& path);
  void Create();
  void Execute(const std::string& sql) const;
  [[noreturn]] void Fail(const std::string& doing) const;

  std::string root_;
  std::string path_;
  sqlite3* database_ = nullptr;
};

}  // namespace sandglass
