// The first release with a bug, between one without it and one with it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/releases/trial.h"
#include "harness/report/outcome.h"

namespace seeksim::harness::releases {

struct BisectArguments {
  std::string package, good, bad;
  std::vector<std::string> pins;  // other packages
  std::string exhibit;            // script, judge and releases are those of this one
  std::string scenario;
  std::vector<std::string> command;  // the script
  std::string against;               // arguments of the second run, in one text
  std::string grade = "reassociated";
  int ranks = 0;
  std::string python;
};

// Releases from the good one to the bad one, both included. Throws BadInput where one is not among them, or they stand
// the other way round.
std::vector<std::string> releases_between(const std::vector<std::string>& all, const std::string& package,
                                          const std::string& good, const std::string& bad);

// What is known in the end: the last green release before the first red one, and between them only such that could not
// be judged.
struct Narrowed {
  std::string last_good, first_bad;
  std::vector<std::string> skipped;
};
// Halves the releases between the first (green) and the last (red), and goes to a neighbour where one cannot be judged.
Narrowed narrow(const std::vector<std::string>& releases, const std::function<Verdict(const std::string&)>& judge);

// Exit status 0: one release is named; 1: it is one of several; cannot_be_had: an end cannot be installed. Throws
// BadInput where the good release is not green or the bad one not red.
ExitStatus bisect(const BisectArguments& arguments, const std::string& program, const Print& print);

}  // namespace seeksim::harness::releases
