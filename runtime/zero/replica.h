// Replica: the ranks that hold one copy of the model together, where it is cut into stages and ways; and what they have
// to bring together in a step although each has only its part: the norm of all gradients, the loss, the gradient of a
// parameter that two stages share, and, for those who hand out a model, whole parameters.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/layout/grid.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/partition.h"

namespace seeksim::runtime {

class Replica {
 public:
  Replica(Rank& rank, const TrainPlan& plan, const Parameters& own);

  // A new world. Collective over the replica, and over the two stages that share a parameter; blocks.
  void connect(const Grid& grid, const GridPlace& place, std::uint32_t epoch);
  void disconnect();
  std::vector<Communicator*> communicators();

  // ---- norms. Each rank fills its own: norm^2 of its part of each trainable parameter, in its order, then the loss.
  // Of experts whose slabs are on several ways, norm^2 of each one that is here.
  VecView<float> own_norms();
  struct Sum {
    float norm2 = 0;
    float loss = 0;
  };
  // Gathers from all ranks of the replica. Adds the parts of each parameter's norm^2 by the tree over its slabs, then
  // all parameters by the tree in registration order. The loss comes from the rank with the head. Waits.
  Sum gather_norms(Launcher& compute, bool has_values);

  // ---- a parameter that the first and the last stage use
  bool shares() const { return own_.shares_across_stages(); }
  // sums: this rank's reduced gradients of elements [first, first + sums.n) of the parameter, as the data axis of this
  // rank's stage cuts it into `shards` (of every member; all of it where nothing is cut). Afterwards they are
  // root(embedding use) + root(head use). Enqueued on `launch`'s queue.
  // home: where the sums are in the host's memory, what copies and what adds there.
  struct AtHome {
    Launcher& copies;
    Launcher& host;
    Space space;
  };
  Op add_tied(Launcher& launch, std::int64_t step, VecView<float> sums, Index first, const AtHome* home = nullptr);

  // ---- whole parameters. values: of parameter number `p`, with this rank's part in its place; afterwards all of it.
  Op gather_whole(Queue& queue, std::int64_t step, const ParameterInfo& whole, AnyVec values);

 private:
  struct Part {                            // of a member of the replica, by (stage, way)
    std::vector<std::uint32_t> trainable;  // numbers
    Index at = 0;                          // of its norms in norms_
    std::vector<Index> norms;              // where those of each begin, behind `at`; last where the loss is
  };
  const Parameters& of_stage(int stage) const { return *stages_[std::size_t(stage)]; }
  int stage_of(std::uint32_t number) const;  // the first that has it
  // Of all parameters, squared; experts_of: with the experts of this rank of an expert group alone.
  float norm2_of_all(const kernels::OnHost<float>& norms, std::optional<int> experts_of) const;
  float norm2_of(const kernels::OnHost<float>& all, int stage, std::size_t trainable,
                 std::optional<int> experts_of) const;
  Op exchange_tied(Launcher& launch, std::int64_t step, VecView<float> sums, VecView<float> theirs, Index first);
  void add_uses(Launcher& launch, VecView<float> theirs, VecView<float> sums) const;
  VecView<float> room_for(BufferPtr& buffer, Index n, Space space, const char* name);

  Rank& rank_;
  const TrainPlan& plan_;
  const Parameters& own_;
  std::vector<std::unique_ptr<const Parameters>> stages_;  // of way 0
  std::vector<Part> parts_;
  BufferPtr norms_;  // of all members' parts, each followed by its loss
  BufferPtr other_;  // the other stage's sums of a shared parameter,
  // and, where those here are in the host's memory: what is sent, and what came.
  BufferPtr sent_, arrived_;

  std::optional<Communicator> comm_, tied_;
  GridPlace place_;
  int replicas_ = 1;
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
