#include "harness/loading/schedule.h"

#include <fmt/format.h>

namespace seeksim::harness {
namespace {

using namespace shapes;
using sim::Schedule;
using sim::SlowQueue;
using sim::Strategy;

bool is_pct(const Schedule& schedule) { return schedule.strategy == Strategy::pct; }
bool deviates(const Schedule& schedule) { return !schedule.deviations.empty(); }
bool slows(const Schedule& schedule) { return !schedule.slow.empty(); }

const Keys<SlowQueue>& slow_keys() {
  static const Keys<SlowQueue> keys = {
      {"rank", at(&SlowQueue::rank), integer(0).required(), kNoBit, "Whose."},
      {"queue", in_words(&SlowQueue::queue), choice({"compute", "communication", "copy", "host", "storage"}).required(),
       kNoBit, "Of the communication queue: what the rank sends."},
      {"doublings", at(&SlowQueue::doublings), integer(1, 16), kNoBit, "How often its time doubles."},
  };
  return keys;
}

Json deviations_of(const Schedule& schedule) {
  Json list = Json::array();
  for (const sim::Deviation& one : schedule.deviations) list.push_back({one.decision, one.choice});
  return list;
}

Json slow_of(const Schedule& schedule) {
  Json list = Json::array();
  for (const SlowQueue& one : schedule.slow) list.push_back(slow_keys().written(one));
  return list;
}

void read_slow(const Reader& key, int ranks, Schedule& schedule) {
  const Json* list = key.find("slow");
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = fmt::format("slow/{}", i);
    const Reader one((*list)[i], key.at(at.c_str()), key.findings());
    SlowQueue slow;
    slow_keys().read(one, slow);
    if (one.has("queue") && sim::slow_queue(one.text("queue", "compute")) == SlowQueue::Which::count_) continue;
    if (ranks > 0 && slow.rank >= ranks) {
      one.problem("rank", fmt::format("there is no rank {}", one.integer("rank", slow.rank)),
                  fmt::format("0 to {}.", ranks - 1));
      continue;
    }
    schedule.slow.push_back(slow);
  }
}

void read_deviations(const Reader& key, Schedule& schedule) {
  const Json* list = key.find("deviations");
  if (list == nullptr || !list->is_array() || list->empty()) return;
  if (schedule.strategy == Strategy::seeded) {
    key.problem("deviations", "the strategy seeded does not number its decisions",
                "Set \"strategy\": \"first\", from which they deviate.");
  }
  for (const Json& one : *list) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_number_integer() || !one[1].is_number_integer()) return;
    const sim::Deviation deviation{one[0].get<std::uint64_t>(), one[1].get<std::uint32_t>()};
    if (!schedule.deviations.empty() && deviation.decision <= schedule.deviations.back().decision) {
      key.problem("deviations", fmt::format("decision {} comes after a later one", deviation.decision),
                  "Sort them, each decision once.");
      return;
    }
    schedule.deviations.push_back(deviation);
  }
}

}  // namespace

const Keys<Schedule>& schedule_keys() {
  static const Keys<Schedule> keys = {
      {"strategy", in_words(&Schedule::strategy), choice({"seeded", "first", "random", "pct", "swarm", "untimed"}),
       kNoBit,
       "seeded: drawn from the seed, for worlds of any size. The others number their decisions: who is ready longest; "
       "all alike; by priorities of which some change on the way; some of all far less often. untimed: nothing takes "
       "time but waiting, and any order is a list of deviations (seeksim explore --strategy exhaustive)."},
      {"changes", at(&Schedule::changes).when(is_pct), integer(0, 1'000'000), kNoBit,
       "pct: how often a priority changes."},
      {"horizon", at(&Schedule::horizon).when(is_pct), integer(1, kExact), kNoBit,
       "pct: changes happen within this many decisions."},
      {"deviations", written_as<Schedule>(deviations_of).when(deviates),
       list(list(integer(0, 4'294'967'295)).entries(2, 2)).unset(), kNoBit,
       "[decision, choice]: at this decision, counted from 0, this one of those that can run; hosts come before "
       "queues, the longest ready first."},
      {"slow", written_as<Schedule>(slow_of).when(slows), list(slow_keys().shape()).unset(), kNoBit,
       "Queues in which everything takes 2^doublings times as long."},
  };
  return keys;
}

void read_schedule(const Reader& top, Scenario& scenario) {
  const Reader key = top.child("schedule");
  Schedule& schedule = scenario.world.schedule;
  schedule_keys().read(key, schedule);
  read_slow(key, scenario.world.ranks(), schedule);
  read_deviations(key, schedule);
}

}  // namespace seeksim::harness
