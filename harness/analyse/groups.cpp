#include "harness/analyse/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

bool is_default(const DumpGroup& group) { return group.desc == "default_pg" || group.name == "default_pg"; }

// Coalesced operations share a number: they are compared as one.
void bring(GroupView& group, int rank, const DumpEntry& e) {
  const auto [at, is_new] = group.by_rank[rank].try_emplace(e.number);
  Brought& b = at->second;
  if (is_new) {
    b = {e.operation, e.sizes, e.types, e.frame, e.started, e.over, e.created_ns};
    return;
  }
  if (b.operation.size() + b.sizes.size() < 2000) {
    b.operation += " + " + e.operation;
    b.sizes += " + " + e.sizes;
    b.types += " + " + e.types;
  }
  b.started = b.started || e.started;
  b.over = b.over && e.over;
}

class Viewer {
 public:
  explicit Viewer(JobView& job) : job_(job) {}

  void run() {
    int world = job_.dumps.empty() ? 0 : job_.dumps.back().rank + 1;
    for (const Dump& dump : job_.dumps) world = std::max(world, dump.world_least);
    for (const Dump& dump : job_.dumps) add(dump);
    for (GroupView& group : job_.groups) finish(group, world);
    std::set<int> known;
    for (const GroupView& group : job_.groups) known.insert(group.members.begin(), group.members.end());
    for (const int rank : known) {
      if (job_.dump_of(rank) == nullptr) job_.no_dump.push_back(rank);
    }
  }

 private:
  // Groups of one name and other members are other groups.
  int index_of(const DumpGroup& group) {
    const auto [at, is_new] = index_.emplace(std::tuple(group.name, group.members), int(job_.groups.size()));
    if (is_new) {
      GroupView& view = job_.groups.emplace_back();
      view.name = group.name;
      view.desc = group.desc;
      view.order = group.members;
      view.members_known = !group.members.empty();
    } else if (job_.groups[std::size_t(at->second)].desc.empty()) {
      job_.groups[std::size_t(at->second)].desc = group.desc;
    }
    return at->second;
  }

  void add(const Dump& dump) {
    std::vector<int> mine;
    for (const DumpGroup& group : dump.groups) mine.push_back(index_of(group));
    job_.gloo = job_.gloo || dump.gloo;
    for (const DumpEntry& e : dump.entries) {
      const int g = mine[std::size_t(e.group)];
      GroupView& group = job_.groups[std::size_t(g)];
      group.by_rank[dump.rank];
      if (!e.p2p) bring(group, dump.rank, e);
      if (!e.over && !job_.stuck.contains(dump.rank)) job_.stuck[dump.rank] = {g, e};
    }
  }

  static void finish(GroupView& group, int world) {
    std::set<int> members(group.order.begin(), group.order.end());
    if (!group.members_known) {
      for (const auto& [rank, brought] : group.by_rank) members.insert(rank);
      if (is_default({group.name, group.desc, {}})) {
        for (int rank = 0; rank < world; ++rank) members.insert(rank);
      }
    }
    group.members.assign(members.begin(), members.end());
    if (!group.members_known) group.order = group.members;
  }

  JobView& job_;
  std::map<std::tuple<std::string, std::vector<int>>, int> index_;
};

}  // namespace

std::string title_of(const std::string& name, const std::string& desc) {
  if (desc == "default_pg" || name == "default_pg") return "the default group";
  const bool described = !desc.empty() && desc != "undefined" && desc != name;
  return described ? fmt::format("group \"{}\" ({})", name, desc) : fmt::format("group \"{}\"", name);
}

std::string GroupView::title() const { return title_of(name, desc); }

const Dump* JobView::dump_of(int rank) const {
  const auto at = std::lower_bound(dumps.begin(), dumps.end(), rank, [](const Dump& d, int r) { return d.rank < r; });
  return at != dumps.end() && at->rank == rank ? &*at : nullptr;
}

std::vector<int> JobView::dumped() const {
  std::vector<int> ranks;
  for (const Dump& dump : dumps) ranks.push_back(dump.rank);
  return ranks;
}

JobView view_job(std::vector<Dump> dumps) {
  JobView job;
  std::sort(dumps.begin(), dumps.end(), [](const Dump& a, const Dump& b) { return a.rank < b.rank; });
  for (std::size_t i = 1; i < dumps.size(); ++i) {
    if (dumps[i].rank == dumps[i - 1].rank)
      throw BadInput(dumps[i].file, fmt::format("is of rank {}, and so is {}", dumps[i].rank, dumps[i - 1].file),
                     "Give the dumps of one job, one a rank.");
  }
  job.dumps = std::move(dumps);
  Viewer(job).run();
  return job;
}

}  // namespace seeksim::harness
