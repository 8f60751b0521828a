// How a Chrome trace writes texts, times and colours.
#pragma once

#include <string>
#include <string_view>

#include "runtime/seams/op.h"
#include "sim/loop.h"

namespace seeksim::harness {

// One of the viewers' reserved colours a phase; the colours for trouble are left for trouble.
const char* trace_colour(runtime::Phase phase);
// A JSON string.
std::string as_json_text(std::string_view text);
// Exactly: "12.345".
std::string in_microseconds(runtime::TimeNs ns);
// "waits for an event"
const char* wait_in_words(sim::Blocked why);

}  // namespace seeksim::harness
