// The museum: mistakes that real frameworks made, each a scenario in scenarios/museum/ in which it is planted, with the
// check that must catch it. Every exhibit is shown twice, with the mistake and without it: the first run must be red
// as its `expect` says, the second must pass. Besides, the two loss curves are compared: would a user who looks at
// nothing else have seen it?
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// Names of the groups, in the order of the table.
const std::vector<std::string>& museum_groups();

// The same scenario without what is planted: without its bug and quirks, or where it has neither without its faults;
// what else has to change stands in museum.without. It is expected to pass.
Json without_the_mistake(Json exhibit);

// What a person who plots the two curves would see: from the losses of each step, with the mistake and without it.
struct CurveVerdict {
  bool seen = false;
  std::string text;  // "no: 0.02 % at most", "yes: NaN", "it ends after 3 of 6 steps"
};
// Curves closer than this everywhere look alike: that much lies between two seeds.
inline constexpr double kCurvesApart = 0.01;
CurveVerdict compare_curves(const Json& with, const Json& without);

// An exhibit, shown.
struct Shown {
  std::string name, group, bug, source;
  std::vector<std::string> caught;  // by these checks
  CurveVerdict curve;
  std::string problem;  // it is not as it should be; empty: it is
};
// Judges both reports; `exhibit`: the scenario as JSON.
Shown judge_exhibit(const Json& exhibit, ExitStatus with_status, const Json& with, ExitStatus without_status,
                    const Json& without);

struct MuseumArguments {
  std::vector<std::string> names;  // of exhibits; empty: all
  bool markdown = false;           // the table of the README
  int processes = 0;               // at once; 0: one a core
};
// Exit status 1 where an exhibit is not as it should be. Throws BadInput for a name that there is not.
ExitStatus museum_command(const MuseumArguments& arguments, const Style& style);

// Exhibits by name, all of them where none is named; as they stand in their files. Throws BadInput for a name that
// there is not.
struct MuseumExhibit {
  std::string file;
  Json json;
};
std::vector<MuseumExhibit> museum_exhibits(const std::vector<std::string>& names);

// A report's checks that looked at something and are red.
std::vector<std::string> red_checks(const Json& report);

// The table, by groups.
std::string museum_table(std::vector<Shown> exhibits);

}  // namespace seeksim::harness
