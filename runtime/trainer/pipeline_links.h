// PipelineLinks: what travels between the stages of a pipeline. A link joins a stage with the next one (the last with
// the first, where stages have several pieces), and each direction of it has a communicator of two and a queue of its
// own at either end: messages of one kind stay in order, and none waits behind one of another kind. What orders them
// with the computing is events, one name each (edges.h).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/layout/grid.h"
#include "runtime/model/model.h"
#include "runtime/trainer/workbench.h"

namespace seeksim::runtime {

// A micro-batch on its way through a piece: its activations, and what has happened to them. Later events of one kind
// replace earlier ones.
struct InFlight {
  Model* model = nullptr;
  int micro_batch = -1;  // -1: free
  std::vector<PackedDocument> documents;
  Event arrived, gone_forward, left;  // activation received; forward pass over; activation sent
  Event gradient_arrived, gone_back, gradient_left;
  Event over;  // nothing of it is needed any more
};

class PipelineLinks {
 public:
  // Collective over each link; blocks.
  PipelineLinks(Workbench& bench, const Grid& grid, const GridPlace& place, std::uint32_t epoch);

  // The four messages of a micro-batch. Work that is enqueued here waits for its inputs; passes wait for its results in
  // before_forward and before_backward.
  void receive_activation(InFlight& flight, const Launcher& compute, Index samples);
  void send_activation(InFlight& flight, const Launcher& compute, Index samples);
  void receive_gradient(InFlight& flight, const Launcher& compute, Index samples);
  void send_gradient(InFlight& flight, const Launcher& compute, Index samples);
  void before_forward(const InFlight& flight, Launcher& compute) const;
  void before_backward(const InFlight& flight, Launcher& compute) const;

  // The communicators that exist, for finding the operation that is stuck.
  std::vector<Communicator*> communicators();

 private:
  enum End : std::size_t { from_before, to_next, from_next, to_before, kEnds };
  // losses: what goes along with an activation; else empty.
  Event message(End end, const Launcher& compute, AnyVec values, int micro_batch, VecView<float> losses = {});

  Workbench& bench_;
  std::array<std::optional<Communicator>, kEnds> links_;
};

}  // namespace seeksim::runtime
