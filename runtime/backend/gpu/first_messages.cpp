#include "runtime/backend/gpu/first_messages.h"

#ifdef SEEKSIM_NCCL

namespace seeksim::runtime {

// What still runs belongs to communicators that are aborted before this.
FirstMessages::~FirstMessages() {
  for (char* const memory : memory_) static_cast<void>(cudaFree(memory));
  if (passed_ != nullptr) static_cast<void>(cudaEventDestroy(passed_));
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

bool FirstMessages::prepare(int members) {
  if (stream_ == nullptr && cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) return false;
  if (passed_ == nullptr && cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming) != cudaSuccess) return false;
  if (members <= room_) return true;
  void* memory = nullptr;
  if (cudaMalloc(&memory, std::size_t(members)) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // reported here, so the next launch must not report it again
    return false;
  }
  memory_.push_back(static_cast<char*>(memory));
  room_ = members;
  return true;
}

ncclResult_t FirstMessages::send(ncclComm_t comm, int members, int me) {
  if (!prepare(members)) return ncclUnhandledCudaError;
  recorded_ = false;
  char* const bytes = memory_.back();
  ncclResult_t worst = nccl_.group_start();
  for (int peer = 0; peer < members; ++peer) {
    if (peer == me) continue;
    for (const ncclResult_t called : {nccl_.send(bytes + me, 1, ncclUint8, peer, comm, stream_),
                                      nccl_.recv(bytes + peer, 1, ncclUint8, peer, comm, stream_)})
      if (worst == ncclSuccess || worst == ncclInProgress) worst = called;
  }
  const ncclResult_t ended = nccl_.group_end();
  return worst == ncclSuccess || worst == ncclInProgress ? ended : worst;
}

ncclResult_t FirstMessages::arrived() {
  if (!recorded_ && cudaEventRecord(passed_, stream_) != cudaSuccess) return ncclUnhandledCudaError;
  recorded_ = true;
  const cudaError_t now = cudaEventQuery(passed_);
  if (now == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return now == cudaSuccess ? ncclSuccess : now == cudaErrorNotReady ? ncclInProgress : ncclUnhandledCudaError;
}

}  // namespace seeksim::runtime

#endif
