// NativeReduce: a canonical sum that the simulator computes itself, once, as one event of all members. Used where no
// fault can touch a single message; Communicator's own all-reduce over exchanges gives the same bits.
#pragma once

#include <span>
#include <vector>

#include "sim/activity.h"

namespace seeksim::sim {

class NativeReduce final : public SimActivity {
 public:
  NativeReduce() : SimActivity(true) {}
  void prepare(const runtime::TreeReduce& reduce);

  void withdraw() override;
  std::string waits_for() const override;
  runtime::Transport::Unmatched unmatched() const override;
  void fire(const Timer& timer) override;
  bool waits_on(int rank) const override;  // as a neighbour in the ring of members
  std::string what() const override;

 private:
  void post() override;
  void scribble() override;
  void recycle() override;
  bool compare_with_neighbours(std::size_t position);
  void look_for_dead_neighbours(std::size_t position);
  void complete(SharedComm& shared, Group& group);
  void sum_parts(std::span<const kernels::TreePart> parts, kernels::Vec<float> out);
  bool same_as(const SimActivity& activity) const;

  kernels::TreePart first_;  // what this member brings: a part, seldom more
  std::vector<kernels::TreePart> rest_;
  runtime::Index leaves_ = 0;
  float factor_ = 1.0f;
  runtime::VecView<float> out_;
  Group* group_ = nullptr;
};

}  // namespace seeksim::sim
