// What a hang looks like, as plain values: who waits in what, who is accused. Both a story of dumps or logs and a
// simulated run can be seen so, and held against each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/analyse/story.h"

namespace seeksim::harness {

// What one rank waits in, or brought.
struct HangPlace {
  int rank = 0;
  std::string group;      // as the dump or log names it; empty: it does not
  std::string operation;  // "all_reduce", as PyTorch's functions are called: operation_class(); empty: not said
  std::string said;       // the operation as the dump or log spells it
  std::int64_t number = -1;
  std::string sizes;  // or the number of elements; empty: not said
};

struct HangPicture {
  HangKind kind = HangKind::nothing_stuck;
  int world = 0;               // ranks, at least
  std::vector<HangPlace> all;  // by rank, one each; of the others nothing is said
  std::vector<int> accused;    // ascending
  std::vector<int> silent;     // neither accused nor in `all`: no dump, or no line in the log
};

HangPicture picture_of(const Story& story);

// "ALLREDUCE", "allreduce_coalesced" and "all_reduce" are "all_reduce"; "_ALLGATHER_BASE" is "all_gather". What is of
// no such class stays as it is, in small letters.
std::string operation_class(const std::string& said);

}  // namespace seeksim::harness
