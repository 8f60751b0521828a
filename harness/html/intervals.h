// What each rank did when, from a timeline of queues and hosts: busy intervals by kind of work. Nothing is drawn here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/timeline.h"

namespace seeksim::harness::html {

using runtime::TimeNs;

// Kinds of work. A rank waits where its host does and none of its queues has work; it idles where it does nothing.
enum Work : std::uint8_t { kCompute, kComm, kCopies, kWaits, kWorks };
inline constexpr std::array<const char*, kWorks> kWorkClass = {"compute", "comm", "copies", "waits"};
inline constexpr std::array<const char*, kWorks> kWorkName = {"compute", "communication, waiting for peers included",
                                                              "copies and files", "waiting for something else"};

struct Interval {
  TimeNs begin = 0;
  TimeNs end = 0;
};
using Intervals = std::vector<Interval>;  // sorted, apart from each other

struct RankWork {
  bool drawn = false;  // the timeline has spans of it
  std::array<Intervals, kWorks> of;
};

// By rank.
std::vector<RankWork> work_of(const sim::Timeline& timeline);

// Intervals whose gaps are shorter than `gap` made one.
Intervals joined(const Intervals& intervals, TimeNs gap);

}  // namespace seeksim::harness::html
