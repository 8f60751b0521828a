// Where the time of a campaign goes. Each nanosecond has one cause, and all of them together are the whole.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "runtime/seams/time.h"

namespace seeksim::harness::campaign {

using runtime::TimeNs;

enum class Spent : std::uint8_t {
  useful,       // steps that lasted, at the speed of all nodes
  redone,       // steps that a failure took away again
  cut_short,    // the part of a step that a failure, or the end, broke off
  checkpoints,  // training waits for one
  detection,    // from a failure to its notice
  agreement,    // until all know and the job has ended
  waiting,      // for a node
  swapping,     // a spare steps in
  restarting,   // new processes
  reading,      // the checkpoint
  starting,     // from there to the first step
  rebuilding,   // the survivors' new group
  straggling,   // steps beside a straggler, beyond their usual time
  shrunk,       // steps on fewer nodes, beyond their usual time
  count_
};
inline constexpr std::size_t kSpent = std::size_t(Spent::count_);
const char* name(Spent spent);
// "steps that a failure took away again"
const char* text(Spent spent);

class SpentTime {
 public:
  void add(Spent to, TimeNs time) { of_[std::size_t(to)] += time; }
  void move(Spent from, Spent to, TimeNs time) {
    add(from, -time);
    add(to, time);
  }
  TimeNs of(Spent what) const { return of_[std::size_t(what)]; }
  TimeNs sum() const {
    TimeNs sum = 0;
    for (const TimeNs time : of_) sum += time;
    return sum;
  }
  friend bool operator==(const SpentTime&, const SpentTime&) = default;

 private:
  std::array<TimeNs, kSpent> of_{};
};

// The invariant: no cause is negative, all together are `whole`, and what is useful is `steps` steps. Empty: it holds;
// else what does not.
std::string what_is_wrong(const SpentTime& spent, TimeNs whole, std::int64_t steps, TimeNs step_ns);

}  // namespace seeksim::harness::campaign
