// ShardKeeper: what a member owns of the training state (parameters, reduced gradients, moments of its shard), copies
// of what others own (copy_places.h), and the way from one world to another. An owner and its copies are updated alike,
// so a copy costs memory and one message a step: the reduced gradient. Where shards live inside groups
// (shard_groups.h), an owner of the same shard in another group is a copy that costs nothing; positions are those in
// this rank's group.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/layout/copy_places.h"
#include "runtime/layout/partition.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/zero/optimizer.h"
#include "runtime/zero/speculative_step.h"
#include "runtime/zero/swapped_parameters.h"
#include "runtime/zero/swapped_state.h"

namespace seeksim::runtime {

// One shard's state on one rank. Views are the shard's; buffers may be elsewhere. Where the optimizer is offloaded all
// but `on_device` and `frozen` is memory of the host.
struct ShardState {
  int owner = 0;  // position in the group: the number of the shard
  ShardInfo shard;
  VecView<float> masters;  // fp32, what the optimizer updates; in fp32 the parameters; none where there are no masters
  AnyVec parameters;       // what the optimizer writes for computing
  AnyVec on_device;  // what is computed with: the same, or a copy of it; none of another rank's shard. Where parameters
                     // are offloaded, in memory of the host too
  VecView<float> sums;  // reduced gradients in fp32; the gradients themselves where those are fp32
  AnyVec gradients;     // reduced, in the type in which they are held
  ShardInfo frozen_shard;
  AnyVec frozen;  // parameters, never changed
  std::optional<Optimizer> optimizer;
  std::vector<BufferPtr> buffers;
  // Offloaded to nvme: what defines the shard, and the moments, are in files, and in memory (masters, parameters, the
  // optimizer's) only while they are loaded.
  std::unique_ptr<SwappedState> files;
  std::vector<BufferPtr> loaded;
  bool newer_in_memory = false;                  // than in the files
  std::unique_ptr<SpeculativeStep> speculative;  // where the step is made before it is known to hold; of no copy
  // Where parameters to compute with are in a file: `on_device` is those that stay in memory of the host, or, until
  // settle(), all of them. None of another rank's shard.
  std::unique_ptr<SwappedParameters> swapped;
  AnyVec resident;        // those that stay
  BufferPtr all_of_them;  // until settle(), where nothing else holds them
  bool parameters_settled = true;

  bool is_loaded() const { return files == nullptr || !loaded.empty(); }

  static ElementType weights_type(const PrecisionPlan& precision) {
    return precision.master_weights ? ElementType::f32 : precision.compute;
  }
  StateInUse in_use() { return {shard.size, masters, parameters, sums, gradients, *optimizer}; }
  // What defines the shard: the masters, or where there are none the parameters.
  AnyVec weights() const { return masters.buffer != nullptr ? AnyVec(masters) : parameters; }
};

// After the commit point this rank could not bring its files to the new state. Its peers' copies have taken the step,
// so it leaves, and they go on.
struct DiskLost {
  SeamError error;
};

// A folder of swap files that belongs to no living process.
struct StaleFiles : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ShardKeeper {
 public:
  // Fills a shard's parameters, wherever they are, with their initial values.
  using Initialise = std::function<void(const std::vector<ParameterPiece>&, AnyVec)>;

  ShardKeeper(Rank& rank, const TrainPlan& plan, const Parameters& parameters);

  // Where parameters or gradients are replicated: their flat space, of which the shard is a part. Without a buffer: of
  // its own.
  void within(AnyVec parameters, AnyVec gradients);

  // The first layout, or a new one while nothing is committed.
  void lay_out(Launcher& launch, const std::vector<int>& members, const Initialise& initialise);
  bool laid_out() const { return own_ != nullptr; }
  bool laid_out_for(const std::vector<int>& members) const { return laid_out() && members == members_; }
  // Called on a rank that joins: members hold the shards (none before the first commit); optimizer_steps is Adam's t.
  // The rank holds nothing, and removes the files of an earlier incarnation.
  void begin_with(std::vector<int> members, std::int64_t optimizer_steps);
  // Why these survivors cannot go on: a shard that none of them holds. Empty: they can.
  std::string lost(const std::vector<int>& survivors) const;
  // The same of another stage or way, whose shards and copies were with `before`. holds_some: whether an owner has
  // anything to lose; without it each has.
  std::string lost(const std::vector<int>& before, const std::vector<int>& survivors,
                   const std::function<bool(int owner)>& holds_some = {}) const;
  // Brings every shard to its owner among `members`, from those members of `comm` who hold one or a copy; joiners hold
  // nothing. A rank that is no member any more only gives. Enqueued on the communication queue; the old layout stays
  // untouched until adopt().
  Op redistribute(Communicator& comm, const std::vector<int>& members, const std::vector<int>& joiners);
  bool adopt();  // false: this rank has no shard in the new layout, and keeps the old one
  // After adopt(): parameters to compute with, from the masters that came. launch: of the optimizer's queue.
  void renew_parameters(Launcher& launch);

