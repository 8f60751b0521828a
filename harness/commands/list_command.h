// `seeksim list`: what there is. Returns the exit status.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct ListArguments {
  std::string what;  // scenarios, faults, checks, bugs, quirks, figures, keys, schema, torch_keys, torch_schema
  std::string name;  // of one thing, of what is above it, or a part of names; empty: all
};

// Throws BadInput for another word, and for a name that nothing has.
ExitStatus list_command(const ListArguments& arguments, const Style& style);

}  // namespace seeksim::harness
