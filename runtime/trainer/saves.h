// Saves: when a checkpoint is due, which of this rank's memory is in it, and how a run begins with one. What a rank
// writes follows from its place in the grid, so that all of them together write everything once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/checkpoint/node_files.h"
#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class Saves final : public VoteRider {
 public:
  Saves(Workbench& bench, Tensors& tensors, World& world, CommitVote& vote);

  // After a commit: begins a checkpoint that is due, unless one is under way, which is then followed by it.
  void save_if_due();
  // Waits until all that is due or under way is complete, or given up. All members alike.
  void finish();
  // Writes one now, and waits.
  void save();
  bool on() const { return writer_.has_value(); }
  bool under_way() const { return writer_ && writer_->under_way(); }
  // The communicators of a read that is under way. The caller aborts them before give_up().
  std::vector<Communicator*> communicators();
  // After a failure, with every queue empty.
  void give_up();
  // In the world after that.
  void look_again();

  // The first world begins with the newest checkpoint that can be used and holds at most so many steps; where there
  // never was one, from the beginning. -1: with none, as the members do that this rank joins.
  void begin_with(std::int64_t steps_most);
  bool loads() const { return load_most_ >= 0; }  // that is still to be done
  std::int64_t loads_at_most() const { return load_most_; }
  // Throws StaleFiles where the run does not begin with a checkpoint, and there are some.
  void refuse_another_run();
  // Where nothing is durable yet that could be lost: what is read goes where it belongs at once. Throws NoCheckpoint
  // where there are some, and all are bad. true: something was loaded.
  bool load();

  void tell(Vote about, Ballot& own) override;
  void hear(Vote about, const Agreement& agreement, bool all_good) override;

 private:
  void begin();
  RunState run_state() const;
  std::vector<SavedPiece> pieces_to_save() const;
  std::vector<PlaceToFill> places_to_fill();
  bool is_written_elsewhere(const ParameterInfo& parameter) const;
  bool agree_on_one(CheckpointReader& reader, std::string& tried);

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  CommitVote& vote_;
  std::optional<CheckpointWriter> writer_;
  std::optional<NodeFiles> nodes_;  // while a checkpoint is read of nodes that have files of their own
  bool due_ = false;
  std::int64_t load_most_ = -1;  // steps, of the checkpoint to begin with; -1: with none
  bool looked_for_others_ = false;
};

}  // namespace seeksim::runtime
