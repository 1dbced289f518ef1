// sandglass runs: lists, filters and compares what run directories hold.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "app/output.h"
#include "app/verbs.h"
#include "runs/run_diff.h"
#include "runs/run_index.h"

namespace sandglass {
namespace {

struct RunsFlags {
  std::string root = "runs";
  RunQuery query;
  std::string a;
  std::string b;
  bool json = false;
};

std::string Cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

// Columns as wide as their widest cell; numbers to the right.
std::string TextTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<Json>>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < header.size(); ++i) {
    widths.push_back(header[i].size());
    for (const auto& row : rows) widths[i] = std::max(widths[i], Cell(row[i]).size());
  }
  std::string out;
  const auto add = [&](const std::string& text, size_t column, bool right) {
    const bool last = column + 1 == header.size();
    if (right) {
      out += fmt::format("{:>{}}", text, widths[column]);
    } else {
      out += last ? text : fmt::format("{:{}}", text, widths[column]);
    }
    out += last ? "\n" : "  ";
  };
  const auto numeric = [&](size_t column) {
    for (const auto& row : rows) {
      if (!row[column].is_null()) return row[column].is_number();
    }
    return false;
  };
  for (size_t i = 0; i < header.size(); ++i) add(header[i], i, numeric(i));
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) add(Cell(row[i]), i, numeric(i));
  }
  return out;
}

void RunList(const RunsFlags& flags) {
  RunIndex index(flags.root, PrintNote);
  index.Refresh();
  RunQuery query = flags.query;
  if (query.columns.size() == 1 && query.columns[0] == "all") {
    if (!flags.json) {
      std::string names;
      for (const std::string& column : index.Columns()) names += column + "\n";
      return Print(names);
    }
    query.columns = index.Columns();
  }
  const RunTable table = index.List(query);
  if (!flags.json) {
    Print(TextTable(table.columns, table.rows));
    return PrintNote(fmt::format("{} runs", table.rows.size()));
  }
  Json list = Json::array();
  for (const std::vector<Json>& row : table.rows) {
    Json object = Json::object();
    for (size_t i = 0; i < row.size(); ++i) object[table.columns[i]] = row[i];
    list.push_back(std::move(object));
  }
  PrintJson(list);
}

std::string DiffTable(const char* title, const std::vector<RunDifference>& differences) {
  if (differences.empty()) return fmt::format("{}: no difference\n", title);
  std::vector<std::vector<Json>> rows;
  for (const RunDifference& d : differences) {
    std::string change;
    if (d.a.is_number() && d.b.is_number()) {
      change = fmt::format("{:+.6g}", d.b.get<double>() - d.a.get<double>());
    }
    rows.push_back({d.key, Cell(d.a), Cell(d.b), change});
  }
  return TextTable({title, "A", "B", "B - A"}, rows);
}

void RunDiffVerb(const RunsFlags& flags) {
  const RunDiff diff = DiffRuns(flags.a, flags.b);
  if (!flags.json) {
    return Print(fmt::format("A = {}\nB = {}\n\n{}\n{}", flags.a, flags.b,
                             DiffTable("configuration", diff.configuration),
                             DiffTable("outcome", diff.outcome)));
  }
  const auto list = [](const std::vector<RunDifference>& differences) {
    Json object = Json::object();
    for (const RunDifference& d : differences) object[d.key] = {d.a, d.b};
    return object;
  };
  PrintJson({{"a", flags.a},
             {"b", flags.b},
             {"configuration", list(diff.configuration)},
             {"outcome", list(diff.outcome)}});
}

void RunRebuild(const RunsFlags& flags) {
  RunIndex index(flags.root, PrintNote);
  const IndexChanges changes = index.Rebuild();
  if (flags.json) return PrintJson({{"runs", changes.runs}, {"index", RunIndexPath(flags.root)}});
  Print(fmt::format("{} runs in {}\n", changes.runs, RunIndexPath(flags.root)));
}

}  // namespace

void AddRunsVerb(CLI::App& program) {
  auto flags = std::make_shared<RunsFlags>();
  CLI::App* runs = program.add_subcommand("runs", "List, filter and compare trained runs");
  runs->require_subcommand(1);

  CLI::App* list = runs->add_subcommand("list", "What the runs of a directory are and reached");
  list->add_option("--root", flags->root, "Directory that holds the runs [runs]");
  list->add_option("--where", flags->query.where,
                   "Only runs for which this holds, SQL over columns")
      ->type_name("EXPRESSION");
  list->add_option("--sort", flags->query.sort, "Order by this, as val_loss or \"started desc\"")
      ->type_name("EXPRESSION");
  list->add_option("--columns", flags->query.columns,
                   "Columns to show, between commas; all: the names of every one")
      ->delimiter(',')
      ->allow_extra_args(false);
  list->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*list, R"(
Examples:
  sandglass runs list
  sandglass runs list --where 'val_loss < 3.2' --sort val_loss
  sandglass runs list --where "model.shape like 'L4%' and train.seed = 1" --columns name,val_loss,train.batch
  sandglass runs list --columns all
      every column: what the run files, run.json and result.json say
)");
  list->callback([flags] { RunList(*flags); });

  CLI::App* diff = runs->add_subcommand("diff", "What two runs were asked for and reached");
  diff->add_option("A", flags->a, "Run directory")->required();
  diff->add_option("B", flags->b, "Run directory")->required();
  diff->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*diff, R"(
Example:
  sandglass runs diff runs/kjv-llama runs/k4
)");
  diff->callback([flags] { RunDiffVerb(*flags); });

  CLI::App* rebuild = runs->add_subcommand(
      "rebuild", "Read every run again; the index is a cache and can be deleted at any time");
  rebuild->add_option("--root", flags->root, "Directory that holds the runs [runs]");
  rebuild->add_flag("--json", flags->json, "Print JSON");
  AddExamples(*rebuild, R"(
Example:
  sandglass runs rebuild --root runs
)");
  rebuild->callback([flags] { RunRebuild(*flags); });
}

}  // namespace sandglass
