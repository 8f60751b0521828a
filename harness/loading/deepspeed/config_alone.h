// A ds_config.json without a scenario around it, read by the same rows as in `run` and `plan`, and as strictly as
// DeepSpeed reads it: for `seeksim doctor`.
#pragma once

#include <string>
#include <vector>

#include "harness/input/document.h"

namespace seeksim::harness {

struct ConfigReading {
  std::vector<Problem> problems;   // what DeepSpeed refuses, and what seeksim has not built (is_not_built)
  std::vector<std::string> notes;  // how forms of the file were read: "auto", old names
  Json config;                     // in the form that the rows of keys read
};

// document: {"deepspeed": ...}, and "auto" where --auto was given. ranks: that share the batch; 0: not known, and the
// sizes of the batch are not held against them.
ConfigReading read_config_alone(Document document, std::int64_t ranks);

}  // namespace seeksim::harness
