// The same table of equalities on several releases of a package: which layouts have the bits of which others, by
// release.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/report/outcome.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness::releases {

// Releases of one package, and what of the table they are asked for.
struct AskedPackage {
  std::string package;
  std::vector<std::string> versions;  // the oldest first
  int last = 0;                       // in place of versions: the newest so many on PyPI
  std::vector<std::string> pins;      // other packages, "torch==2.15.0"
  std::vector<std::string> only;      // "layout=zero1,zero2"
};

// What is asked of which releases: a file, committed before its first run.
struct ByRelease {
  std::string table;              // of layouts (docs/layouts.md)
  std::vector<std::string> only;  // of every package
  std::vector<AskedPackage> packages;
};
// Throws BadInput with every problem.
ByRelease read_by_release(const std::string& text, const std::string& file);

// A release and its table.json; null: it could not be had or run, and `problem` says why.
struct ReleaseColumn {
  std::string version;
  Json table;
  std::string problem;
};
// In Markdown: a row for each cell, a column for each release or for several next to each other that are alike; then
// the reasons, and what differs first in red cells.
std::string by_release_text(const std::string& package, const std::vector<ReleaseColumn>& columns);

struct ByReleaseArguments {
  std::string file, python;
  std::string out;  // a folder for each release with its runs, and releases.txt; what was run is not run again
};
// Exit status 1 where a cell of a release is red, cannot_be_had where a release could not be had. Throws BadInput.
ExitStatus tables_by_release(const ByReleaseArguments& arguments, const std::string& program, const Print& print);

}  // namespace seeksim::harness::releases
