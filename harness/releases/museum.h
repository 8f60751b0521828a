// The museum of releases: each exhibit on the release with the bug and on the one without it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/releases/exhibit.h"
#include "harness/releases/trial.h"
#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness::releases {

struct ReleaseMuseumArguments {
  std::vector<std::string> names;     // of exhibits; empty: all
  std::vector<std::string> packages;  // only exhibits of these; empty: of all
  bool installed = false;             // on what is installed, in place of releases
  bool list = false;                  // what there is, without running it
  bool markdown = false;              // the table of docs/real-museum.md
  std::string out;                    // folder for the records; empty: a temporary one
  std::string python;
};

// An exhibit, shown.
struct ShownRelease {
  Exhibit exhibit;
  Answer bad, good;
  LossCurve curve;
  std::string problem;       // it is not as it should be; empty: it is
  bool unavailable = false;  // its packages could not be had
};

// Asks a release of an exhibit, with these arguments of its script and the records in this folder. Throws CannotBeHad.
using AskRelease = std::function<Answer(const Exhibit& exhibit, const std::string& version,
                                        const std::vector<std::string>& arguments, const std::string& folder)>;
// Shows one; records go to `folder`/bad and `folder`/good.
ShownRelease show(const Exhibit& exhibit, const AskRelease& ask_release, const std::string& folder);

// What there is, one exhibit after the other; and the table of those that were shown.
std::string exhibit_list(const std::vector<Exhibit>& exhibits, const Style& style);
std::string release_table(std::vector<ShownRelease> shown);

// Those whose bug is one of these packages'; all, where none is named. Throws BadInput for a package without exhibits.
std::vector<Exhibit> of_packages(std::vector<Exhibit> exhibits, const std::vector<std::string>& packages);

// Exit status 1 where an exhibit is not as it should be, cannot_be_had where packages were missing. Throws BadInput.
ExitStatus release_museum(const ReleaseMuseumArguments& arguments, const std::string& program, const Style& style);

}  // namespace seeksim::harness::releases
