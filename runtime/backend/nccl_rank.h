// NcclRank: the five seams of a real process with a GPU of its own. It is made of a RealRank's arguments and the number
// of the GPU among its machine's.
#pragma once

#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL

#include "runtime/backend/rank_of.h"

namespace seeksim::runtime {

struct NcclBesideMessages {
  NcclBesideMessages(ProgressLoop& loop, CudaDevice& device, Wire& wire, Signals& signals, Recorder& recorder, int rank,
                     std::uint64_t run)
      : side(loop, wire, signals, of_the_side, rank, run), transport(loop, device, side, signals, recorder, rank) {}
  Recorder of_the_side;
  MessageTransport side;
  NcclTransport transport;
};

using NcclRank = RankOf<CudaDevice, NcclBesideMessages>;

}  // namespace seeksim::runtime

#endif
