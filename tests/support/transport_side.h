// One side of a world of two ranks: a MessageTransport over a wire of the test's, with what it needs around it.
#pragma once

#include <cstdint>
#include <utility>

#include "runtime/backend/machine/host_device.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_transport.h"

namespace seeksim::test {

// Post: the wire. `of_post` are the arguments of its constructor.
template <class Post>
struct TransportSide {
  template <class... Arguments>
  TransportSide(int rank, std::uint64_t run, Arguments&&... of_post)
      : post(std::forward<Arguments>(of_post)...),
        device(loop, signals, rank, {1 << 20, 1 << 20, 1 << 20}),
        transport(loop, post, signals, recorder, rank, run) {
    op.kind = runtime::OpKind::comm_create;
    op.rank = rank;
    spec.name = "world";
    spec.id = 1;
    spec.members = {0, 1};
  }
  // A communicator of both ranks. Throws SeamError where the other one has not come after `patience`.
  runtime::Comm create(runtime::TimeNs patience) { return transport.create(op, spec, loop.now() + patience); }

  runtime::WallClock wall;
  runtime::ProgressLoop loop{wall};
  runtime::Signals signals;
  runtime::Recorder recorder;
  Post post;
  runtime::HostDevice device;
  runtime::MessageTransport transport;
  runtime::Op op;
  runtime::CommSpec spec;
};

}  // namespace seeksim::test
