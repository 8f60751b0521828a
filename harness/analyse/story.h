// What dumps or logs tell: who is accused of what, what is certain, what is not, and what would tell more next time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/analyse/pickle.h"

namespace seeksim::harness {

enum class HangKind {
  nothing_stuck,
  never_came,       // others wait in an operation that a rank has not brought
  other_operation,  // a rank brought another operation under the same number
  other_size,
  other_type,
  shifted,      // a rank did an operation more or less, so that its numbers are another's
  cycle,        // ranks wait for each other in different groups, or in sends and receives
  no_partner,   // a send without its receive, or a receive without its send
  no_dump,      // everyone whose dump is there has come
  all_came,     // everyone has come, and it does not end
  first_error,  // an error of a rank is older than what followed from it
  cannot_be_known,
};
std::string_view name(HangKind kind);

struct Story {
  HangKind kind = HangKind::nothing_stuck;
  std::vector<int> accused;  // ranks that something speaks against, ascending
  std::string headline;      // one sentence
  std::vector<std::string> certain, likely, unknown, next;
  Tree details = Tree::object();  // for programs
};

// For people: the headline, then what is certain, likely, unknown, and what would tell more.
std::string story_text(const Story& story);
// For programs: {"schema": "seeksim-hang-1", "verdict", "accused", "headline", "certain", ...}.
std::string story_json(const Story& story);

// "rank 2", "ranks 0, 1 and 3", "ranks 0 to 7"; "no rank" where there is none.
std::string ranks_text(const std::vector<int>& ranks);
// The same at the beginning of a sentence: "Ranks 0 to 7".
std::string capitalized(std::string text);

}  // namespace seeksim::harness
