#include "runtime/backend/gpu/nccl_api.h"

#include <cstdlib>

#include "runtime/backend/gpu/cuda_memory.h"

#ifdef SEEKSIM_NCCL
#include <dlfcn.h>
#endif

namespace seeksim::runtime {

#ifdef SEEKSIM_NCCL

namespace {

struct Loaded {
  NcclApi api;
  std::string problem;  // empty: all of it is there
};

Loaded load() {
  Loaded made;
  void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    made.problem = std::string("NCCL cannot be loaded: ") + ::dlerror() + " (is its folder in LD_LIBRARY_PATH?)";
    return made;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && made.problem.empty())
      made.problem = std::string("this NCCL has no ") + name + "; 2.28 is the least";
  };
  NcclApi& api = made.api;
  find(api.get_version, "ncclGetVersion");
  find(api.get_unique_id, "ncclGetUniqueId");
  find(api.comm_init, "ncclCommInitRankConfig");
  find(api.comm_finalize, "ncclCommFinalize");
  find(api.comm_destroy, "ncclCommDestroy");
  find(api.comm_abort, "ncclCommAbort");
  find(api.comm_revoke, "ncclCommRevoke");
  find(api.comm_split, "ncclCommSplit");
  find(api.comm_shrink, "ncclCommShrink");
  find(api.async_error, "ncclCommGetAsyncError");
  find(api.send, "ncclSend");
  find(api.recv, "ncclRecv");
  find(api.all_reduce, "ncclAllReduce");
  find(api.reduce, "ncclReduce");
  find(api.reduce_scatter, "ncclReduceScatter");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  return made;
}

const Loaded& loaded() {
  static const Loaded kLoaded = load();
  return kLoaded;
}

}  // namespace

const NcclApi* NcclApi::get() { return loaded().problem.empty() ? &loaded().api : nullptr; }

std::string nccl_library_problem() { return loaded().problem; }

#else

std::string nccl_library_problem() {
  return "this program was built without NCCL: nvcc or nccl.h was not found, or NCCL is older than 2.28";
}

#endif

// Before the first call of CUDA, which reads them. Ranks wait for each other on several streams at once: none may stand
// behind another in one of the GPU's queues, of which CUDA uses eight, and no kernel may be loaded while others run
// (CUDA's guide, "lazy loading": it can wait for all of them).
std::string nccl_problem() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (std::string problem = cuda_problem(); !problem.empty()) return problem;
  return nccl_library_problem();
}

}  // namespace seeksim::runtime
