// Testimony: what the ballots of an agreement say together, and how that reads. For diagnosis.cpp alone.
#pragma once

#include <string>
#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

struct Voice {
  int rank;
  const Ballot* ballot;
  // The peer that it waited for; -1: unknown. No rank waits for itself.
  int missing() const { return ballot->missing_peer == rank ? -1 : ballot->missing_peer; }
};

// What the ballots say, in an order that does not depend on the order of the answers.
struct Testimony {
  std::vector<Voice> voices;      // by rank
  std::vector<int> dead;          // ascending
  std::vector<int> silent;        // of these, ascending
  std::vector<Voice> stuck;       // those in the earliest operation that anybody could not finish
  std::uint64_t sequence = 0;     // of that operation; 0: no rank was stuck
  std::uint64_t in = 0;           // its communicator
  const Ballot* first = nullptr;  // of the rank that noticed first
  std::int64_t step = -1;         // that was under way; -1 unknown
  TimeNs first_detected_ns() const { return first ? first->detected_ns : 0; }
};

Testimony gather(const Agreement& agreement);

inline bool saw_something(const Ballot& ballot) {
  return ballot.error != ErrorKind::count_ || ballot.stuck_sequence > 0;
}

// "all_reduce #12 of step 3". kind: count_ where it is not known; sequence: 0 likewise.
std::string operation(OpKind kind, std::uint64_t sequence, const Testimony& found);
// " (7 ranks waited 600 s)"; empty where no rank waited.
std::string who_waited(const std::vector<Voice>& waiting);

}  // namespace seeksim::runtime
