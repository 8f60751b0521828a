// CUDA streams and memory, and NCCL ranks that are threads of one process, for the tests of the stand-in.
#pragma once

#include <gtest/gtest.h>

#include <nccl.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/standin/loud.h"
#include "tests/standin/stream.h"

namespace seeksim::standin {

class OwnStream {
 public:
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t n) : n_(n) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)), cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { static_cast<void>(cudaFree(data_)); }
  T* get() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }  // tests may read it, since it is really host memory
  std::size_t size() const { return n_; }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

// A thread that plays a rank: it has a GPU of its own and a communicator of all ranks.
struct RankOfThreads {
  int rank = 0;
  ncclComm_t comm = nullptr;
  OwnStream stream;
};

inline ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 100'000 && state == ncclInProgress; ++i) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

// Runs body(rank) on a thread for each rank. Each aborts or destroys its communicator itself.
inline void on_ranks(int ranks, const std::function<void(RankOfThreads&)>& body) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      RankOfThreads own;
      own.rank = rank;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&own.comm, ranks, id, rank, &config), ncclInProgress);
      ASSERT_EQ(settled(own.comm), ncclSuccess);
      body(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace seeksim::standin
