// The dumps of a job seen group by group: what each rank brought under each number, and where each rank stands.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/analyse/dump.h"

namespace seeksim::harness {

// What one rank brought to one number of one group: one operation, or several that were coalesced.
struct Brought {
  std::string operation, sizes, types, frame;
  bool started = false, over = true;
  std::int64_t created_ns = -1;
};

struct GroupView {
  std::string name, desc;
  std::vector<int> members;    // ascending; of the job
  std::vector<int> order;      // members in the group's own order, as sends and receives count them
  bool members_known = false;  // false: those that were seen in it, and perhaps more
  std::map<int, std::map<std::int64_t, Brought>> by_rank;  // collectives
  std::string title() const;                               // title_of() it
};

// "the default group", "group \"7\" (tensor)".
std::string title_of(const std::string& name, const std::string& desc);

// Where a rank stands: the first operation that it has begun and that has not ended.
struct Standing {
  int group = -1;  // of JobView::groups
  DumpEntry entry;
};

struct JobView {
  std::vector<Dump> dumps;  // by rank, ascending
  std::vector<GroupView> groups;
  std::map<int, Standing> stuck;  // ranks that wait in something
  std::vector<int> no_dump;       // ranks that are known to exist
  bool gloo = false;
  const Dump* dump_of(int rank) const;  // null: there is none
  std::vector<int> dumped() const;
};

// Throws BadInput where two files are of one rank.
JobView view_job(std::vector<Dump> dumps);

}  // namespace seeksim::harness
