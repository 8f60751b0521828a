#include "harness/processes/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/backend/gpu/nccl_api.h"

namespace seeksim::harness {

int gpu_of_process(int rank) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const char* const told = std::getenv(name)) return int(std::strtol(told, nullptr, 10));
  }
  return rank;
}

std::string identity_of_own_gpu(int rank) { return runtime::gpu_identity(runtime::visible_gpu(gpu_of_process(rank))); }

std::vector<Problem> problems_of_sharing(const std::vector<std::string>& gpus, int ranks, int version,
                                         const char* enabled) {
  const std::string not_allowed = runtime::gpu_sharing_problem(version, enabled);
  if (not_allowed.empty()) return {};
  std::map<std::string, int> first;
  for (int rank = 0; rank < std::min(ranks, int(gpus.size())); ++rank) {
    const std::string& gpu = gpus[std::size_t(rank)];
    if (gpu.empty()) continue;
    const auto [at, fresh] = first.try_emplace(gpu, rank);
    if (fresh) continue;
    return {{"--backend nccl", "",
             fmt::format("ranks {} and {} would share one GPU ({}): {}", at->second, rank, in_quotes(gpu), not_allowed),
             "Start as many processes as there are GPUs, or with such an NCCL set the variable and NCCL_MAX_CTAS=2."}};
  }
  return {};
}

}  // namespace seeksim::harness
