// The checks about micro-batches that were run twice, and what the report says about them.
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

Finding rerun_found(const Evidence& evidence, const std::string& where);
Finding rerun_genuine(const Evidence& evidence, const std::string& steps);

// What is wrong with an argument of rerun_found; empty: nothing.
std::string want_rerun(const std::string& text, int);

// For people, a line each; empty where nothing was run twice.
std::string rerun_text(const RunRecord& run);
Json rerun_json(const RunRecord& run);

}  // namespace seeksim::harness
