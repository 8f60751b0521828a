// Exchange: a group of sends and receives. Pieces meet the peers' pieces by (communicator, epoch, sequence, from, to);
// data is copied when they meet; the whole group is one timer per rank.
#pragma once

#include <vector>

#include "sim/activity.h"

namespace seeksim::sim {

class TransportHub;

class Exchange final : public SimActivity {
 public:
  Exchange() : SimActivity(false) {}
  void prepare(std::span<const runtime::Piece> pieces, runtime::DiesAt dies);

  // Its pieces together, once all members are here: whatever the links say.
  void takes(TimeNs together) { takes_ns_ = together; }

  void withdraw() override;
  std::string waits_for() const override;
  runtime::Transport::Unmatched unmatched() const override;
  void fire(const Timer& timer) override;
  // Whether a piece from or to `rank` has not met its counterpart, or met it and was lost.
  bool waits_on(int rank) const override;

 private:
  enum class Fate : std::uint8_t { open, under_way, withheld, lost };
  struct PostedPiece {
    runtime::Piece piece;
    Fate fate = Fate::open;
    TimeNs over_ns = 0;  // when a piece under way has arrived
    std::size_t bytes() const { return piece.hi - piece.lo; }
  };
  struct Run {  // places of one peer's pieces in order_ (or in pieces_ where they are in order already)
    std::size_t begin, end;
  };

  void post() override;
  void scribble() override;
  void recycle() override;

  PostedPiece& at(std::size_t i) { return pieces_[order_.empty() ? i : order_[i]]; }
  const PostedPiece& at(std::size_t i) const { return pieces_[order_.empty() ? i : order_[i]]; }
  Run run_of(int peer) const;
  void sort_by_peer();
  void meet(PostedPiece& mine, Exchange& other);
  bool agree_on(const PostedPiece& mine, Exchange& other, const PostedPiece& theirs);
  static void transfer(Exchange& from, PostedPiece& sent, Exchange& to, PostedPiece& received);
  static void transfer_with_fate(Exchange& from, PostedPiece& sent, Exchange& to, PostedPiece& received,
                                 const runtime::PieceFate& fate);
  static void draw(const Exchange& from, const Exchange& to, TimeNs received);
  void piece_over(PostedPiece& piece, TimeNs when);
  void choose_last_sends();
  void die(TimeNs when);

  std::vector<PostedPiece> pieces_;
  std::vector<std::uint32_t> order_;
  std::uint32_t unmatched_ = 0;
  std::uint32_t sends_until_death_ = 0;
  runtime::DiesAt dies_ = runtime::DiesAt::never;
  TimeNs ready_ = 0;
  TimeNs takes_ns_ = -1;  // -1: as links say
  Group* group_ = nullptr;
  Object meets_at_;  // the same, as the steering knows it
};

}  // namespace seeksim::sim
