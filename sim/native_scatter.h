// NativeScatter: a canonical sum of which every member gets what it owns, computed by the simulator as one event of all
// members from the parts where they lie. Used where no fault can touch a single message; GradientReducer's own exchange
// and fold give the same bits, send the same bytes and need the same memory.
#pragma once

#include <vector>

#include "sim/activity.h"

namespace seeksim::sim {

class NativeScatter final : public SimActivity {
 public:
  NativeScatter() : SimActivity(true) {}
  void prepare(const runtime::TreeScatter& scatter);

  void withdraw() override;
  std::string waits_for() const override;
  runtime::Transport::Unmatched unmatched() const override;
  void fire(const Timer& timer) override;
  std::string what() const override;
  bool waits_on(int rank) const override;  // a piece goes to it or comes from it, and it has not come

 private:
  struct Part {
    kernels::TreeNode node;
    const float* data;
  };
  void post() override;
  void scribble() override;
  void recycle() override;
  bool compare_with_neighbours(std::size_t position);
  void look_for_dead_peers();
  static bool meet(Group& group);       // all are here; false: somebody was told of a mismatch
  bool meet_peers(const Group& group);  // this member's sends and what the receivers expect
  bool sum_targets(Group& group);
  bool is_here(int peer) const;

  std::vector<Part> parts_;
  std::vector<runtime::TreeTarget> targets_;
  std::vector<runtime::Piece> pieces_;
  std::vector<const runtime::Piece*> sends_, receives_;  // of pieces_, by peer
  runtime::Index leaves_ = 0;
  float factor_ = 1.0f;
  TimeNs ready_ = 0;
  bool summed_ = false;
  Group* group_ = nullptr;
};

}  // namespace seeksim::sim
