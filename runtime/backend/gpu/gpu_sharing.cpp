// Several ranks on one GPU: which NCCL allows it, and how. Apart from nccl_api.cpp, which the stand-in replaces.
#include <string_view>

#include "runtime/backend/gpu/nccl_api.h"

namespace seeksim::runtime {
namespace {
constexpr int kFirstThatShares = 23000;
}

int nccl_version() {
#ifdef SEEKSIM_NCCL
  int version = 0;
  if (NcclApi::get() != nullptr && NcclApi::get()->get_version(&version) == ncclSuccess) return version;
#endif
  return 0;
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string gpu_sharing_problem(int version, const char* enabled) {
  if (version < kFirstThatShares)
    return "NCCL " + nccl_version_text(version) + " takes one rank a GPU; from 2.30 on it takes several with " +
           kGpuSharingVariable + "=1";
  if (enabled == nullptr || std::string_view(enabled) != "1")
    return "NCCL " + nccl_version_text(version) + " takes one rank a GPU unless " + kGpuSharingVariable + "=1 is set";
  return "";
}

}  // namespace seeksim::runtime
