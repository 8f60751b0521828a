// The parts of a trainer, each made as the trainer makes it, on one rank whose control plane answers as a test says.
// For tests of one part alone: nothing else runs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/planting.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"
#include "tests/support/plans.h"

namespace seeksim::test {

// Answers each vote: by default with this rank's own ballot, as if it were alone.
class AnsweringControl final : public ControlPlane {
 public:
  std::uint32_t epoch() const override { return epoch_; }
  std::vector<int> members() const override { return members_; }
  void revoke(std::uint32_t, const Op&, ErrorKind) override { revoked_now = true; }
  bool revoked(std::uint32_t) const override { return revoked_now; }
  Agreement agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs) override {
    asked.push_back(op);
    ballots.push_back(ballot);
    Agreement agreement;
    agreement.epoch = epoch;
    agreement.members = {0};
    agreement.ballots = {ballot};
    if (answer) answer(agreement);
    return agreement;
  }
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override {
    epoch_ = epoch;
    members_.assign(members.begin(), members.end());
  }

  std::function<void(Agreement&)> answer;  // changes the answer, which holds this rank's ballot alone
  std::vector<Op> asked;
  std::vector<Ballot> ballots;  // that this rank put on the table
  bool revoked_now = false;

 private:
  std::uint32_t epoch_ = 0;
  std::vector<int> members_ = {0};
};

// Launch rank 0 of `ranks`. connect() makes the communicators; what is sent over them arrives nowhere.
struct TrainerParts {
  explicit TrainerParts(TrainPlan of = tiny_plan(), int ranks = 1, int bug_seen_by = 0)
      : plan(std::move(of)),
        rank{0, ranks, seams.clock, seams.device, seams.transport, seams.storage, control, seams.recorder},
        bench(rank, plan, observer, plant(plan, bug_seen_by)),
        tensors(bench, {ranks, {}}),
        world(bench, {ranks, {}}),
        vote(bench, world, tensors.parameters()) {
    Roster all{{}, {ranks, {}}};
    for (int i = 0; i < ranks; ++i) all.members.push_back(i);
    control.enter_epoch(0, all.members);
    world.seat(all);
    world.connect(0);
  }

  // Memory for all that is replicated, and its first values.
  void allocate_tensors() {
    tensors.allocate_flat();
    tensors.allocate_state();
    tensors.draw();
    tensors.reset_optimizer();
  }

  OneRank seams;
  AnsweringControl control;
  TrainPlan plan;
  Rank rank;
  KeepingObserver observer;
  Workbench bench;
  Tensors tensors;
  World world;
  CommitVote vote;
};

// A ballot of another member is added to the answer.
inline void add_ballot(Agreement& agreement, int member, const Ballot& ballot) {
  agreement.members.push_back(member);
  agreement.ballots.push_back(ballot);
}

}  // namespace seeksim::test
