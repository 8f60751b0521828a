// Words of a command as a shell takes them.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

// The word as it is where a shell reads it as one, else in single quotes.
std::string for_the_shell(const std::string& word);
// Words in a row.
std::string command_line(const std::vector<std::string>& words);

}  // namespace seeksim::harness
