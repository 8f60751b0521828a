// The first number of a group at which something is wrong, and what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/analyse/groups.h"
#include "harness/analyse/story.h"

namespace seeksim::harness {

struct Trouble {
  HangKind kind = HangKind::all_came;  // other_..., shifted, cannot_be_known, never_came, no_dump or all_came
  int group = 0;
  std::int64_t number = 0;
  std::vector<int> waiting;     // have brought it, and it has not ended
  std::vector<int> through;     // have brought it, and it has ended
  std::vector<int> absent;      // their dump shows that they have not come to it
  std::vector<int> no_dump;     // members without a dump
  std::vector<int> odd;         // brought something else than most; empty where there is no majority
  std::string operation;        // of most
  std::string said;             // of a mismatch: one sentence
  bool ended_by_error = false;  // nobody waits any more, though a rank has not come
};

// None: nothing is wrong in the group. `group` counts JobView::groups.
std::optional<Trouble> first_trouble(const JobView& job, int group);

}  // namespace seeksim::harness
