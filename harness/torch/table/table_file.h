// What a table of equalities compares, and what is expected of each cell: a file, committed before its first run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/torch/compare.h"

namespace seeksim::harness::torch {

// One thing that varies. "np" is the number of ranks; every other one is an argument of the script, --NAME VALUE.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// A value for each axis.
using Cell = std::map<std::string, std::string>;

// What holds for the cells that have one of these values on each of these axes.
struct Rule {
  std::map<std::string, std::vector<std::string>> when;
  Grade grade = Grade::bits;
  std::string why;
  bool covers(const Cell& cell) const;
};

struct Table {
  std::string file;
  std::string script;                  // beside the file
  std::vector<std::string> arguments;  // of every run
  std::vector<std::string> imports;    // modules that are imported once for all runs, besides torch
  std::vector<Axis> axes;              // the first is compared: all its values against its first one
  std::vector<Rule> expect;            // the first that covers a cell counts; none: bits
  std::vector<Rule> cannot;            // cells that cannot be run
  // The cell of a row's reference with these values, {"precision": "fp32"}, measures what rounding moves it; empty: the
  // bound of the grade "rounding" is the one that compare has.
  std::map<std::string, std::string> rounding_by;
  const Axis& compared() const { return axes.front(); }
  // Every cell whose value on the first axis is the first one: what the others in its row are held against.
  std::vector<Cell> rows() const;
  // The rule for a cell; a grade of bits with the reason "" where none covers it.
  Rule expected_of(const Cell& cell) const;
  // Why a cell cannot be run; empty: it can.
  std::string cannot_run(const Cell& cell) const;
};

// Reads a table. Every grade that is not bits and every cell that cannot be run needs a reason, and every rule has to
// cover a cell. Throws BadInput with every problem.
Table load_table(const std::string& file);
Table table_of(const std::string& text, const std::string& file);

// Keeps of an axis only these values: "layout=zero1,zero2". The value that all are held against stays. Throws BadInput.
void keep_only(Table& table, const std::string& given);

// "np 2, accumulation 4", without the compared axis.
std::string row_name(const Table& table, const Cell& cell);
// A name for the folder of a cell's run.
std::string folder_name(const Table& table, const Cell& cell);
// What its ranks run.
std::vector<std::string> command_of(const Table& table, const Cell& cell);
int ranks_of(const Cell& cell);

}  // namespace seeksim::harness::torch
