// The last member lets the pieces meet, which gives the times and finds who disagrees, and computes every owner's sums.
#include "sim/native_scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "runtime/launch/launcher.h"
#include "runtime/seams/bounded.h"
#include "sim/core.h"

namespace seeksim::sim {

using kernels::TreeNode;
using kernels::TreePart;
using runtime::CommResult;
using runtime::Piece;

namespace {

// A node of the step's tree as seen from an ancestor `root`, as if that were the whole tree; false: it is none.
bool inside(TreeNode node, TreeNode root, TreeNode& seen) {
  const int up = root.level - node.level;
  if (up < 0 || node.index >> up != root.index) return false;
  seen = {node.level, node.index - (root.index << up)};
  return true;
}

// Those of one peer, in their order; `pieces` are sorted by peer.
std::span<const Piece* const> of_peer(const std::vector<const Piece*>& pieces, int peer) {
  const auto first = std::lower_bound(pieces.begin(), pieces.end(), peer,
                                      [](const Piece* piece, int rank) { return piece->peer < rank; });
  const auto last = std::find_if(first, pieces.end(), [peer](const Piece* piece) { return piece->peer != peer; });
  return {first, last};
}

}  // namespace

void NativeScatter::prepare(const runtime::TreeScatter& scatter) {
  parts_.clear();
  for (const runtime::TreeReduceSlice& part : scatter.parts) parts_.push_back({part.node, part.value.get().data});
  targets_.assign(scatter.targets.begin(), scatter.targets.end());
  pieces_.assign(scatter.pieces.begin(), scatter.pieces.end());
  sends_.clear();
  receives_.clear();
  for (const Piece& piece : pieces_) (piece.send ? sends_ : receives_).push_back(&piece);
  for (std::vector<const Piece*>* pieces : {&sends_, &receives_}) {
    const auto before = [](const Piece* a, const Piece* b) { return a->peer < b->peer; };
    if (!std::is_sorted(pieces->begin(), pieces->end(), before))
      std::stable_sort(pieces->begin(), pieces->end(), before);
  }
  leaves_ = scatter.leaves;
  factor_ = scatter.factor;
  summed_ = false;
}

std::string NativeScatter::what() const {
  return fmt::format(", {} parts over {} leaves times {}", parts_.size(), leaves_, factor_);
}

bool NativeScatter::is_here(int peer) const {
  const int position = group_->shared->position(peer);
  return position >= 0 && group_->at[std::size_t(position)] != nullptr;
}

void NativeScatter::look_for_dead(std::size_t) {
  Core& core = owner->core();
  for (const Piece& piece : pieces_) {
    const bool same_node = core.network.node_of(op.rank) == core.network.node_of(piece.peer);
    if (!is_here(piece.peer) && core.transport.known_dead(piece.peer, same_node))
      owner->fail(comm, CommResult::remote_error, fmt::format("rank {} is gone", piece.peer));
  }
}

void NativeScatter::complete(Group& group) { group.mismatched = !meet(group); }

bool NativeScatter::meet(Group& group) {
  std::vector<NativeScatter*> members;
  for (SimActivity* activity : group.at)
    if (activity != nullptr) members.push_back(static_cast<NativeScatter*>(activity));
  Core& core = members.front()->owner->core();
  for (NativeScatter* member : members) member->ready_ = core.loop.now();
  if (core.gathers_natively()) meet_at_once(members, core.network);
  for (NativeScatter* member : members)
    if (!core.gathers_natively() && !member->meet_peers(group)) return false;
  if (core.network.times() != nullptr) meet_as_measured(members, core.network, *group.shared);
  for (NativeScatter* member : members)
    if (!member->sum_targets(group)) return false;
  for (NativeScatter* member : members) {
    member->summed_ = true;
    core.loop.at(member->ready_, *member, member->generation);
  }
  return true;
}

// All have their pieces when the busiest adapter is through, as in a gather.
void NativeScatter::meet_at_once(const std::vector<NativeScatter*>& members, const Network& network) {
  CollectiveLoad busiest;
  for (const NativeScatter* member : members) busiest.at_least(network.load(member->op.rank, member->pieces_));
  for (NativeScatter* member : members) member->ready_ = runtime::later(member->ready_, network.time_of(busiest));
}

// Each part that it brings goes to all owners; what it owns goes nowhere.
std::size_t NativeScatter::whole_bytes() const {
  std::size_t out = 0, own = 0;
  for (const Piece& piece : pieces_) out += piece.send ? piece.hi - piece.lo : 0;
  for (const runtime::TreeTarget& target : targets_) own += std::size_t(target.out.n) * sizeof(float);
  return out / std::max<std::size_t>(parts_.size(), 1) + own;
}

// Whoever has to do with most of the vector knows it whole.
void NativeScatter::meet_as_measured(const std::vector<NativeScatter*>& members, Network& network,
                                     const SharedComm& shared) {
  std::size_t whole = 0;
  double slow = 1;
  for (const NativeScatter* member : members) {
    whole = std::max(whole, member->whole_bytes());
    slow = std::max(slow, network.slowness(member->op.rank, SlowQueue::Which::communication));
  }
  const TimeNs alone = network.times()->time(CollectiveTimes::What::reduce_scatter, whole, shared.size(), shared.nodes,
                                             shared.per_node_max);
  const TimeNs together = runtime::to_time_ns(double(alone) * slow * network.jitter());
  for (NativeScatter* member : members) member->ready_ = runtime::later(member->owner->core().loop.now(), together);
}

// Pieces of one pair meet in order, and take the time that they would take in an exchange.
bool NativeScatter::meet_peers(const Group& group) {
  Network& network = owner->core().network;
  for (const int peer : group.shared->members) {
    NativeScatter& other = static_cast<NativeScatter&>(*group.at[std::size_t(group.shared->position(peer))]);
    if (&other == this) continue;
    const std::span<const Piece*const> mine = of_peer(sends_, peer), theirs = of_peer(other.receives_, op.rank);
    for (std::size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
      const std::size_t brought = i < mine.size() ? mine[i]->hi - mine[i]->lo : 0;
      const std::size_t expected = i < theirs.size() ? theirs[i]->hi - theirs[i]->lo : 0;
      if (i >= mine.size() || i >= theirs.size() || brought != expected) {
        const auto bytes = [](bool there, std::size_t n) { return there ? fmt::format("{} bytes", n) : "nothing"; };
        const std::string why = fmt::format("rank {} brought {} for rank {}, which expects {}", op.rank,
                                            bytes(i < mine.size(), brought), peer, bytes(i < theirs.size(), expected));
        owner->fail(comm, CommResult::invalid_usage, why);
        other.owner->fail(other.comm, CommResult::invalid_usage, why);
        return false;
      }
      if (network.times() != nullptr) continue;  // no adapter of a link is busy with it
      const TimeNs when = network.arrival(owner->core().loop.now(), op.rank, peer, brought);
      ready_ = std::max(ready_, when);
      other.ready_ = std::max(other.ready_, when);
    }
  }
  return true;
}

// Also the time that the owner's device needs to fold what has arrived; a measured time has it.
bool NativeScatter::sum_targets(Group& group) {
  std::vector<TreePart>& parts = owner->core().transport.parts;
  const int me = owner->comm_at(comm).position;
  runtime::Op fold = op;
  fold.kind = runtime::OpKind::compute;
  Core& core = owner->core();
  for (const runtime::TreeTarget& target : targets_) {
    if (core.plan.classes != nullptr &&
        (target.root.level != targets_.front().root.level || target.root.index != targets_.front().root.index))
      core.tell_apart("the samples of a micro-step are several subtrees");
    kernels::Index addends = 0;
    const bool has_values = target.out.get().data != nullptr;  // else a run of shapes, where it only takes its time
    parts.clear();
    for (std::size_t member = 0; member < group.at.size(); ++member) {
      if (group.at[member] == nullptr) continue;
      for (const Part& part : static_cast<const NativeScatter*>(group.at[member])->parts_) {
        TreeNode seen;
        if (!inside(part.node, target.root, seen)) continue;
        addends += core.weight(group.at[member]->op.rank);
        if (has_values) parts.push_back({seen, part.data + target.first, int(member)});
      }
    }
    const kernels::Index begin = kernels::first_leaf(target.root);
    const kernels::Index leaves = std::min(begin + (kernels::Index(1) << target.root.level), leaves_) - begin;
    try {
      if (has_values)
        kernels::tree_sum(owner->rank().device.lane_of(op), parts.data(), kernels::Index(parts.size()), leaves,
                          target.out.get(), factor_, me);
    } catch (const std::invalid_argument& e) {  // the members' parts do not make up the tree
      for (SimActivity* activity : group.at) activity->owner->fail(activity->comm, CommResult::invalid_usage, e.what());
      return false;
    }
    if (core.network.times() != nullptr) continue;
    const runtime::Cost cost = runtime::memory_cost((addends + 1) * target.out.n);
    ready_ = runtime::later(ready_, owner->rank().device.with_noise(fold, cost));
  }
  return true;
}

void NativeScatter::scribble() {
  for (const runtime::TreeTarget& target : targets_)
    scribble_on(*target.out.buffer, target.out.range().lo, target.out.range().hi);
  for (const Piece& piece : pieces_)
    if (!piece.send) scribble_on(*piece.buffer, piece.lo, piece.hi);
}

void NativeScatter::recycle() { owner->give_back(*this); }

bool NativeScatter::waits_on(int rank) const {
  if (state != State::started || summed_ || is_here(rank)) return false;
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) { return piece.peer == rank; });
}

// The first member whose piece is missing. A sum is one event, so a member that is not here yet has brought nothing.
runtime::Transport::Unmatched NativeScatter::unmatched() const {
  runtime::Transport::Unmatched out;
  out.pending = state == State::started;
  out.op = op;
  if (!out.pending || summed_) return out;
  for (const Piece& piece : pieces_) {
    if (is_here(piece.peer)) continue;
    out.peer = piece.peer;
    out.waits_for_send = !piece.send;
    break;
  }
  return out;
}

}  // namespace seeksim::sim
