// Workbench: what every part of a trainer works with: the rank and its seams, the plan, the observer, the progress of
// the run, and the two launchers. It decides nothing.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/decide/progress.h"
#include "runtime/detect/observer.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/quantised_groups.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/rank.h"
#include "runtime/trainer/planted.h"

namespace seeksim::runtime {

struct Workbench {
  Workbench(Rank& of_rank, const TrainPlan& of_plan, Observer& watching, std::unique_ptr<Planted> bugs);

  Rank& rank;
  const TrainPlan& plan;  // the memory ladder may change its layout between two worlds
  Observer& observer;
  const std::unique_ptr<Planted> planted;
  const Placement placement;
  LossScale scale;  // of the step that is under way
  Progress progress;
  Launcher compute;
  Launcher host;  // kernels of the host's processor

  const Definition& definition() const { return plan.definition; }
  const Quirks& quirks() const { return plan.definition.quirks; }
  ElementType compute_type() const { return plan.definition.precision.compute; }
  // The level of the tree over samples at which a part of the step is a node, whose gradient stays apart or is rounded.
  int group_level() const {
    const Definition& d = definition();
    return d.quantised_gradients.on() ? quantised_groups(d).level() : d.part_level();
  }
  // A run of shapes has no values: no digests, gradients, replicas, poison or weights to tell of.
  bool has_values() const { return plan.numerics != Numerics::shapes; }
  bool alone() const { return plan.layout.parallel.alone(); }  // the model is whole on this rank
  bool shards_parameters() const { return placement.parameters == Place::sharded; }
  bool shards_gradients() const { return placement.gradients == Place::sharded; }
  bool shards_optimizer() const { return placement.optimizer == Place::sharded; }

  // Reduced gradients and the optimizer's state are worked on by the device, or where they are offloaded by the host.
  bool offloads() const { return plan.layout.offload.optimizer.home != Home::device; }
  Launcher& at_home() { return offloads() ? host : compute; }
  // Where the following launches stand, on the device and on the host.
  void stand_at(std::uint32_t epoch, std::int64_t step);
  void phase(Phase phase);

  // An operation that no launch stands for, of the step that is under way.
  Op op(OpKind kind, Phase phase, const char* tensor, const char* site) const;
  // Waits until everything is done that was enqueued on this device. Throws SeamError{device_lost} naming `op`.
  void finish_all(const Op& op, Edge edge, bool files_too = true) const;
  void host_after(Communicator& comm, const Event& event, const Op& op, Edge edge) const {
    runtime::host_after(comm, event, op, edge, plan.bug);
  }
  void after(Queue& queue, const Event& event, Edge edge) const { runtime::after(queue, event, edge, plan.bug); }

  // What the host itself reads or writes of a device's memory is declared to the race detector.
  void host_touches(const char* site, const Range& range) const;
  AnyVec host_reads(const char* site, AnyVec values) const;
  template <class T>
  kernels::OnHost<T> host_reads(const char* site, VecView<const T> values) const {
    host_touches(site, values.range());
    return on_host(values);
  }
  // One value; 0 in a run of shapes, so that every step is finite there.
  template <class T>
  T host_value(const char* site, VecView<const T> value) const {
    const kernels::OnHost<T> held = host_reads(site, value);
    return has_values() ? held[0] : T{};
  }
};

}  // namespace seeksim::runtime
