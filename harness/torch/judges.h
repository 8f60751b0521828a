// Judges of a script's run: what its ranks recorded, and how its processes ended. Those that need no asking are made
// wherever there is something to look at; a run that recorded nothing is red.
#pragma once

#include <string>
#include <vector>

#include "harness/torch/run_record.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness::torch {

// One row a judge (judges.cpp).
struct Judge {
  const char* name;
  const char* argument;  // what comes after the colon; "": nothing does
  bool unasked;          // made in every run that has something for it
  Finding (*judge)(const TorchRun& run, const std::string& argument);
  const char* description;
};
const std::vector<Judge>& judges();
std::vector<std::string> judge_names();

// What is wrong with a check as written; `what` is empty when it is fine.
CheckProblem problem_of(const CheckSpec& check, int ranks);

// All judges that apply, what was asked for, and the verdict against what was expected.
Judgement judge(const TorchRun& run);

}  // namespace seeksim::harness::torch
