// The first messages of a communicator. NCCL connects two ranks when they first send to each other, from a thread and
// on streams of its own. Where a kernel of another communicator waits for its peer meanwhile, that can wait behind it:
// on an H200 a pipeline of four processes hung so. Each member therefore sends a byte to each other one as soon as the
// communicator is made, before anything else of it runs.
#pragma once

#include "runtime/backend/gpu/nccl_api.h"

#ifdef SEEKSIM_NCCL

#include <vector>

namespace seeksim::runtime {

class FirstMessages {
 public:
  explicit FirstMessages(const NcclApi& nccl) : nccl_(nccl) {}
  FirstMessages(const FirstMessages&) = delete;
  FirstMessages& operator=(const FirstMessages&) = delete;
  ~FirstMessages();

  // A byte to each of the other members, and one from each. What NCCL says: ncclInProgress as long as they connect.
  ncclResult_t send(ncclComm_t comm, int members, int me);
  // Once they are connected: whether all have arrived. ncclInProgress: not yet.
  ncclResult_t arrived();

 private:
  bool prepare(int members);

  const NcclApi& nccl_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t passed_ = nullptr;
  bool recorded_ = false;
  std::vector<char*> memory_;  // the GPU's: the last one is used; freeing one earlier would wait for the device
  int room_ = 0;
};

}  // namespace seeksim::runtime

#endif
