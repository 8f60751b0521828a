// Exhibits of the museum of releases: real bugs of released packages, each with an ordinary script that shows it.
#pragma once

#include <string>
#include <vector>

#include "harness/input/keys.h"

namespace seeksim::harness::releases {

// What an exhibit's file says (examples/pytorch/museum/NAME.json). Plain values.
struct Exhibit {
  std::string name;    // the file's, without .json
  std::string folder;  // where the file lies
  std::string group, symptom, cause, fix, source;
  std::string package;                 // whose bug it is
  std::string bad, good;               // a release with it, and one without it; the same one where it is open
  std::vector<std::string> pins;       // other packages, "accelerate==1.15.0"
  int ranks = 2;                       // --np
  std::string script;                  // beside the file
  std::vector<std::string> arguments;  // of the script
  std::vector<std::string> against;    // of a second run that ought to train the same weights, where there is no check
  int against_ranks = 0;               // of that run; 0: the same
  std::vector<std::string> way_round;  // an open bug: what the script gets instead of `arguments` to be green
  std::string grade = "reassociated";  // how near the two runs have to be
  bool losses = false;                 // whether losses are compared too
  std::string check;                   // the judge that has to be red, where nothing is compared
  std::string says;                    // what the verdict has to contain
  bool open() const { return bad == good; }
  const std::vector<std::string>& good_arguments() const { return open() ? way_round : arguments; }
};

const Keys<Exhibit>& exhibit_keys();
// Subjects of exhibits, in the order of the table.
const std::vector<std::string>& exhibit_groups();

// What `text` says. Throws BadInput with every problem.
Exhibit read_exhibit(const std::string& text, const std::string& file);
// Exhibits by name, all of them where none is named. Throws BadInput for a name that there is not.
std::vector<Exhibit> exhibits(const std::vector<std::string>& names);

// All pins of an environment with this version of the exhibit's package.
std::vector<std::string> pins_with(const Exhibit& exhibit, const std::string& version);

}  // namespace seeksim::harness::releases
