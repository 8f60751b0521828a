// OrderSearch: all orders of the steps of an untimed world that anybody could tell apart, one run after the other. A
// stateless search: each run begins anew and follows the last one up to a decision, where it goes another way.
//
// With reduction it goes another way only where a run had two steps that touched the same thing, one of them changing
// it, and nothing made the second wait for the first (dynamic partial-order reduction; Flanagan and Godefroid 2005,
// source sets after Abdulla, Aronis, Jonsson and Sagonas 2014). Sleep sets keep it from coming to an order again that
// differs from an earlier one only by steps that do not concern each other: a run that could only do so is given up.
// What may change places is stated in steering.h; the search is as complete as what steps say that they touch.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sim/steering.h"

namespace seeksim::sim {

class OrderSearch final : public Steering {
 public:
  struct Options {
    bool reduce = true;                      // false: each order of all steps
    ObjectKind blind_to = ObjectKind::none;  // a planted mistake: touches of these are not seen
  };
  struct Counts {
    std::uint64_t runs = 0;       // that came to their end
    std::uint64_t given_up = 0;   // that could only repeat what is known: blocked by their sleep sets
    std::uint64_t steps = 0;      // over all runs
    std::uint64_t decisions = 0;  // steps of these at which two or more could run
    std::uint64_t races = 0;      // pairs of steps that might have come in the other order
    std::uint64_t points = 0;     // decisions at which more than one way was gone or is to be
    std::size_t depth = 0;        // steps of the longest run
  };

  explicit OrderSearch(const Options& options) : options_(options) {}

  // Before each run. False: all orders have been seen.
  bool begin_run();
  // After it. True: it came to its end; false: it was given up.
  bool end_run();

  const Counts& counts() const { return counts_; }
  bool complete() const { return complete_; }
  std::uint64_t left() const;                                // ways that are known and were not gone yet
  std::uint64_t outcome() const { return heard_.digest(); }  // of the last run

  // ---- Steering
  std::uint32_t choose(std::span<const std::uint64_t> processes) override;
  void touched(Object object, Access how) override;
  void enabled(std::uint64_t process) override;
  void clock_moved() override;
  void decided(int rank, std::uint64_t what) override { heard_.add(rank, what); }

 private:
  using Process = std::uint64_t;
  using Touches = std::vector<Touch>;
  // A step, and the state before it.
  struct Node {
    std::vector<Process> able;  // to run
    Process chosen = 0;
    std::set<Process> to_go;             // with those that were gone
    std::map<Process, Touches> asleep;   // whose next step leads to nothing new: it was gone before
    Touches touches;                     // of the step
    std::vector<std::uint32_t> before;   // steps that it follows on, directly
    std::vector<std::uint64_t> history;  // all steps before it that it follows on, since the clock moved: a bit each
    std::uint32_t since = 0;             // the first step since the clock moved
    bool can(Process process) const;
    bool follows(std::uint32_t step) const;
  };
  struct Touched {
    std::uint32_t step;
    Access how;
  };

  static bool concern(const Touches& a, const Touches& b);
  static bool concern(Access a, Access b);
  void fall_asleep(Node& node, const Node& last) const;
  void step_over();  // the one that ran: what it follows on
  void find_races(std::uint32_t step, const std::vector<std::pair<std::uint32_t, bool>>& direct);
  void go_the_other_way(std::uint32_t first, std::uint32_t second);

  Options options_;
  Counts counts_;
  std::vector<Node> nodes_;  // of the run, or of the one before
  std::uint32_t at_ = 0;     // steps of this run so far
  std::uint32_t fixed_ = 0;  // of these, so many are those of the run before, and the next one goes another way
  std::uint32_t since_ = 0;
  bool ran_ = false, gave_up_ = false, complete_ = false;
  std::map<std::uint64_t, std::vector<Touched>> by_object_;  // since the clock moved
  std::map<Process, std::uint32_t> last_step_;               // the same
  std::map<Process, std::vector<std::uint32_t>> made_able_;  // by which steps, since it ran
  Heard heard_;
};

}  // namespace seeksim::sim
