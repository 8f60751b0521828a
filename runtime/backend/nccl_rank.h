// NcclRank: the five seams of a real process with a GPU of its own, as real_rank.h has them for one without.
#pragma once

#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL

#include "runtime/backend/control/control_client.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

struct NcclRank {
  // ordinal: which of its machine's GPUs.
  NcclRank(Wire& wire, const HostMemory::Capacities& capacities, const ControlClient::Options& to_control,
           const std::string& folder, int ordinal)
      : id(to_control.rank),
        ranks(to_control.ranks),
        device(loop, signals, id, capacities, ordinal),
        side(loop, wire, signals, of_the_side, id, hash_of(to_control.token)),
        transport(loop, device, side, signals, recorder, id),
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
  Recorder recorder, of_the_side;
  CudaDevice device;
  MessageTransport side;
  NcclTransport transport;
  ControlClient control;
  PosixStorage storage;
};

}  // namespace seeksim::runtime

#endif
