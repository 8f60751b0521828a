// TcpWorld: processes that something else than MPI has started, with torchrun's variables: RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT, and a secret in SEEKSIM_TOKEN or TORCHELASTIC_RUN_ID (rendezvous.h). Every pair of them
// has one TCP connection; a peer that closes it is gone, and its peers learn of it at once, as with NCCL over sockets.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/wire/checksum.h"
#include "runtime/backend/wire/process_world.h"
#include "runtime/backend/wire/sockets.h"

namespace seeksim::runtime {

class TcpWire final : public Wire {
 public:
  // How many unrequested bytes one peer may have here. A peer that goes beyond is cut off.
  struct Limits {
    std::uint64_t text = std::uint64_t(1) << 30;   // a text, such as a rank's report
    std::uint64_t early = std::uint64_t(1) << 30;  // payloads, and heads while there is no listener
    std::size_t texts = 4;                         // that wait
  };
  static constexpr std::uint32_t kMagic = 0x736b7432;  // "skt2"
  // Before every message and text.
  struct Prefix {
    std::uint32_t magic = kMagic;
    std::uint32_t head_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t is_text = 0;
    Checks checks;
  };
  // peers: by rank; not open for this rank itself.
  TcpWire(int rank, std::vector<Socket> peers, const Limits& limits);
  TcpWire(int rank, std::vector<Socket> peers) : TcpWire(rank, std::move(peers), Limits{}) {}

  Ticket send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) override;
  std::uint64_t announced_bytes(Ticket payload) const override { return incoming_.at(payload).bytes; }
  void receive(Ticket payload, std::span<std::byte> into) override;
  void discard(Ticket payload) override;
  bool take_back(Ticket ticket) override;
  bool poll() override;

  // Texts between the launching processes, on the same connections.
  void send_text(int to, std::span<const std::byte> text);
  std::optional<std::vector<std::byte>> text_from(int rank);  // that has come
  // See sockets.h.
  void give_up_when_unreachable(int rank, int seconds) {
    runtime::give_up_when_unreachable(peers_[std::size_t(rank)].socket, seconds);
  }
  // What a program waits on beside this wire (poll), and how many bytes have come.
  int descriptor(int rank) const { return peers_[std::size_t(rank)].socket.fd(); }
  std::uint64_t received(int rank) const { return peers_[std::size_t(rank)].received; }
  // The listener does not believe what came: the connection is closed.
  void cut_off(int rank, const std::string& why) { lose(peers_[std::size_t(rank)], why); }
  bool unsent(int rank) const { return !peers_[std::size_t(rank)].out.empty(); }
  bool closed(int rank) const { return peers_[std::size_t(rank)].closed; }
  // Why the connection to a rank is closed; empty where it is open.
  const std::string& why_closed(int rank) const { return peers_[std::size_t(rank)].why_closed; }

 private:
  struct Outgoing {
    std::vector<std::byte> own;           // prefix and head
    std::span<const std::byte> payload;   // the caller keeps it
    std::vector<std::byte> kept_payload;  // of a text
    std::size_t sent = 0;                 // of both
    Ticket ticket = 0;
  };
  // A payload that has been announced: where it goes, once that is known, and until then what has come of it.
  struct Incoming {
    int from = -1;
    std::uint64_t bytes = 0;
    std::uint64_t check = 0;
    std::uint64_t come = 0;
    std::vector<std::byte> early;
    std::span<std::byte> into;
    bool wanted = false;
    bool discarded = false;
  };
  struct Early {
    int from;
    std::vector<std::byte> head;
    Ticket payload;
    bool damaged;

    std::size_t memory() const { return sizeof *this + head.size(); }
  };
  struct Ended {
    Ticket ticket;
    int damaged_from = -1;  // the sender, where what came is not what it sent
  };
  struct Peer {
    Socket socket;
    bool closed = false;
    std::string why_closed;
    std::uint64_t early = 0;     // its unrequested bytes
    std::uint64_t received = 0;  // bytes
    std::deque<Outgoing> out;
    std::vector<std::byte> in;    // a prefix and head that are not whole
    bool spoke = false;           // a whole prefix has come
    std::uint64_t skipped = 0;    // since a damaged one
    Ticket payload = 0;           // that comes now; 0: none
    std::uint64_t text_left = 0;  // of a text that comes now
    std::uint64_t text_check = 0;
    std::vector<std::byte> text;
    bool in_text = false;
    std::deque<std::vector<std::byte>> texts;
  };
  void post(int to, Prefix prefix, std::span<const std::byte> head, Outgoing outgoing);
  bool flush(Peer& peer);
  bool read(int rank, Peer& peer);
  bool read_payload(int rank, Peer& peer);
  void took(int rank, Peer& peer, std::span<const std::byte> bytes);
  std::size_t take_text(int rank, Peer& peer, std::span<const std::byte> bytes);
  std::size_t take_payload(int rank, Peer& peer, std::span<const std::byte> bytes);
  std::size_t take_head(int rank, Peer& peer, std::span<const std::byte> bytes);
  void look_for_prefix(int rank, Peer& peer);
  void begin(int rank, Peer& peer, const Prefix& prefix);
  void tell(Early message);
  void take_early(Incoming& incoming);
  void settle(Ticket ticket);
  void lose(Peer& peer, std::string why);

  // Messages that came while there was no listener: a rank may hear of the next run later than its peers. The next
  // listener gets them, and throws away those of a run that is over (MessageTransport).
  std::deque<Early> early_;
  const int rank_;
  const Limits limits_;
  std::vector<Peer> peers_;
  Ticket tickets_ = 0;
  std::map<Ticket, Incoming> incoming_;
  std::vector<Ended> ended_;  // to be reported
};

// The secret in this process's environment; empty: there is none. Throws std::runtime_error where it is too short.
std::string secret_of_the_job();

class TcpWorld final : public ProcessWorld {
 public:
  // Whether this process has torchrun's variables.
  static bool asked_for();
  // Waits for all. insecure: also without a secret where the network is open to others. Throws NoSecret, and
  // std::runtime_error with the reason where not all have come.
  explicit TcpWorld(bool insecure = false);
  ~TcpWorld() override;

  const char* name() const override { return "tcp"; }
  std::string host() const override { return address_; }
  std::string broadcast(std::string text) override;
  std::vector<std::vector<std::byte>> gather(std::vector<std::byte> mine, int count, TimeNs patience) override;
  bool reaches_who_is_left() const override { return true; }
  [[noreturn]] void abort(int exit_status) override;
  Wire& wire() override { return *wire_; }

 private:
  std::string address_;
  std::optional<TcpWire> wire_;
};

}  // namespace seeksim::runtime
