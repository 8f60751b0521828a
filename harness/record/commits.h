// One history: each step is committed once, by all members of an epoch alike or by none. Ranks report their commits one
// by one, and report a rollback before they go on. Holds the last few steps only, however long the run is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/detect/observer.h"

namespace seeksim::harness {

class Commits {
 public:
  // What was found. `compared`: how often a commit was compared with another rank's.
  struct Findings {
    std::uint64_t commits = 0;
    std::uint64_t compared = 0;
    std::vector<std::string> wrong;  // the first few
  };

  explicit Commits(std::size_t ranks) : next_(ranks, kAny) {}

  void committed(int rank, const runtime::StepRecord& record);
  // In the recovery that ended `epoch`, `rank` had `step` under way.
  void recovering(int rank, std::uint32_t epoch, std::int64_t step);
  // What `rank` commits next is `to_step`: it went back to a checkpoint, or joined with another rank's state.
  void goes_on_at(int rank, std::int64_t to_step);

  // The job starts again, with epochs and ranks of its own; each says where it goes on.
  void begin_again();

  const Findings& findings() const { return findings_; }

 private:
  static constexpr std::int64_t kAny = -1;  // a rank that has reported nothing yet
  struct First {
    int rank = -1;
    runtime::StepRecord record;
  };
  void wrong(std::string text);

  std::vector<std::int64_t> next_;                                   // by rank: the step that it has to commit next
  std::map<std::int64_t, First> steps_;                              // of the last few
  std::map<std::uint32_t, std::pair<int, std::int64_t>> under_way_;  // by epoch, the last few: (rank, step)
  Findings findings_;
};

}  // namespace seeksim::harness
