// Where the sources and the built program lie. One file knows (paths.cpp), so that all others compile to the same
// object in whatever folder they are built, and a compiler cache can tell.
#pragma once

#include <string>

namespace seeksim::paths {

std::string source_dir();  // the repository's top folder
std::string program();     // seeksim, as built

}  // namespace seeksim::paths
