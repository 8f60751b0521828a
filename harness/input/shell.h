// Words of a command as a shell takes them.
#pragma once

#include <string>

namespace seeksim::harness {

// The word as it is where a shell reads it as one, else in single quotes.
std::string for_the_shell(const std::string& word);

}  // namespace seeksim::harness
