// GatheredWeights: the parameters where they are sharded (ZeRO 3). A module's parameters are gathered from their owners
// before it is used and given up after; what comes next is gathered ahead, on a queue of its own. Which modules follow
// each other in a pass is known, so nothing has to be recorded first and all ranks decide alike.
//
// Where groups of ranks keep all parameters once more (ZeRO++'s hpZ), forward gathers from all ranks and leaves each
// rank its secondary shard; recomputation and backward gather those inside the group.
//
// Where weights are quantised (ZeRO++'s qwZ), owners send 8 bits an element and a scale a block, and every rank
// computes with what these are worth, its own part included, and that of parameters that stay gathered. Shards stay as
// they are; secondary ones hold what travelled, so that backward has the bits of forward.
#pragma once

#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/layout/partition.h"
#include "runtime/layout/segments.h"
#include "runtime/model/model.h"
#include "runtime/zero/code_wire.h"
#include "runtime/zero/swapped_parameters.h"

namespace seeksim::runtime {

class GatheredWeights final : public Weights {
 public:
  GatheredWeights(Rank& rank, const Parameters& parameters, const TrainPlan& plan);

  // A new world. shard, frozen: this member's parameters. files: where the rest of the shard is; null: nothing is.
  // group: of the ranks that keep all parameters once more; null: none do.
  void connect(Communicator& comm, const Partition& partition, AnyVec shard, AnyVec frozen, SwappedParameters* files,
               Communicator* group = nullptr);
  void begin_step(Launcher& compute, std::int64_t step);
  // A pass of a piece of the model; weights: the second part of backward, where that is in two. Where the rank has all
  // of the model, the backward pass follows the forward pass of the same micro-batch, and what both use need not be
  // gathered twice.
  enum class Pass : std::uint8_t { forward, backward, weights };
  void begin_pass(int micro_batch, Pass pass, std::size_t piece);
  // A forward pass that no backward pass follows. It leaves secondary shards as they are.
  void begin_evaluation(int micro_batch, std::size_t piece);
  // Parameters that stay gathered, from their owners, after the update of `step`. Enqueued. Frozen ones only in a new
  // world.
  Event refresh_persistent(Queue& queue, std::int64_t step, bool new_world);
  void forget();  // after a failure: whatever was gathered or under way

  void fetch(int module) override;
  void release(int module) override;
  AnyVec of(const ParameterInfo& parameter) override;

  // All that has been gathered and may still be used, for those who look for poison.
  std::vector<AnyVec> held() const;
  Index live_elements() const { return now_.live; }
  const Op& last_op() const { return last_; }
  bool has_persistent(bool new_world) const { return !kept_.empty() || (new_world && !kept_frozen_.empty()); }
  Buffer* persistent() const { return persistent_.get(); }

 private:
  struct Module {
    std::vector<Stretch> stretches;
    std::vector<Stretch> first_here;  // those of parameters that no module before it has
    CodeWire wire;                    // where weights are quantised
    Index size = 0;
    const char* name = "";
    int buffer = -1;  // where it is gathered; -1: nowhere
    Event gathered;
    Event kept;  // this rank's part of it is in the secondary shard
    bool is_kept = false;
  };
  // Who holds which part of the flat space, and this rank's.
  struct Owners {
    Communicator* comm = nullptr;
    const Partition* partition = nullptr;
    AnyVec shard, frozen;
    SwappedParameters* files = nullptr;
  };
  struct Space {
    BufferPtr buffer;
    Index size = 0;
    bool taken = false;
    Event free;  // its last user on the compute queue is through
  };

  void add_module(const std::vector<const ParameterInfo*>& parameters);
  void add_stretch(std::vector<Stretch>& stretches, Index offset, Index size, Index at) const;
  Event gather(Launcher& launch, Op op, const std::vector<Stretch>& stretches, Buffer& into, const Owners& from,
               const CodeWay& way);
  void allocate_wires();
  CodeWay way_of(const CodeWire& wire, const BufferPtr& bytes, bool exact) const;
  void keep_quantised(Launcher& launch, const Op& op, const std::vector<Stretch>& stretches, Buffer& from);
  void connect_secondary(Communicator& group);
  void keep_secondary(Module& module);
  void keep_secondary_bytes(Module& module);
  VecView<std::byte> secondary_bytes(const ShardInfo& own) const;
  bool is_in_a_module(Index element) const;
  void gather_for(std::size_t place);
  void gather_into(Module& module, std::size_t place);  // its space
  int take_space(Index size);
  void gather_ahead();
  void read_ahead();
  void bring_own(Launcher& launch, const Op& op, Index at, AnyVec to);
  bool keeps(int module) const;
  Phase phase_at(std::size_t place) const { return now_.trains ? sequence_[place].phase : Phase::evaluation; }

  Rank& rank_;
  ZeroPlan plan_;
  ElementType type_;  // of parameters to compute with
  PlantedBug bug_;
  std::vector<Module> modules_;
  const bool every_module_;  // this rank has all of the model
  struct Passes {
    std::vector<ModuleUse> forward, backward, weights;
  };
  std::vector<Passes> passes_;               // of pieces
  std::vector<ModuleUse> both_;              // of a training micro-batch, where the rank has all of the model
  std::vector<ModuleUse> sequence_;          // of what is under way: a pass, or (whole) both
  Index trainable_;                          // elements of the flat space; frozen ones behind
  std::vector<Stretch> kept_, kept_frozen_;  // persistent parameters, in persistent_
  BufferPtr persistent_;
  std::vector<Space> spaces_;

  const Parameters& parameters_;
  Owners all_;                                    // of the primary shards
  std::optional<Owners> secondary_;               // of the secondary ones
  std::optional<const Partition> secondary_cut_;  // that they are
  struct SecondaryMemory {
    BufferPtr shard, frozen;
  } secondary_memory_;
  Launcher launch_;  // on the queue of the gathers
  Launcher* compute_ = nullptr;
  struct UnderWay {
    std::int64_t step = 0;
    int micro_batch = -1;
    bool trains = true;
    std::size_t at = 0;  // in sequence_
    int current = -1;
    Index live = 0;
  } now_;
  std::vector<Piece> pieces_;
  struct Quantised {
    bool on = false;
    kernels::CodeForm form;
    CodeWire persistent;             // of parameters that stay gathered, trained and frozen
    CodeWire flat;                   // of the flat space: where its blocks lie in secondary shards
    BufferPtr bytes, of_persistent;  // gathers follow one another on their queue, those of persistent ones on another
  } quantised_;
  Op last_;
};

}  // namespace seeksim::runtime
