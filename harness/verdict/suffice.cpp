#include "harness/verdict/suffice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/seams/rank_names.h"

namespace seeksim::harness {
namespace {

using faults::FaultKind;
using How = RankRecord::How;

// What takes a rank away, holds one up or loses a message, and leaves every number and every other rank's state whole.
bool leaves_state_whole(FaultKind kind) {
  static const FaultKind kinds[] = {FaultKind::rank_crash,     FaultKind::node_crash,  FaultKind::collective_timeout,
                                    FaultKind::message_drop,   FaultKind::kernel_hang, FaultKind::device_error,
                                    FaultKind::zombie_message, FaultKind::pause,       FaultKind::slow_link,
                                    FaultKind::straggler,      FaultKind::data_stall};
  return std::find(std::begin(kinds), std::end(kinds), kind) != std::end(kinds);
}

bool only_such_faults(const Evidence& e) {
  if (!e.scenario.own_faults.empty() || e.run.faults.size() != e.scenario.faults.size()) return false;
  for (std::size_t i = 0; i < e.run.faults.size(); ++i) {
    if (e.run.faults[i].fired > 0 && !leaves_state_whole(e.scenario.faults[i].kind)) return false;
  }
  return true;
}

// Recoveries since the last committed step, or more: the budget counts those.
bool had_attempts_left(const Evidence& e) {
  return int(e.run.detection.recoveries.size()) < e.scenario.train.recovery.attempts_max;
}

struct Gone {
  std::vector<int> all;
  std::vector<int> last;  // since a world last committed a step: then all shards had their copies again
};

// A process that was started again is alive, and came back without the state that it had: it counts as gone.
Gone ranks_gone(const RunRecord& run) {
  std::set<int> survived, lost;
  for (const Recovery& recovery : run.detection.recoveries) {
    (recovery.resumed_ns >= 0 ? survived : lost).insert(recovery.evicted.begin(), recovery.evicted.end());
  }
  Gone gone;
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    const int rank = int(i);
    const bool away = run.ranks[i].how == How::died || run.ranks[i].how == How::evicted;
    if (!away && lost.count(rank) == 0) continue;
    gone.all.push_back(rank);
    if (lost.count(rank) > 0 || survived.count(rank) == 0) gone.last.push_back(rank);
  }
  return gone;
}

// Copies lie on other nodes where there are some, so that a node may go as a whole.
bool are_one_node(const Gone& gone, const sim::WorldPlan& world) {
  std::set<int> nodes;
  for (const int rank : gone.all) nodes.insert(rank / world.ranks_per_node);
  return nodes.size() == 1 && world.nodes > 1;
}

}  // namespace

std::string would_have_sufficed(const Evidence& e) {
  const runtime::TrainPlan& train = e.scenario.train;
  const runtime::RecoveryPlan& recovery = train.recovery;
  const bool plain = recovery.policy == runtime::RecoveryPolicy::rebuild_and_redo &&
                     train.layout.parallel.ranks() == 1 && e.scenario.world.spares == 0;
  const bool whole_golden = e.golden == nullptr || std::int64_t(e.golden->loss.size()) >= train.definition.steps;
  if (!plain || !whole_golden || !only_such_faults(e) || !had_attempts_left(e)) return {};

  const Gone gone = ranks_gone(e.run);
  const int left = e.scenario.world.ranks() - int(gone.all.size());
  if (left < std::max(1, recovery.ranks_min)) return {};
  if (gone.last.empty()) return "no fault removed state that the survivors needed";
  const std::string who = runtime::rank_names(gone.last) + (gone.last.size() == 1 ? " is gone" : " are gone");
  // What compression did not send is kept by one rank alone.
  if (train.definition.compression.on() && train.definition.compression.error_feedback) return {};
  // Gradients that wait are on one rank, too.
  if (train.definition.staleness.on() && train.definition.staleness.bound > 0) return {};
  // Weights and moments of a worker that trains apart are on one rank.
  if (train.definition.local_sgd.on()) return {};
  if (train.layout.zero.stage == 0) return who + ", and every survivor holds the whole state";
  if (int(gone.last.size()) <= recovery.peer_copies) {
    const char* const copies = recovery.peer_copies == 1 ? "copy is" : "copies are";
    return fmt::format("{}, and {} {} kept of each shard (recovery.peer_copies)", who, recovery.peer_copies, copies);
  }
  if (recovery.peer_copies > 0 && are_one_node(gone, e.scenario.world))
    return who + ", all of one node, and copies of shards are kept on other nodes (recovery.peer_copies)";
  return {};
}

}  // namespace seeksim::harness
