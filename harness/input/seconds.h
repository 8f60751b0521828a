// Durations as scenarios write them: seconds, kept in nanoseconds.
#pragma once

#include "harness/input/reader.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {

// Reports what does not fit into 64-bit nanoseconds.
runtime::TimeNs read_seconds(const Reader& reader, const char* key, runtime::TimeNs otherwise);

}  // namespace seeksim::harness
