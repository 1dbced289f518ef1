#include "runs/run_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "runs/run_record.h"

namespace sandglass {
namespace {

constexpr int kBusyMilliseconds = 5000;

const std::vector<std::string>& UsualColumns() {
  static const std::vector<std::string> kColumns = {"run.name", "status",  "model.shape",
                                                    "matrices", "step",    "val_loss",
                                                    "bpb",      "started", "directory"};
  return kColumns;
}

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

// Tables and columns of a record, one table for each section; joined by the
// directory.
std::string SchemaSql() {
  std::string sql = "CREATE TABLE stamp (directory TEXT PRIMARY KEY, value TEXT NOT NULL);";
  for (const RecordSection& section : EmptyRecord().sections) {
    sql += fmt::format("CREATE TABLE {} (directory TEXT PRIMARY KEY", Quoted(section.name));
    for (const auto& [key, value] : section.fields) sql += ", " + Quoted(key);
    sql += ");";
  }
  return sql;
}

// Tells indices of other versions apart; fits SQLite's user_version, and is never its default.
int SchemaVersion() { return static_cast<int>(HashBytes(SchemaSql()) & 0x3FFFFFFF) | 1; }

std::string FromSql() {
  std::string sql;
  for (const RecordSection& section : EmptyRecord().sections) {
    sql += (sql.empty() ? "" : " LEFT JOIN ") + Quoted(section.name) +
           (sql.empty() ? "" : " USING (directory)");
  }
  return sql;
}

class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql) {
    status_ = sqlite3_prepare_v2(database, sql.c_str(), -1, &statement_, &tail_);
    rest_ = status_ == SQLITE_OK ? tail_ : "";
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Whether the text was one statement and nothing else.
  bool prepared() const {
    return status_ == SQLITE_OK && statement_ != nullptr &&
           rest_.find_first_not_of(" \t\n") == std::string::npos;
  }
  sqlite3_stmt* get() const { return statement_; }
  bool Step() { return (status_ = sqlite3_step(statement_)) == SQLITE_ROW; }
  bool done() const { return status_ == SQLITE_DONE; }
  void Reset() { sqlite3_reset(statement_); }

  void Bind(int index, const Json& value) {
    if (value.is_null()) {
      sqlite3_bind_null(statement_, index);
    } else if (value.is_boolean()) {
      sqlite3_bind_int64(statement_, index, value.get<bool>());
    } else if (value.is_number_integer()) {
      sqlite3_bind_int64(statement_, index, value.get<int64_t>());
    } else if (value.is_number()) {
      sqlite3_bind_double(statement_, index, value.get<double>());
    } else {
      const std::string text = value.get<std::string>();
      sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()),
                        SQLITE_TRANSIENT);
    }
  }

  Json Column(int index) const {
    switch (sqlite3_column_type(statement_, index)) {
      case SQLITE_INTEGER:
        return sqlite3_column_int64(statement_, index);
      case SQLITE_FLOAT:
        return sqlite3_column_double(statement_, index);
      case SQLITE_TEXT:
        return std::string(reinterpret_cast<const char*>(sqlite3_column_text(statement_, index)),
                           static_cast<size_t>(sqlite3_column_bytes(statement_, index)));
      default:
        return nullptr;
    }
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  const char* tail_ = nullptr;
  std::string rest_;
  int status_ = SQLITE_OK;
};

// Expressions of a user may read and compute, nothing else.
int AllowReading(void*, int action, const char*, const char*, const char*, const char*) {
  const bool reads = action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION;
  return reads ? SQLITE_OK : SQLITE_DENY;
}

class ReadingOnly {
 public:
  explicit ReadingOnly(sqlite3* database) : database_(database) {
    sqlite3_set_authorizer(database_, AllowReading, nullptr);
  }
  ~ReadingOnly() { sqlite3_set_authorizer(database_, nullptr, nullptr); }
  ReadingOnly(const ReadingOnly&) = delete;
  ReadingOnly& operator=(const ReadingOnly&) = delete;

 private:
  sqlite3* database_;
};

}  // namespace

std::string RunIndexPath(const std::string& root) { return root + "/.sandglass-runs.sqlite"; }

RunIndex::RunIndex(const std::string& root, const std::function<void(std::string_view)>& report)
    : root_(root), path_(RunIndexPath(root)) {
  if (!std::filesystem::is_directory(root)) {
    throw Error({.what = "there is no such directory of runs",
                 .where = root,
                 .expected = "a directory with run directories in it",
                 .remedy = "name it: --root DIR"});
  }
  try {
    Open(path_);
  } catch (const Error& failure) {
    std::error_code ignored;
    if (std::filesystem::remove(path_, ignored)) {
      report(fmt::format("the index of the runs was not usable and is made again: {}",
                         failure.parts().what));
    }
    try {
      Open(path_);
    } catch (const Error&) {
      path_ = ":memory:";
      Open(path_);
    }
  }
}

RunIndex::~RunIndex() { sqlite3_close(database_); }

void RunIndex::Open(const std::string& path) {
  sqlite3_close(database_);
  database_ = nullptr;
  if (sqlite3_open(path.c_str(), &database_) != SQLITE_OK) Fail("open the index");
  sqlite3_busy_timeout(database_, kBusyMilliseconds);
  Statement version(database_, "PRAGMA user_version");
  if (!version.prepared() || !version.Step()) Fail("read the index");
  if (version.Column(0) == SchemaVersion()) return;
  version.Reset();
  Create();
}

