// The story of a run for people: what happened in virtual time, one line an event.
#pragma once

#include <string>
#include <vector>

#include "harness/record/run_record.h"
#include "harness/report/report.h"

namespace seeksim::harness {

struct StoryLine {
  TimeNs at = 0;
  std::string text;  // of several lines: the further ones are a wait-for graph
};
// All lines, in the order of virtual time; without colours.
std::vector<StoryLine> story_lines(const RunRecord& run);

// Faults, detections, agreements and recoveries in the order of virtual time, the first and the last committed step,
// and `further` lines among them. Beyond 60 lines the middle is left out, and the text says how many lines that are.
std::string story_of(const RunRecord& run, const Style& style, const std::vector<StoryLine>& further = {});

// A wait-for graph, one line for each thing that ranks wait for: "ranks 0-4: communication queue: all_reduce #8 ...".
// Lines of hosts that wait for their own queues are left out: readers look for ranks that wait for other ranks.
std::vector<std::string> waits_of(const std::string& graph);

}  // namespace seeksim::harness