  const Partition& partition() const { return *partition_; }
  ShardState& own() { return *own_; }
  const ShardState& own() const { return *own_; }
  const std::vector<std::unique_ptr<ShardState>>& copies() const { return copies_; }  // that are kept here, by owner
  // Calls each for the own shard and for each copy.
  template <class Each>
  void for_each_state(Each each) {
    for (ShardState* state : all()) each(*state);
  }
  const std::vector<int>& members() const { return members_; }
  bool keeps_copies() const {
    const ShardGroups groups = groups_of(members_);
    return groups.copies(copies_wanted_) > 0 && groups.size > 1;
  }
  bool offloaded() const { return home_ != Space::device; }
  bool swaps() const { return plan_.layout.offload.optimizer.home == Home::nvme; }
  bool swaps_parameters() const { return plan_.layout.offload.parameters.home == Home::nvme; }
  // Where state is in files: brings all of it into host memory; writes what is newer there, and gives that memory back.
  // Nothing may be pending that uses it.
  void load();
  void settle();
  void remove_files();
  // Sends the reduced gradients of the own shard to its copies. comm: of the group. Enqueued on the communication
  // queue.
  Op send_gradients(Communicator& comm, std::int64_t step);
  // All memory that step() will need: asked for while the step can still be given up.
  void prepare_step();
  // From the fp32 sums to gradients as they are held: rounded once, at the root. Enqueued.
  void hold_gradients(Launcher& launch);
  // Zeroes the gradients of all.
  void clear_gradients(Launcher& launch);
  // Where the step is made before it is known to hold: with which constants, as things stand; which reduced gradients
  // of the own shard are there before the others. launch: of the host's processor.
  bool speculates() const { return own_->speculative != nullptr; }
  void speculate(Launcher& launch, float grad_factor, double lr);
  void gradients_came(Launcher& launch, Index at, Index n);
  // A planted bug: what was guessed becomes the state, although the step is skipped.
  void keep_guess(Launcher& launch);
  // One step of the optimizer on the own shard and on the copies. launch: of the host's processor where it is
  // offloaded; what it updated is then on its way to the device.
  void step(Launcher& launch, float grad_factor, double lr);

 private:
  struct Layout {
    std::vector<int> members;  // launch ranks
    std::unique_ptr<Partition> partition;
    std::unique_ptr<ShardState> own;
    std::vector<std::unique_ptr<ShardState>> copies;
    std::vector<int> keepers;  // positions: of copies of the own shard
  };

  ShardGroups groups_of(const std::vector<int>& members) const {
    return shard_groups(plan_.layout, std::max(int(members.size()), 1));
  }
  // The group of a position on the data axis.
  std::vector<int> group_at(const std::vector<int>& members, int position) const {
    const ShardGroups groups = groups_of(members);
    return groups.members(members, groups.group_of(position));
  }
  int position_in(const std::vector<int>& members) const;
  std::vector<ShardState*> all() const;  // the own shard and the copies
  // group: launch ranks, of `groups` groups.
  CopyPlaces places(const std::vector<int>& group, const ShardGroups& groups) const;
  // Of each shard: its owners in all groups, and all who keep a copy.
  struct Holders {
    std::vector<int> owners, keepers;  // launch ranks
  };
  std::vector<Holders> holders_of(const std::vector<int>& members) const;

  ShardState make(int member, const Partition& partition, bool copy);
  Optimizer make_optimizer(ShardInfo shard, const Partition& partition, MemoryTag tag) const;
  bool shards_parameters() const { return flat_parameters_.buffer == nullptr; }
  AnyVec own_space(ShardState& state, Index n, ElementType type, const char* name, MemoryTag tag, Space space);
  void place_parameters(ShardState& state, bool copy);
  void place_swapped(ShardState& state, const std::vector<ParameterPiece>& pieces);
  void settle_parameters();
  std::vector<std::string> folders() const;
  void make_loaded(ShardState& state);
  void refuse_stale_files();
  void remove_leftovers(const std::string& folder);
  Event send_on(Launcher& launch, AnyVec updated, Index at);
  void step_in_windows(Launcher& launch, float grad_factor, double lr);
  void retire_files();
  void place_masters(ShardState& state, bool copy);
  void make_layout(const std::vector<int>& members);
  bool in_next() const { return next_.own != nullptr; }
  struct Move;
  std::vector<Move> moves(const std::vector<int>& givers);
  void carry(Communicator& comm, std::span<const Move> moves, ShardInfo window, Op& op);
  void open_passage(Index floats);
  AnyVec passage(Index n, ElementType type);
  Index window_elements() const;
  Index window_of_parameters() const;
  Event to_device(Launcher& launch, AnyVec updated, Index at);

  Rank& rank_;
  const TrainPlan& plan_;
  const Parameters& parameters_;
  int copies_wanted_;
  Space home_;  // of the optimizer's state and the gradients
  AnyVec flat_parameters_, flat_gradients_;

  std::vector<int> members_;  // of the data axis
  std::unique_ptr<Partition> partition_;
  std::unique_ptr<ShardState> own_;
  std::vector<std::unique_ptr<ShardState>> copies_;
  std::vector<int> keepers_;  // positions
  Layout next_;
  bool joined_ = false;
  std::int64_t joined_at_ = 0;                          // Adam's t when this rank joined
  int layouts_ = 0;                                     // made so far; in the names of files
  std::vector<std::unique_ptr<SwappedState>> retired_;  // files that settle() makes needless
  std::vector<std::unique_ptr<SwappedParameters>> retired_parameters_;
  BufferPtr window_;  // parameters that the optimizer updates, on their way to their file
  std::vector<Piece> pieces_;
  BufferPtr passage_;              // on the device: what goes between the host and other ranks passes through it
  std::size_t passage_taken_ = 0;  // bytes
};

}  // namespace seeksim::runtime
