// The museum on what is installed: no mended bug may be back. For those who maintain these packages.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/releases/exhibit.h"
#include "harness/releases/trial.h"
#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness::releases {

// How a bug stands in the version that is installed.
enum class Standing : std::uint8_t {
  green,     // it was mended, and is not there
  back,      // it was mended, and is there
  open,      // it was never mended, and is there
  gone,      // it was never mended in a release, and is not there
  unjudged,  // the script failed by itself
  left_out,  // a package is not installed
};

struct StandingExhibit {
  Exhibit exhibit;
  Standing standing = Standing::left_out;
  std::string version;  // of the exhibit's package; empty: it is not installed
  std::string names;    // what the verdict names, or which package is missing
  double seconds = 0;
};

using Versions = std::map<std::string, std::string>;  // by package
// Runs an exhibit's script on what is installed.
using AskInstalled = std::function<Answer(const Exhibit&)>;

// All packages that these exhibits need, each once.
std::vector<std::string> packages_of(const std::vector<Exhibit>& exhibits);

StandingExhibit stand(const Exhibit& exhibit, const Versions& versions, const AskInstalled& ask_installed);
std::string standing_text(const StandingExhibit& one, const Style& style);
std::string standing_summary(const std::vector<StandingExhibit>& all);

// Tells of each exhibit as it was run, and of all. Exit status 1 where a mended bug is back or a script failed by
// itself, cannot_be_had where nothing could be run.
ExitStatus installed_museum(const std::vector<Exhibit>& exhibits, const Versions& versions,
                            const AskInstalled& ask_installed, const Style& style);

}  // namespace seeksim::harness::releases
