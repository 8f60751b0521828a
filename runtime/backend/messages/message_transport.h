// MessageTransport: the Transport of real ranks without NCCL, over any Wire. Every piece of an exchange is a message
// whose head carries the communicator, the epoch, the sequence number and the Op that it belongs to, so that nothing is
// ever matched by luck: what comes early waits, what comes from an epoch that was given up is thrown away, and what is
// another operation than the receiver's is a mismatch.
//
// The verbs behave as in NCCL (docs/simulator.md). Two things differ: creating a communicator is a meeting at its first
// member, and an abort waits, for a short time, until the wire has let go of the buffers.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/backend/wire/wire.h"
#include "runtime/seams/recorder.h"

namespace seeksim::runtime {

class MessageTransport final : public Transport, private Wire::Listener, private Poller {
 public:
  struct Use {  // by kind of operation
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  };

  // run: the same on all ranks, and no other one's on these processes; what a run before sent too late is thrown away.
  MessageTransport(ProgressLoop& loop, Wire& wire, Signals& signals, Recorder& recorder, int rank, std::uint64_t run);
  ~MessageTransport() override;

  Comm create(const Op& op, const CommSpec& spec, TimeNs deadline) override;
  CommResult exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces, DiesAt dies) override;
  bool has_native(Comm, const Op&) const override { return false; }
  CommResult tree_all_reduce(Queue&, Comm, const Op&, const TreeReduce&) override { return CommResult::invalid_usage; }
  CommResult async_error(Comm comm) override;
  CommResult revoke(Comm comm) override;
  CommResult abort(std::span<const Comm> comms) override;
  CommResult finalize(Comm comm) override;
  CommResult destroy(Comm comm) override;
  Comm split(const Op& op, Comm parent, int color, int key, TimeNs deadline) override;
  Comm shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) override;
  Unmatched unmatched(Comm comm) const override;

  // Whether each piece names a member as its peer and lies in a buffer. A group with a piece that does not is dropped
  // whole and poisons its communicator, as in NCCL.
  static bool are_valid(std::span<const Piece> pieces, std::span<const int> members);

  // The members of a communicator that is alive; else none.
  std::span<const int> members(Comm comm) const {
    const Held* held = find(comm);
    return held == nullptr ? std::span<const int>() : held->members;
  }

  const std::array<Use, std::size_t(OpKind::count_)>& use() const { return use_; }
  std::uint64_t thrown_away() const { return thrown_away_; }  // messages of epochs that were given up
  // Pieces whose sender's and receiver's descriptions were compared, and the first few that differed.
  std::uint64_t compared() const { return compared_; }
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  // What peers did that no rank of this program does, and connections that were lost: the first few.
  struct Complaint {
    TimeNs at = 0;
    std::string text;
  };
  const std::vector<Complaint>& complaints() const { return complaints_; }

 private:
  struct Head;
  struct Early;                                         // a message before its operation
  struct Exchange;                                      // an operation of this rank
  using Key = std::pair<std::uint64_t, std::uint32_t>;  // of a communicator: id and epoch

  struct Held {  // a communicator
    enum class State : std::uint8_t { ready, revoked, finalized, dead };
    Key key;
    std::vector<int> members;
    State state = State::ready;
    CommResult error = CommResult::success;
    std::deque<Exchange*> pending;    // unfinished operations, oldest first
    std::uint64_t last_sequence = 0;  // of its operations so far, which have rising ones
    std::uint32_t splits = 0, shrinks = 0;
  };

  // The building of a communicator, as its first member keeps it (who has come) and as all see it (how it ended).
  struct Meeting {
    struct Arrival {
      int color = 0, key = 0;
      std::uint64_t members_hash = 0;
    };
    struct Answer {
      bool refused = false;  // they came with different lists of members
      std::vector<int> members;
    };
    std::map<int, Arrival> arrivals;  // by rank
    std::map<int, Answer> answers;    // by the rank that gave it: the first member's counts
  };

  struct OnTheWire {
    Exchange* exchange;
    std::size_t piece;
  };

  // ---- Wire::Listener
  void arrived(int from, std::span<const std::byte> bytes, Wire::Ticket payload) override;
  void over(Wire::Ticket ticket) override;
  void damaged(int from, Wire::Ticket payload) override;
  void failed(const std::string& why) override;

  // ---- Poller: messages that a rule holds back
  bool poll() override;

  Held* find(Comm comm);
  const Held* find(Comm comm) const { return const_cast<MessageTransport*>(this)->find(comm); }
  static CommResult usable(const Held* held);
  void fail(Held& held, CommResult error);
  void fail_all_with(int member, CommResult error);

  Comm meet(const Op& op, const CommSpec& spec, int color, int key, TimeNs deadline);
  void arrive(const Head& head, int from, std::span<const std::byte> more);
  bool keeps_to(const Meeting::Answer& answer, std::span<const int> members, int color) const;
  void begin_if_all_came(Meeting& meeting, const Key& key, std::span<const int> members);
  Head head_of(std::uint8_t kind, const Key& key) const;
  void send_small(int to, const Head& head, std::span<const std::byte> more);

  void start(Exchange& exchange);
  void send_piece(Exchange& exchange, std::size_t index);
  void disturb(Exchange& exchange, const Piece& piece, Head head);
  void hold_back(TimeNs until, int to, const Head& head, std::vector<std::byte> payload);
  void send_copy(int to, const Head& head, std::vector<std::byte> payload);
  void came_damaged(Exchange& exchange);
  void take(Exchange& exchange, const Early& message);
  void keep(const Key& key, Early message);
  std::vector<Early> take_kept(const Key& key, std::uint64_t sequence);
  void refuse(const Early& message, const std::string& what);
  void complain(std::string text);
  OnTheWire off_the_wire(Wire::Ticket ticket);
  void piece_over(Exchange& exchange, std::size_t index);
  void end_if_over(Exchange& exchange);
  void end(Exchange& exchange, RecordState how);
  void give_up(Held& held);
  void take_back_given_up();
  bool letting_go() const;  // a given-up operation still has a buffer on the wire
  void throw_away(const Early& message);

  ProgressLoop& loop_;
  Wire& wire_;
  Signals& signals_;
  Recorder& recorder_;
  const int rank_;
  const std::uint64_t run_;
  std::deque<Held> comms_;                // by handle - 1
  std::map<Key, std::uint32_t> handles_;  // of those that are alive
  std::set<Key> gone_;
  std::map<Key, Meeting> meetings_;
  std::map<Key, std::vector<Early>> early_;
  std::map<int, std::size_t> early_memory_;  // by sender
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<Exchange*> spare_;
  std::map<Wire::Ticket, OnTheWire> on_the_wire_;
  struct HeldBack;
  std::deque<HeldBack> held_back_;                            // whose time comes first, first
  std::map<Wire::Ticket, std::vector<std::byte>> disturbed_;  // copies on the wire
  std::array<Use, std::size_t(OpKind::count_)> use_{};
  std::uint64_t thrown_away_ = 0;
  std::uint64_t compared_ = 0;
  std::vector<std::string> mismatches_;
  std::vector<Complaint> complaints_;
};

}  // namespace seeksim::runtime
