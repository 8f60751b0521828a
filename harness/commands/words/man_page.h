// The manual page seeksim(1), made of what CLI11 knows of the commands.
#pragma once

#include <string>
#include <vector>

#include "harness/commands/words/command_words.h"

namespace seeksim::harness {

// In troff with the macros of man(7). version: as in "seeksim 0.1.0".
std::string man_page(const std::vector<CommandWords>& commands, const std::string& version);

}  // namespace seeksim::harness
