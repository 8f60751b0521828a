// StateTransfer: brings the training state to where the members need it: to its places in a new world, to ranks that
// join, from ranks that leave, and after each step updated parameters from their owners to all their users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/decide/membership.h"
#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/saves.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class StateTransfer {
 public:
  StateTransfer(Workbench& bench, Tensors& tensors, World& world, CommitVote& vote, Saves& saves)
      : bench_(bench), tensors_(tensors), world_(world), vote_(vote), saves_(saves) {}

  // Why a world cannot go on with what `givers` hold, of whom joiners hold nothing; empty: it can. The same on all.
  std::string lost(const Roster& roster, const std::vector<int>& joiners, const std::vector<int>& givers) const;
  bool holds_shards() const;

  // In a world that is connected: shards, and all that joiners lack, come from those who hold them, or from a
  // checkpoint.
  void settle(const std::vector<int>& joiners);
  // Shards to where they are in a world without some of its members.
  void give_to(const Roster& next);
  // The world in which shards were cut; a rank that joins gets it.
  Roster shards() const;
  void take_over(const HandOver& given);
  bool joining() const { return joining_; }  // it has been taken in, and does not have the others' state yet

  // A step is committed. updated: somewhere there was an update, so that parameters are to be published. The step is
  // committed: a rank that fails here is caught up in the next world, whose members publish again.
  void step_committed() { published_ = tensors_.keeper() == nullptr; }
  void publish_step(bool updated);
  void publish_world();
  // All holders have the last step's parameters.
  bool published() const { return published_; }

 private:
  void connect_shards();
  void lay_out_shards();
  void move_shards(const std::vector<int>& members);
  void bring_replicated();
  void publish(bool new_world);
  void publish_bucket(Index lo, Index hi);

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  CommitVote& vote_;
  Saves& saves_;
  Roster laid_out_;           // where a model is on several ranks: the world that shards were cut for
  std::vector<int> joiners_;  // of this world: they held nothing when it began
  bool joining_ = false;
  bool published_ = false;
};

}  // namespace seeksim::runtime
