// Plain values as one of Python's pickles, for programs that read nothing else.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness {

// Protocol 2: dicts, lists, strings, integers, floats, None and booleans; `pickle.load` gives them back. Bytes that are
// no UTF-8 become U+FFFD.
std::string pickled(const Json& value);

}  // namespace seeksim::harness
