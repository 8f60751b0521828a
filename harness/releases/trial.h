// A question put to one release: a script is run once, or twice in ways that ought to train the same weights, and the
// ordinary judges say what they find. They know nothing of any bug.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/releases/environment.h"
#include "harness/releases/exhibit.h"
#include "harness/torch/compare.h"

namespace seeksim::harness::releases {

struct Question {
  std::string program;               // seeksim itself
  int ranks = 2;                     // 0: as the scenario says
  std::string scenario;              // a file for seeksim torch run; empty: none
  std::vector<std::string> command;  // a script with its arguments
  std::vector<std::string> against;  // the same, for the second run; empty: there is none
  int against_ranks = 0;             // of the second run; 0: as the first
  torch::Grade grade = torch::Grade::reassociated;
  bool losses = false;   // compare them too, beside the weights
  std::string check;     // "finished": that the script fails by itself is a finding,
  std::string says;      // if its error has these words
  double limit_s = 600;  // of each run
};
Question question_of(const Exhibit& exhibit, const std::string& program, const std::vector<std::string>& arguments);
// The grade of this name.
torch::Grade grade_named(const std::string& name);

enum class Verdict : std::uint8_t { green, red, none };  // none: the release could not be judged
std::string_view name(Verdict verdict);

struct Answer {
  Verdict verdict = Verdict::none;
  std::string caught_by;  // judges that are red
  std::string names;      // what they name; where there is no verdict, why
  double seconds = 0;     // of the runs
};

// Runs it with the records in `folder`/a and `folder`/b. Throws BadInput where a process cannot be started.
Answer ask(const Question& question, const ReleaseEnvironment& environment, const std::string& folder);

// What a person who plots the losses of rank 0 would see of the bug: the run on the bad release against the good one.
struct LossCurve {
  bool seen = false;
  std::string text;
};
LossCurve curve_of(const std::string& bad_folder, const std::string& good_folder);

}  // namespace seeksim::harness::releases
