// MpiWire: heads go over one communicator, payloads over another, each payload under a tag of its own, which its head
// names. A head is received when it is there; its payload is received straight into the buffer where it belongs.
#pragma once

#ifdef SEEKSIM_HAVE_MPI

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "runtime/backend/wire/checksum.h"
#include "runtime/backend/wire/mpi_api.h"
#include "runtime/backend/wire/wire.h"

namespace seeksim::runtime {

class MpiWire final : public Wire {
 public:
  MpiWire();  // collective over all processes
  ~MpiWire() override;
  Ticket send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) override;
  std::uint64_t announced_bytes(Ticket payload) const override { return announced_.at(payload).bytes; }
  void receive(Ticket payload, std::span<std::byte> into) override;
  void discard(Ticket payload) override;
  bool poll() override;

 private:
  // Before the head that a transport gave.
  struct Prefix {
    std::uint64_t payload_bytes = 0;
    std::int32_t tag = 0;
    std::int32_t unused = 0;
    Checks checks;
  };
  using HeadBytes = std::array<std::byte, sizeof(Prefix) + kHeadBytesMax>;
  struct Announced {
    int from = -1;
    int tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t check = 0;
  };
  struct Pending {                       // beside requests_
    Ticket ticket = 0;                   // whose end is reported; 0: none
    Announced awaited;                   // that is received
    std::span<const std::byte> into;     // where
    std::unique_ptr<HeadBytes> head;     // that is being sent
    std::vector<std::byte> thrown_away;  // an unwanted payload
  };
  struct Told {
    Ticket ticket;
    int damaged_from;
  };
  bool check(int result, const char* what);
  void add(MPI_Request request, Pending pending);
  bool test();
  static int damaged_from(const Pending& pending);  // the sender of what was received; -1: it is what was sent
  bool take_heads();
  bool refuse(int from, const std::string& what);

  const MpiApi& mpi_;
  MPI_Comm heads_;
  MPI_Comm payloads_;
  int tags_ = 0;  // how many there are
  int next_tag_ = 0;
  Ticket tickets_ = 0;
  std::map<Ticket, Announced> announced_;
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;
  std::vector<int> ended_;  // scratch
  std::vector<std::unique_ptr<HeadBytes>> spare_;
  HeadBytes arrived_;
};

}  // namespace seeksim::runtime

#endif
