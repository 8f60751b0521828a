// NcclApi: the functions of NCCL that are used, found in the library when a rank first asks for them: a program that
// only simulates neither needs the library nor pays for loading it. Built where nccl.h is; 2.28 is the least.
#pragma once

#if defined(SEEKSIM_HAVE_CUDA) && defined(SEEKSIM_HAVE_NCCL)
#define SEEKSIM_NCCL 1

#include <nccl.h>

#include <string>

namespace seeksim::runtime {

struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommRevoke) comm_revoke = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommShrink) comm_shrink = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  // Null where it cannot be loaded; nccl_problem() says why.
  static const NcclApi* get();
};

}  // namespace seeksim::runtime

#endif

#include <string>

namespace seeksim::runtime {

inline constexpr const char* kGpuSharingVariable = "NCCL_MULTI_RANK_GPU_ENABLE";

// Why --backend nccl cannot run here; empty: it can. To be asked before anything else of CUDA: it sets
// CUDA_DEVICE_MAX_CONNECTIONS and CUDA_MODULE_LOADING where they are not set.
std::string nccl_problem();
// The same of the library alone, whether or not there is a GPU.
std::string nccl_library_problem();

// 10000 major + 100 minor + patch, as NCCL counts from 2.9 on; 0 where it cannot be loaded.
int nccl_version();
// "2.28.9"
std::string nccl_version_text(int version);
// Why NCCL of this version lets no two ranks share a GPU; empty: it does. enabled: NCCL_MULTI_RANK_GPU_ENABLE, or null.
std::string gpu_sharing_problem(int version, const char* enabled);

}  // namespace seeksim::runtime
