// The story of a run as spans of its Chrome trace: faults from their first firing on, recoveries with their stages, and
// stretches of which the timeline keeps nothing.
#pragma once

#include <string>
#include <vector>

#include "harness/record/run_record.h"
#include "sim/timeline.h"

namespace seeksim::harness {

struct StorySpan {
  TimeNs begin = 0, end = 0;
  int track = 0;
  std::string name;
  const char* category = "";
  const char* colour = "";  // one of the viewers' reserved ones
  std::string args;         // members of a JSON object
};

struct StoryTracks {
  std::vector<std::string> tracks;  // names, from above
  std::vector<StorySpan> spans;     // those of one track are apart or nest; what contains comes before what it contains
};

StoryTracks trace_story(const sim::Timeline& timeline, const RunRecord& run);

// "steps 4 to 7", "a part of steps 0 to 1".
std::string stretch_in_words(const sim::Timeline::LeftOut& one);

}  // namespace seeksim::harness
