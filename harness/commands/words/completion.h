// Tab completion for bash, zsh and fish: commands, options and the words that an option takes. Elsewhere the shell
// completes files, as for any program.
#pragma once

#include <string>
#include <vector>

#include "harness/commands/words/command_words.h"

namespace seeksim::harness {

// The script for "bash", "zsh" or "fish". The program is `seeksim` in it.
std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace seeksim::harness
