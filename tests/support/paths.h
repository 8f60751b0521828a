// Where the sources and the built program are. Only paths.cpp knows, so all other files compile to the same object in
// any build folder, and a compiler cache can share them.
#pragma once

#include <string>

namespace seeksim::paths {

std::string source_dir();  // the repository's top folder
std::string program();     // seeksim, as built

}  // namespace seeksim::paths
