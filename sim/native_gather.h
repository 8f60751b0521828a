// NativeGather: in a steady world of shapes, a gather or a scatter as one event of all members. All are through when
// the busiest adapter is: with equal shards that is when an Exchange would be; with unequal ones an Exchange lets each
// member go at a time of its own, which depends on who came first.
#pragma once

#include <span>

#include "sim/links.h"
#include "sim/native_sum.h"

namespace seeksim::sim {

class NativeGather final : public NativeSum {
 public:
  static bool gathers(runtime::OpKind kind);
  // Also what tensor ways scatter among each other piece by piece, and sum themselves.
  static bool meets_at_once(runtime::OpKind kind);
  // What a gather of these pieces makes whole: all that comes in, and this member's own share.
  static std::size_t whole_bytes(std::span<const runtime::Piece> pieces, std::size_t members);
  void prepare(const CollectiveLoad& load, std::size_t whole);

  runtime::Transport::Unmatched unmatched() const override { return {state == State::started, op, -1, false}; }
  std::string what() const override { return ", as one event"; }
  bool waits_on(int rank) const override;

 private:
  void scribble() override {}  // there are no values
  void recycle() override;
  void complete(Group& group) override;
  bool summed() const override { return met_; }
  void look_for_dead(std::size_t here) override;

  CollectiveLoad load_;
  std::size_t whole_ = 0;  // bytes that every member has afterwards
  bool met_ = false;
};

}  // namespace seeksim::sim
