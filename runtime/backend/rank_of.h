// RankOf: the five seams of a real process, and what drives them. real_rank.h and nccl_rank.h say with which device and
// which transport.
#pragma once

#include <string>

#include "runtime/backend/control/control_client.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

// TransportsT: made of (loop, device, wire, signals, recorder, rank, the run's number on the wire); its member
// `transport` is the rank's seam.
template <class DeviceT, class TransportsT>
struct RankOf {
  // wire: over which messages travel. folder: where the rank's files lie. of_device: what DeviceT is made of besides.
  template <class... OfDevice>
  RankOf(Wire& wire, const HostMemory::Capacities& capacities, const ControlClient::Options& to_control,
         const std::string& folder, OfDevice... of_device)
      : id(to_control.rank),
        ranks(to_control.ranks),
        device(loop, signals, id, capacities, of_device...),
        transports(loop, device, wire, signals, recorder, id, hash_of(to_control.token)),
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
  DeviceT device;
  TransportsT transports;
  decltype(TransportsT::transport)& transport = transports.transport;
  ControlClient control;
  PosixStorage storage;
};

}  // namespace seeksim::runtime
