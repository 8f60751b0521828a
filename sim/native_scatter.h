// NativeScatter: a native sum of which every member gets what it owns, computed from the parts where they lie.
// GradientReducer's own exchange and fold give the same bits, send the same bytes and need the same memory.
#pragma once

#include <vector>

#include "sim/links.h"
#include "sim/native_sum.h"

namespace seeksim::sim {

class NativeScatter final : public NativeSum {
 public:
  void prepare(const runtime::TreeScatter& scatter);

  runtime::Transport::Unmatched unmatched() const override;
  std::string what() const override;
  bool waits_on(int rank) const override;  // a piece goes to it or comes from it, and it has not come

 private:
  struct Part {
    kernels::TreeNode node;
    const float* data;
  };
  void scribble() override;
  void recycle() override;
  void complete(Group& group) override;
  bool summed() const override { return summed_; }
  void look_for_dead(std::size_t here) override;  // those of its pieces
  static bool meet(Group& group);                 // all are here; false: two members did not fit together
  // The same in a steady world.
  static void meet_at_once(const std::vector<NativeScatter*>& members, const Network& network);
  // The same where whole collectives were measured.
  static void meet_as_measured(const std::vector<NativeScatter*>& members, Network& network, const SharedComm& shared);
  std::size_t whole_bytes() const;      // of the vector that is scattered, as far as this member has to do with it
  bool meet_peers(const Group& group);  // this member's sends and what the receivers expect
  bool sum_targets(Group& group);
  bool is_here(int peer) const;

  std::vector<Part> parts_;
  std::vector<runtime::TreeTarget> targets_;
  std::vector<runtime::Piece> pieces_;
  std::vector<const runtime::Piece*> sends_, receives_;  // of pieces_, by peer
  TimeNs ready_ = 0;
  bool summed_ = false;
};

}  // namespace seeksim::sim
