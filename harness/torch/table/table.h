// A table of equalities: the same training in several layouts, each cell run, judged and held against the first layout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/torch/table/table_file.h"

namespace seeksim::harness::torch {

inline constexpr const char* kTableSchema = "seeksim-torch-table-1";

struct TableRequest {
  std::string file;
  std::vector<std::string> only;  // --only: "np=2,4"
  std::string python;             // --python
  std::string program;            // this program's own file: each run is one of its own commands
  std::string out;                // --out: the runs, each in a folder; what is there already is not run again
  Style style;
};

// What became of one cell.
struct CellResult {
  enum class State {
    as_expected,  // of the grade that was expected
    nearer,       // the grade allows more than there is
    red,          // farther away, or a run of it failed or recorded nothing
    left_out,     // it cannot be run
  };
  Cell cell;
  State state = State::red;
  Grade expected = Grade::bits;
  std::string why;      // the expectation's reason, or why it cannot be run
  std::string problem;  // of a run: why there is nothing to compare; empty: there is
  std::optional<RunComparison> found;
};

// The state of a cell from what was expected and found.
CellResult::State state_of(const CellResult& result);

// Runs all cells that have not been run, compares, tells each cell as it is known, and writes table.txt and table.json
// to the folder after each row. Status 1 where a cell is red. Interrupted, the same command goes on. Throws BadInput.
Outcome run_table(const TableRequest& request, const Print& print);

// A line of a cell as it becomes known.
std::string cell_text(const Table& table, const CellResult& result, const Style& style);
// The table in Markdown: a row for each setting, a column for each layout, the reasons below.
std::string table_text(const Table& table, const std::vector<CellResult>& results);
Json table_json(const Table& table, const std::vector<CellResult>& results, const std::string& torch);

}  // namespace seeksim::harness::torch
