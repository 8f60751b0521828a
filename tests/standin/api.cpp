// NcclApi over the stand-in, in place of the one that loads NVIDIA's library (runtime/backend/gpu/nccl_api.cpp).
#include "runtime/backend/gpu/nccl_api.h"

#include "runtime/backend/gpu/cuda_memory.h"

namespace seeksim::runtime {

const NcclApi* NcclApi::get() {
  static const NcclApi kApi = [] {
    NcclApi api;
    api.get_version = ncclGetVersion;
    api.get_unique_id = ncclGetUniqueId;
    api.comm_init = ncclCommInitRankConfig;
    api.comm_finalize = ncclCommFinalize;
    api.comm_destroy = ncclCommDestroy;
    api.comm_abort = ncclCommAbort;
    api.comm_revoke = ncclCommRevoke;
    api.comm_split = ncclCommSplit;
    api.comm_shrink = ncclCommShrink;
    api.async_error = ncclCommGetAsyncError;
    api.send = ncclSend;
    api.recv = ncclRecv;
    api.all_reduce = ncclAllReduce;
    api.reduce = ncclReduce;
    api.reduce_scatter = ncclReduceScatter;
    api.group_start = ncclGroupStart;
    api.group_end = ncclGroupEnd;
    return api;
  }();
  return &kApi;
}

std::string nccl_library_problem() { return ""; }
std::string nccl_problem() { return cuda_problem(); }

}  // namespace seeksim::runtime
