// Shared by tests of the harness: a small scenario, a temporary folder, the program called in-process, and records of
// runs made by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness::testing {

// A scenario that loads and runs in milliseconds: 4 ranks, synthetic tokens. One key a line, so tests can name lines.
//   line 1 {   2 name   3 model   4 data   5 world   6 deepspeed   7 steps   8 faults   9 recovery   10 checks  11 }
std::string small_text();
// The small scenario with one line replaced ("" removes it).
std::string small_text_with(int line, const std::string& text);
Scenario small_scenario();

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + '/' + name; }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

std::string read_all(const std::string& path);

// The output and the exit status of a call of the program.
struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};
Ran seeksim(const std::vector<std::string>& arguments);

// The problems of a scenario text, one a line; empty when it loads.
std::string problems_of(const std::string& text, const std::vector<std::string>& sets = {},
                        const std::string& file = "s.json");

// Training on a set of 20 samples in order, 8 a step; and four steps that used them so.
void make_a_set(Scenario& scenario);
void use_in_order(RunRecord& run);

// Makes a record one of a worker whose gradients came late: which of them each of its steps was made of, by clock.
std::function<void(RunRecord&)> applied_late(const std::vector<std::vector<std::int64_t>>& by_clock);

// The record of a good run of `ranks` ranks: 4 steps, falling losses, equal states.
RunRecord good_run(int ranks = 4);
Recovery recovery_naming(std::vector<int> culprits, std::vector<std::pair<int, int>> links = {});

}  // namespace seeksim::harness::testing
