// The command line: parses, calls, and turns what happened into an exit status.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

// arguments: without the program's name. Prints to stdout and stderr; never throws.
int main_of(const std::vector<std::string>& arguments);

}  // namespace seeksim::harness
