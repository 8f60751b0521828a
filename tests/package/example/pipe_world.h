// A transport of this project's own: processes of one machine that talk over named pipes in a folder, one for each pair
// and direction. RANK and WORLD_SIZE say who is who, PIPES names the folder.
#pragma once

#include <deque>
#include <map>

#include <seeksim/seeksim.h>

class PipeWire final : public seeksim::runtime::Wire {
 public:
  PipeWire(const std::string& folder, int rank, int size);  // returns when all pipes are open at both ends
  ~PipeWire() override;

  Ticket send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) override;
  std::uint64_t announced_bytes(Ticket payload) const override { return incoming_.at(payload).bytes; }
  void receive(Ticket payload, std::span<std::byte> into) override;
  void discard(Ticket payload) override { incoming_.at(payload).discarded = true; }
  bool poll() override;

  void send_text(int to, std::span<const std::byte> text) { post(to, kText, {}, text, 0); }
  // Takes a text that has come; false: none has.
  bool text_from(int rank, std::vector<std::byte>& text);
  bool has_unsent() const;

 private:
  enum Kind : std::uint64_t { kMessage, kText };
  struct Prefix {
    Kind kind;
    std::uint64_t head_bytes, payload_bytes;
  };
  struct Outgoing {
    std::vector<std::byte> own;          // prefix and head; of a text all of it
    std::span<const std::byte> payload;  // stays with who sends until over()
    std::size_t sent = 0;
    Ticket ticket = 0;
  };
  struct Incoming {
    std::uint64_t bytes = 0;
    std::vector<std::byte> come;  // until somebody says where to
    std::span<std::byte> into;
    bool wanted = false, discarded = false;
  };
  struct Arrived {
    int from;
    std::vector<std::byte> head;
    Ticket payload;
  };
  struct Peer {
    int in = -1, out = -1;
    std::deque<Outgoing> waiting;
    std::vector<std::byte> bytes;  // that have come and are nothing whole yet
    Ticket payload = 0;            // that comes now
    std::deque<std::vector<std::byte>> texts;
  };

  void post(int to, Kind kind, std::span<const std::byte> head, std::span<const std::byte> payload, Ticket ticket);
  bool write_to(Peer& peer);
  bool read_from(int rank, Peer& peer);
  bool take(int rank, Peer& peer);
  bool tell();

  std::vector<Peer> peers_;
  Ticket tickets_ = 0;
  std::map<Ticket, Incoming> incoming_;
  std::deque<Arrived> arrived_;  // that the listener has not been told of
  std::deque<Ticket> over_;      // likewise
};

class PipeWorld final : public seeksim::runtime::ProcessWorld {
 public:
  PipeWorld();

  const char* name() const override { return "pipes"; }
  std::string host() const override { return "this machine"; }
  std::string broadcast(std::string text) override;
  std::vector<std::vector<std::byte>> gather(std::vector<std::byte> mine, int count,
                                             seeksim::runtime::TimeNs patience) override;
  [[noreturn]] void abort(int exit_status) override;
  seeksim::runtime::Wire& wire() override { return *wire_; }

 private:
  void flush();
  void turn();  // moves what can be moved; ends this process where another one has aborted

  std::string folder_;
  std::unique_ptr<PipeWire> wire_;
};
