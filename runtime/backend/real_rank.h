// RealRank: the five seams of a real process without an accelerator.
#pragma once

#include "runtime/backend/machine/host_device.h"
#include "runtime/backend/messages/message_transport.h"
#include "runtime/backend/rank_of.h"

namespace seeksim::runtime {

struct Messages {
  Messages(ProgressLoop& loop, HostDevice&, Wire& wire, Signals& signals, Recorder& recorder, int rank,
           std::uint64_t run)
      : transport(loop, wire, signals, recorder, rank, run) {}
  MessageTransport transport;
};

using RealRank = RankOf<HostDevice, Messages>;

}  // namespace seeksim::runtime
