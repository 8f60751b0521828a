// ExpertGroup: ranks that divide the experts of each layer among them, while each has samples of its own. A rank sends
// the rows of its tokens to the ranks of their experts and gets back what the experts made of them: two all-to-alls a
// layer in the forward pass, two in the backward pass. A sample's rows for one rank take a fixed number of places, as
// many as can be needed (kernels/experts.h), so that no message's size depends on a value.
//
// Packed rows go by rank, then sample, then place. Those that arrive go by the rank whose samples they are, likewise;
// so the samples of the whole group follow each other there, each with its places.
//
// Launches are on the compute queue, exchanges on a queue of their own, with events between.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/launch/typed_ops.h"

namespace seeksim::runtime {

struct ExpertShape {
  Index samples_max = 0;  // of a rank's micro-batch
  Index tokens = 0;       // of a sample
  Index choices = 0;      // experts of a token
  Index experts = 0;      // of a layer
  Index capacity = 0;     // rows of a sample that an expert takes at most; 0: all
};

// The shape for a plan's model and micro-batches of samples_max.
ExpertShape expert_shape(const TrainPlan& plan, Index samples_max);

class ExpertGroup {
 public:
  ExpertGroup(const ExpertShape& shape, int ranks, int me, const PlantedBug& bug);

  // A new world: its members are the ranks of the group, in order. Collective over them; blocks. group: see
  // Communicator. of_gradients: likewise, of a second one; -1: there is none.
  void connect(Rank& rank, std::uint32_t epoch, const std::vector<int>& members, TimeNs timeout_ns, int group,
               int of_gradients = -1);
  void disconnect();
  Communicator* communicator() { return comm_ ? &*comm_ : nullptr; }
  // Of the same ranks, for another queue: what gathers gradients while rows go to experts and back.
  Communicator* gradients() { return gradients_ ? &*gradients_ : nullptr; }

  int ranks() const { return ranks_; }
  int me() const { return me_; }
  int own_experts() const { return int(shape_.experts) / ranks_; }
  // Rows of a sample that one rank may get.
  Index places() const { return places_; }
  // Rows that this rank packs, and rows that arrive here, of a micro-batch at most.
  Index rows_max() const { return shape_.samples_max * ranks_ * places_; }

  // The micro-batch that the following passes are about: each rank's samples of the step, and the blocks of them that
  // are nodes of its tree, by rank.
  void begin(std::span<const SampleRange> samples, std::span<const std::vector<SampleRange>> blocks);
  Index packed() const { return samples_[std::size_t(me_)].size() * ranks_ * places_; }  // rows
  Index arrived() const { return arrived_samples() * places_; }                          // rows
  Index arrived_samples() const;
  const std::vector<SampleRange>& samples() const { return samples_; }  // by rank
  // The blocks of the samples that arrive, of the whole group: where they are among those samples.
  const std::vector<SampleRange>& blocks() const { return blocks_; }
  // The same as samples of the step.
  const std::vector<SampleRange>& blocks_of_step() const { return blocks_of_step_; }

  // What goes together: so many values a row, packed() rows of them or arrived() ones.
  struct Rows {
    AnyVec packed;
    AnyVec arrived;
  };
  // packed -> arrived, of all ranks. The launches of `launch` that follow come after it.
  void dispatch(Launcher& launch, const char* tensor, const char* site, std::span<const Rows> all);
  // arrived -> packed: back to whose rows they are.
  void give_back(Launcher& launch, const char* tensor, const char* site, std::span<const Rows> all);

 private:
  AnyVec block(AnyVec packed, int rank) const;     // what goes to a rank, or comes back from it
  AnyVec stretch(AnyVec arrived, int rank) const;  // what comes from a rank, or goes back to it
  void exchange(Launcher& launch, const char* tensor, const char* site);
  static void copy_own(Launcher& launch, const char* tensor, AnyVec from, AnyVec to);
  void add(int rank, bool send, AnyVec values);

  ExpertShape shape_;
  int ranks_, me_;
  PlantedBug bug_;
  Index places_ = 0;
  std::vector<SampleRange> samples_;
  std::vector<SampleRange> blocks_, blocks_of_step_;
  std::optional<Communicator> comm_, gradients_;
  Queue* queue_ = nullptr;
  std::vector<Piece> pieces_;
};

// While it lives, launches work on what arrived: also on a rank without samples of its own, if others of its group have
// some. group: null does nothing.
class ForTheGroup {
 public:
  ForTheGroup(Launcher& launch, const ExpertGroup* group) : launch_(launch), was_(launch.muted()) {
    if (group != nullptr) launch_.mute(group->arrived_samples() == 0);
  }
  ForTheGroup(const ForTheGroup&) = delete;
  ForTheGroup& operator=(const ForTheGroup&) = delete;
  ~ForTheGroup() { launch_.mute(was_); }

 private:
  Launcher& launch_;
  bool was_;
};

}  // namespace seeksim::runtime
