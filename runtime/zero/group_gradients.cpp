// Everything is on the communication queue, between a bucket's last launch of backward and its reduction, so that no
// event stands between them.
#include "runtime/zero/group_gradients.h"

#include <utility>

#include "kernels/check.h"
#include "kernels/tree.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::TreeNode;
using kernels::Vec;

GroupGradients::GroupGradients(Rank& rank, const GradientSplit& split, ExpertGroup& group, const PlantedBug& bug)
    : rank_(rank), split_(split), group_(group), bug_(bug) {}

void GroupGradients::begin(Index leaves, std::vector<std::vector<TreeNode>> nodes) {
  SEEKSIM_CHECK_EQ(int(nodes.size()), group_.ranks());
  leaves_ = leaves;
  nodes_ = std::move(nodes);
}

Index GroupGradients::slots() const {
  const Slots last = slots_of(group_.ranks() - 1);
  return last.first + last.count;
}

GroupGradients::Slots GroupGradients::slots_of(int rank) const {
  Slots slots;
  for (int before = 0; before < rank; ++before) slots.first += Index(nodes_[std::size_t(before)].size());
  slots.count = Index(nodes_[std::size_t(rank)].size());
  return slots;
}

bool GroupGradients::of_experts(Index lo) const { return split_.run_of(lo).experts; }

GroupGradients::Slots GroupGradients::filled(Index lo) const {
  return of_experts(lo) ? Slots{0, slots()} : slots_of(group_.me());
}

// What is no expert's, from the other ranks of the group.
void GroupGradients::gather(Launcher& launch, std::span<const VecView<float>> slots) {
  Communicator& comm = *group_.gradients();
  pieces_.clear();
  const auto add = [&](int rank, bool send, Slots which) {
    for (const VecView<float>& slot : slots.subspan(std::size_t(which.first), std::size_t(which.count))) {
      const Range r = slot.range();
      pieces_.push_back({comm.members()[std::size_t(rank)], send, r.buffer, r.lo, r.hi, nullptr, r.type});
    }
  };
  for (int rank = 0; rank < group_.ranks(); ++rank) {
    if (rank == group_.me()) continue;
    add(rank, true, slots_of(group_.me()));
    add(rank, false, slots_of(rank));
  }
  Op op = launch.last();
  op.kind = OpKind::group_gather;
  op.tensor = "gradients of a group";
  op.site = SEEKSIM_SITE;
  comm.exchange(launch.queue(), op, pieces_);
}

std::vector<VecView<const float>> GroupGradients::bring_together(Launcher& launch, const Bucket& bucket,
                                                                 std::span<const VecView<float>> slots) {
  if (slots.empty()) return {};  // no rank of the group has samples
  if (!of_experts(bucket.lo) || bug_.is(Bug::experts_scattered_over_all)) gather(launch, slots);
  struct Held {
    TreeNode node;
    VecView<float> values;
  };
  std::vector<Held> held;
  std::size_t slot = 0;
  for (const std::vector<TreeNode>& of_rank : nodes_) {
    for (const TreeNode node : of_rank) {
      held.push_back({lifted(node, leaves_), slots[slot++]});
      while (held.size() > 1) {
        Held &older = held[held.size() - 2], &younger = held.back();
        if (older.node.index % 2 != 0 || younger.node != TreeNode{older.node.level, older.node.index + 1}) break;
        launch(
            bucket.name, SEEKSIM_SITE, memory_cost(3 * older.values.n, 1.0 / 3),
            [](Lane lane, Vec<const float> right, Vec<float> left) { kernels::tree_add(lane, left, right, left); },
            reads(younger.values), older.values);
        older.node = lifted({older.node.level + 1, older.node.index / 2}, leaves_);
        held.pop_back();
      }
    }
  }
  std::vector<VecView<const float>> roots;
  for (const Held& root : held) roots.push_back(reads(root.values));
  return roots;
}

}  // namespace seeksim::runtime
