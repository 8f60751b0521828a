// `seeksim reference`: writes the reference pages below docs/reference/ and the table of scenarios/README.md.
#pragma once

#include <string>

#include "harness/reference/pages.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct ReferenceArguments {
  std::string top = ".";  // the folder that holds docs/ and scenarios/
  bool check = false;     // write nothing, and say which pages are out of date
};

// `command_line`: the page about the commands, which only their parser knows. Throws BadInput where a page cannot be
// read or written. With `check`: check_failed where a page is out of date.
ExitStatus reference_command(const ReferenceArguments& a, const Page& command_line);

}  // namespace seeksim::harness
