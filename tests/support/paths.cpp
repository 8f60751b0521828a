#include "tests/support/paths.h"

namespace seeksim::paths {

std::string source_dir() { return SEEKSIM_SOURCE_DIR; }
std::string program() { return SEEKSIM_PROGRAM; }

}  // namespace seeksim::paths
