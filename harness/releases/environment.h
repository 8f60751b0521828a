// Packages in released versions, for scripts to run on. pytorch/tools/releases.py makes and keeps them.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/torch/child.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness::releases {

// No network, or no such release, or one that does not install: nothing was judged.
class CannotBeHad : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a script needs to run on an environment.
struct ReleaseEnvironment {
  std::string python;       // with torch
  std::string python_path;  // folders of the other packages, for PYTHONPATH
  double made_s = 0;        // how long it took to make or to find
};

// Makes the environment with these pins ("deepspeed==0.18.2"), or finds it. `python`: the one to make it with; empty:
// the active environment's or python3. Throws CannotBeHad with one line, BadInput for what is no pin.
ReleaseEnvironment make_environment(const std::vector<std::string>& pins, const std::string& python);

// What the user has: this Python (empty: the active environment's or python3) and the folders of PYTHONPATH.
ReleaseEnvironment own_environment(const std::string& python);
// Versions, by package, of those of these packages that it has. Throws BadInput where it cannot be asked.
std::map<std::string, std::string> installed_versions(const ReleaseEnvironment& environment,
                                                      const std::vector<std::string>& packages);

// Variables of a process that runs a script on it.
torch::Environment variables_of(const ReleaseEnvironment& environment);

// Final releases of a package on PyPI, the oldest first. Throws as make_environment().
std::vector<std::string> releases_of(const std::string& package, const std::string& python);

// Removes all environments; returns their size in bytes.
std::uint64_t clean_environments(const std::string& python);

}  // namespace seeksim::harness::releases
