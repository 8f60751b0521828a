// Schedule: which ready fiber or queue runs next, as data. Small enough to be pasted, and exact: the same schedule over
// the same plan is the same run, switch by switch, on every machine, since only whole numbers decide it.
//
// `seeded` is the fast one, for worlds of any size: it draws as the loop goes, and keeps nothing. All others number
// their decisions (each moment at which two or more could run), so that one can be changed by itself: a run of any of
// them is `first` with a list of deviations, and a list can be shrunk.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "sim/random.h"

namespace seeksim::sim {

// Raised when a change of the simulator moves, adds or removes a decision: schedules of before mean nothing then.
inline constexpr std::uint32_t kDecisionsVersion = 1;

enum class Strategy : std::uint8_t {
  seeded,  // drawn from the world's seed, by the loop
  first,   // the one that has been ready longest, hosts before queues
  random,  // all that can run alike
  pct,     // by priorities, of which a few change on the way (probabilistic concurrency testing)
  swarm,   // all that can run, some of it far less often
  // Nothing takes time but waiting, so that whatever can happen may happen next: hosts, queues, messages, deadlines
  // that have come. By name, the lowest first; any order is a list of deviations from that (steering.h).
  untimed,
  count_
};
std::string_view name(Strategy strategy);
Strategy strategy(std::string_view name);  // count_ where there is no such name

// At this decision, counted from 0, this one of those that can run. Hosts come before queues, the longest ready first.
struct Deviation {
  std::uint64_t decision = 0;
  std::uint32_t choice = 0;
  friend bool operator==(const Deviation&, const Deviation&) = default;
};

// What one rank's queue runs takes 2^doublings times as long; of the communication queue: what the rank sends.
struct SlowQueue {
  enum class Which : std::uint8_t { compute, communication, copy, host, storage, count_ };
  int rank = 0;
  Which queue = Which::compute;
  int doublings = 1;
  friend bool operator==(const SlowQueue&, const SlowQueue&) = default;
};
inline constexpr int kDoublingsMax = 16;
std::string_view name(SlowQueue::Which queue);
SlowQueue::Which slow_queue(std::string_view name);  // count_ where there is no such name

struct Schedule {
  Strategy strategy = Strategy::seeded;
  std::uint32_t changes = 3;          // pct: how often a priority changes
  std::uint64_t horizon = 4096;       //   within so many decisions
  std::vector<Deviation> deviations;  // in order; not with `seeded`
  std::vector<SlowQueue> slow;
  std::uint64_t first_decision = 0;  // where counting begins: worlds of one job count on
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Decides, and keeps what it decided.
class Chooser {
 public:
  Chooser(const Schedule& schedule, std::uint64_t seed);

  // One of those that can run, each named by a number that stays its own.
  std::uint32_t choose(std::span<const std::uint64_t> candidates);
  // Records a decision that was made elsewhere.
  void take(std::size_t candidates, std::uint32_t choice);

  std::uint64_t decisions() const { return next_; }               // so far, with those of worlds before
  const std::vector<Deviation>& taken() const { return taken_; }  // from `first`

 private:
  std::uint32_t by_strategy(std::span<const std::uint64_t> candidates);
  std::uint32_t by_priority(std::span<const std::uint64_t> candidates);
  std::uint32_t by_weight(std::span<const std::uint64_t> candidates);

  Schedule schedule_;
  std::uint64_t seed_;
  Random random_;
  std::uint64_t next_;
  std::size_t deviation_ = 0;           // the next one
  std::vector<std::uint64_t> changes_;  // decisions, in order
  std::size_t changed_ = 0;
  std::map<std::uint64_t, std::uint64_t> priority_;  // of whom it was changed
  std::vector<Deviation> taken_;
};

}  // namespace seeksim::sim
