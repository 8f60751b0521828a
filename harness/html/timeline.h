// The timeline of ranks: what each did when, and the marks of the report on it. Many ranks share rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/html/intervals.h"
#include "harness/html/marks.h"
#include "sim/timeline.h"

namespace seeksim::harness::html {

inline constexpr int kRowsMost = 64;  // with more ranks, several share a row

// courses: by rank, equal for ranks that stand for each other in a run of shapes; empty: none do. Only one of those is
// in the timeline. end_s: when the run ended. null timeline: marks only.
std::string timeline_figure(const sim::Timeline* timeline, const std::vector<std::uint64_t>& courses,
                            const std::vector<Mark>& marks, double end_s);

// The same of a run in real time, whose work is known already. work: by rank.
std::string timeline_of_work(const std::vector<RankWork>& work, const std::vector<Mark>& marks, double end_s);

}  // namespace seeksim::harness::html
