// RealRank: the five seams of a real process, and what drives them.
#pragma once

#include "runtime/backend/control/control_client.h"
#include "runtime/backend/machine/host_device.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

struct RealRank {
  RealRank(Wire& wire, const HostMemory::Capacities& capacities, const ControlClient::Options& to_control,
           const std::string& folder)
      : id(to_control.rank),
        ranks(to_control.ranks),
        device(loop, signals, id, capacities),
        transport(loop, wire, signals, recorder, id, hash_of(to_control.token)),
        control(loop, signals, to_control),
        storage(folder) {}

  Seams seams() { return {clock, device, transport, storage, control}; }
  // By these seams, which may be decorated.
  Rank rank(const Seams& by, int ranks_per_node) {
    Rank all{id, ranks, by.clock, by.device, by.transport, by.storage, by.control, recorder};
    all.ranks_per_node = ranks_per_node;
    return all;
  }

  const int id;
  const int ranks;
  Signals signals;
  WallClock wall;
  ProgressLoop loop{wall};
  DrivenClock clock{wall, loop};
  Recorder recorder;
  HostDevice device;
  MessageTransport transport;
  ControlClient control;
  PosixStorage storage;
};

}  // namespace seeksim::runtime