void RunIndex::Create() {
  Execute("BEGIN IMMEDIATE");
  std::vector<std::string> tables;
  {
    Statement list(
        database_,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
    while (list.Step()) tables.push_back(list.Column(0).get<std::string>());
  }
  for (const std::string& table : tables) Execute("DROP TABLE " + Quoted(table));
  Execute(SchemaSql());
  Execute(fmt::format("PRAGMA user_version = {}", SchemaVersion()));
  Execute("COMMIT");
}

IndexChanges RunIndex::Rebuild(ProgressMode mode) {
  Create();
  return Refresh(mode);
}

IndexChanges RunIndex::Refresh(ProgressMode mode) {
  const std::vector<std::string> runs = FindRuns(root_);
  IndexChanges changes{.runs = static_cast<int64_t>(runs.size())};
  std::map<std::string, std::string> known;
  {
    Statement stamps(database_, "SELECT directory, value FROM stamp");
    while (stamps.Step()) {
      known[stamps.Column(0).get<std::string>()] = stamps.Column(1).get<std::string>();
    }
    if (!stamps.done()) Fail("read the index");
  }
  std::vector<std::pair<std::string, std::string>> changed;  // path, stamp
  for (const std::string& run : runs) {
    std::string stamp = RecordStamp(run);
    const auto before = known.find(run);
    if (before == known.end() || before->second != stamp) changed.emplace_back(run, stamp);
    if (before != known.end()) known.erase(before);
  }
  changes.read = static_cast<int64_t>(changed.size());
  changes.removed = static_cast<int64_t>(known.size());
  if (changed.empty() && known.empty()) return changes;

  Progress progress("reading runs", changed.size(), "runs", mode);
  Execute("BEGIN IMMEDIATE");
  const auto write = [&](const std::string& table, const std::vector<Json>& values) {
    std::string marks(values.size() * 2 - 1, '?');
    for (size_t i = 1; i < marks.size(); i += 2) marks[i] = ',';
    Statement insert(database_,
                     fmt::format("INSERT OR REPLACE INTO {} VALUES ({})", Quoted(table), marks));
    if (!insert.prepared()) Fail("write the index");
    for (size_t i = 0; i < values.size(); ++i) insert.Bind(static_cast<int>(i) + 1, values[i]);
    insert.Step();
    if (!insert.done()) Fail("write the index");
  };
  for (const auto& [path, stamp] : known) {
    for (const RecordSection& section : EmptyRecord().sections) {
      Statement forget(database_, "DELETE FROM " + Quoted(section.name) + " WHERE directory = ?");
      forget.Bind(1, path);
      forget.Step();
    }
    Statement forget(database_, "DELETE FROM stamp WHERE directory = ?");
    forget.Bind(1, path);
    forget.Step();
  }
  uint64_t done = 0;
  for (const auto& [path, stamp] : changed) {
    if (InterruptRequested()) {
      Execute("ROLLBACK");
      throw Interrupted{"nothing was written; start it again"};
    }
    const RunRecord record = ReadRunRecord(path);
    for (const RecordSection& section : record.sections) {
      std::vector<Json> values = {path};
      for (const auto& [key, value] : section.fields) values.push_back(value);
      write(section.name, values);
    }
    write("stamp", {path, stamp});
    progress.Update(++done);
  }
  Execute("COMMIT");
  progress.Finish();
  return changes;
}

std::vector<std::string> RunIndex::Columns() const {
  std::vector<std::string> columns = {"directory"};
  for (const RecordSection& section : EmptyRecord().sections) {
    for (const auto& [key, value] : section.fields) columns.push_back(section.name + "." + key);
  }
  return columns;
}

RunTable RunIndex::List(const RunQuery& query) const {
  const std::vector<std::string>& columns = query.columns.empty() ? UsualColumns() : query.columns;
  std::string sql = fmt::format("SELECT {} FROM {}", fmt::join(columns, ", "), FromSql());
  if (!query.where.empty()) sql += fmt::format(" WHERE ({})", query.where);
  sql +=
      fmt::format(" ORDER BY {}directory", query.sort.empty() ? "" : query.sort + " NULLS LAST, ");
  const ReadingOnly guard(database_);
  Statement select(database_, sql);
  if (!select.prepared()) {
    const std::string message = sqlite3_errmsg(database_);
    constexpr std::string_view kUnknown = "no such column: ";
    std::string remedy;
    if (message.starts_with(kUnknown)) {
      std::vector<std::string> names = Columns();
      for (const std::string& column : Columns()) {
        names.push_back(column.substr(column.find('.') + 1));
      }
      remedy = DidYouMean(message.substr(kUnknown.size()), names);
    }
    throw Error(
        {.what = "cannot read the expression: " +
                 (message == "not an error" ? "more than one statement" : message),
         .where = query.where.empty() ? query.sort : query.where,
         .expected = "SQL over the columns, as val_loss < 3.2 and train.batch = 8",
         .remedy = remedy.empty() ? "sandglass runs list --columns all lists them" : remedy});
  }
  RunTable table;
  for (const std::string& column : columns) {
    // "run.name" is shown as "name"
    const size_t dot = column.find('.');
    const bool plain = query.columns.empty() && dot != std::string::npos;
    table.columns.push_back(plain ? column.substr(dot + 1) : column);
  }
  while (select.Step()) {
    std::vector<Json> row;
    for (size_t i = 0; i < columns.size(); ++i) row.push_back(select.Column(static_cast<int>(i)));
    table.rows.push_back(std::move(row));
  }
  if (!select.done()) Fail("read the index");
  return table;
}

void RunIndex::Execute(const std::string& sql) const {
  if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    Fail("write the index");
  }
}

void RunIndex::Fail(const std::string& doing) const {
  throw Error({.what = fmt::format("cannot {}: {}", doing, sqlite3_errmsg(database_)),
               .where = path_,
               .remedy = "delete the file: it holds nothing that the run directories do not"});
}

}  // namespace sandglass
