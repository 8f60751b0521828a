// docs/reference/command-line.md, made of what CLI11 knows of the commands.
#pragma once

#include "harness/reference/pages.h"

namespace CLI {
class App;
}

namespace seeksim::harness {

// A section for each command of `app`: usage, arguments, defaults.
Page command_line_page(const CLI::App& app);

}  // namespace seeksim::harness
