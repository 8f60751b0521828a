// Wire: what carries the messages of a transport between the processes of ranks. A message is a head, which says what
// it is, and perhaps a payload, which lands where the receiver wants it once it has seen the head. Between two ranks,
// heads arrive in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/backend/machine/progress.h"

namespace seeksim::runtime {

class Wire : public Poller {
 public:
  static constexpr std::size_t kHeadBytesMax = 4096;
  using Ticket = std::uint64_t;  // 0: none

  class Listener {
   public:
    virtual ~Listener() = default;
    // payload: to be received or discarded once, now or later; 0: there is none.
    virtual void arrived(int from, std::span<const std::byte> head, Ticket payload) = 0;
    virtual void over(Ticket ticket) = 0;  // a payload has gone, or has come
    // In place of over(): the payload that came is not what was sent. 0: a head, which is thrown away with what
    // follows.
    virtual void damaged(int from, Ticket payload) = 0;
    virtual void failed(const std::string& why) = 0;
  };
  void listen(Listener* listener) { listener_ = listener; }

  // The payload has to stay until over(); 0: there is nothing to wait for.
  virtual Ticket send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) = 0;
  // How many bytes its sender has announced; for a payload that arrived() named and that was not received or discarded.
  virtual std::uint64_t announced_bytes(Ticket payload) const = 0;
  // into: as large as the payload. over() reports the same ticket.
  virtual void receive(Ticket payload, std::span<std::byte> into) = 0;
  virtual void discard(Ticket payload) = 0;  // over() does not report it
  // The buffer of a payload that is on its way, out or in, is neither read nor written from here on, and over() does
  // not report it; the peer gets what was sent all the same. False: this wire cannot, and over() will say when it has
  // gone.
  virtual bool take_back(Ticket) { return false; }

 protected:
  Listener* listener_ = nullptr;
};

}  // namespace seeksim::runtime
