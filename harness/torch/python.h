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
// Builds the backend for this Python's torch, or finds it. Throws BadInput with the one line that the build gives.
Built build_backend(const std::string& python);

// PYTHONPATH with a folder in front.
std::string python_path_with(const std::string& folder);

// What `python -m seeksim_torch.doctor` finds out.
Json facts_of(const std::string& python);
// Empties the cache of built backends; returns its size in bytes.
std::uint64_t clean_cache(const std::string& python);

}  // namespace seeksim::harness::torch
