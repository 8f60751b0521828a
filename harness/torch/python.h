// The user's Python: found, looked at, and the backend built against its torch.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/torch/child.h"

namespace seeksim::harness::torch {

// --python, else the active virtual environment's, else python3. Throws BadInput where there is none.
std::string find_python(const std::string& given);

// What `python -m seeksim_torch.build` says.
struct Built {
  std::string torch;        // its version
  std::string module;       // the backend
  std::string python_path;  // goes in front of PYTHONPATH
  double built_s = 0;       // 0: it was there already
};
// Builds the backend for this Python's torch, or finds it. warm: what keep_warm() gave; empty: the Python imports
// torch. Throws BadInput with the one line that the build gives.
Built build_backend(const std::string& python, const std::vector<std::string>& warm = {});

// The folder that goes in front of PYTHONPATH.
std::string package_folder();

// A process that has imported torch and these modules, and stays for so many seconds after its last use.
struct Warm {
  std::vector<std::string> ranks_with;  // stands before a script that it is to run
  bool fresh = false;                   // it was started just now
};
// Finds it, or starts it. environment: of the ranks that it will fork. Throws BadInput where it does not get ready.
Warm keep_warm(const std::string& python, const Environment& environment, double seconds,
               const std::vector<std::string>& modules);

// PYTHONPATH with a folder in front.
std::string python_path_with(const std::string& folder);

// What `python -m seeksim_torch.doctor` finds out.
Json facts_of(const std::string& python);
// Empties the cache of built backends; returns its size in bytes.
std::uint64_t clean_cache(const std::string& python);

}  // namespace seeksim::harness::torch
