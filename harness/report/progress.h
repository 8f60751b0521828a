// How far something is that takes a while: for a person at a terminal a bar on stderr, after a second; else a line a
// minute. It only looks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/seams/time.h"

namespace seeksim::harness {

// A moment of it, as plain values.
struct HowFar {
  std::int64_t done = 0;
  std::int64_t total = 0;      // 0: as many as there is time for
  std::int64_t red = 0;        // of those that are done
  double elapsed_s = 0;        // wall time
  double budget_s = 0;         // likewise; 0: there is none
  runtime::TimeNs at_ns = -1;  // virtual; -1: there is none
};
// "row 155 of 240, 2 red, about 12 s left". unit: what is counted, in the singular.
std::string how_far(const HowFar& now, const std::string& unit);

class Progress {
 public:
  // total: 0, where there is a budget of wall time instead.
  Progress(bool on, std::string name, std::int64_t total, std::string unit = "step", double budget_s = 0);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(runtime::TimeNs now, std::int64_t done, std::int64_t red = 0);
  // Takes the bar away: before other text, and at the end.
  void finish();

 private:
  bool on_;
  bool bar_;  // else lines
  bool drawn_ = false;
  std::string name_, unit_;
  HowFar now_;
  std::chrono::steady_clock::time_point began_, next_;
};

}  // namespace seeksim::harness
