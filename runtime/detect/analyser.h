// Compares the flight recorders of all ranks: which ranks never came to the operation in which the others wait, which
// brought another one, and who waits for whom across all communicators, down to the rank that waits for no one. A pure
// function of the dumps of all ranks. diagnosis.h decides who is to blame, from the same ballots, so that there is one
// truth.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/detect/diagnosis.h"
#include "runtime/seams/recorder.h"

namespace seeksim::runtime {

// What one rank left behind, taken before anything was given up. A process that is gone leaves nothing.
struct FlightDump {
  int rank = -1;
  bool gone = false;    // the process is dead: no records
  bool silent = false;  // ... and was found out by its heartbeats
  std::uint32_t epoch = 0;
  std::vector<CommHeader> comms;
  std::vector<Record> records;   // oldest first
  std::optional<Ballot> ballot;  // that was counted; none of a rank that hangs, and of a run in which nothing failed
};

// How the records of one operation match, by the names of PyTorch's analyser.
enum class Match : std::uint8_t { matched, missing, type, size, dtype, state, count_ };
std::string_view name(Match match);

struct WaitEdge {
  int rank = -1;
  std::uint64_t comm = 0;
  Axis axis = Axis::world;
  std::uint64_t sequence = 0;
  OpKind op = OpKind::count_;
  std::vector<int> waits_for;  // empty: not known
};

struct FirstDivergent {
  std::string tensor;
  int rank = -1;
  std::int64_t step = -1;
};

struct Analysis {
  std::uint32_t epoch = 0;
  Diagnosis diagnosis;
  Match match = Match::matched;
  std::uint64_t comm = 0;  // where it began; 0: no rank waits in any
  Axis axis = Axis::world;
  std::uint64_t comm_seq = 0;
  std::vector<int> missing;  // its members that never entered the operation
  std::vector<int> victims;  // ranks that wait and are not to blame, ascending
  std::optional<FirstDivergent> first_divergent;
  std::vector<WaitEdge> wait_for_chain;  // from the rank that noticed first to one that waits for no one
  std::string chain;                     // the same in words: "rank 0 waits in all_reduce #12 (data) for rank 5; ..."
  bool slow = false;                     // nothing failed; the culprits are those for whom all others wait
};

// dumps: of all ranks of the epoch that ended, in any order. decided: what the ranks agreed on, where they did.
Analysis analyse(const std::vector<FlightDump>& dumps, const Diagnosis* decided = nullptr);

}  // namespace seeksim::runtime
