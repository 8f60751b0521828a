// NativeReduce: a native sum that every member gets whole. Communicator's own all-reduce over exchanges gives the same
// bits.
#pragma once

#include <span>
#include <vector>

#include "sim/native_sum.h"

namespace seeksim::sim {

class NativeReduce final : public NativeSum {
 public:
  void prepare(const runtime::TreeReduce& reduce);

  runtime::Transport::Unmatched unmatched() const override;
  bool waits_on(int rank) const override;  // as a neighbour in the ring of members
  std::string what() const override;

 private:
  void scribble() override;
  void recycle() override;
  void bring(std::size_t here) override;
  void complete(Group& group) override;
  bool summed() const override;
  void look_for_dead(std::size_t here) override;  // the neighbours in the ring
  bool same_as(const SimActivity& other) const override;
  void sum_parts(std::span<const kernels::TreePart> parts, kernels::Vec<float> out);

  kernels::TreePart first_;  // what this member brings: a part, seldom more
  std::vector<kernels::TreePart> rest_;
  runtime::VecView<float> out_;
};

}  // namespace seeksim::sim
