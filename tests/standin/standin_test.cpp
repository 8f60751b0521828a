// The stand-in itself: what NVIDIA's documents say about streams, memory and communicators, and that it fails where
// they forbid something. Also the bugs of our own queues that it found.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <numeric>

#include "kernels/layer_norm.h"
#include "kernels/pointwise.h"
#include "runtime/backend/gpu/cuda_device.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/machine/wall_clock.h"
#include "tests/standin/memory.h"
#include "tests/standin/ranks_of_threads.h"

namespace seeksim::standin {
namespace {

using runtime::Index;

// A kernel that ends when the test opens its gate.
class Gate {
 public:
  void put_into(cudaStream_t stream) {
    stream->enqueue("a kernel that waits", [opened = opened_] { opened.wait(); });
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

// ---- streams -------------------------------------------------------------------------------------------------------

// Only events order items of different streams: the oracle of everything below.
TEST(StandinStreams, AMissingEventWaitIsSeen) {
  for (const bool waits : {true, false}) {
    const OwnStream first, second;
    const OnDevice<std::uint8_t> from(8), to(8);
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(from.get(), 1, 8, first), cudaSuccess);
    Gate gate;
    gate.put_into(first);
    ASSERT_EQ(cudaMemsetAsync(from.get(), 2, 8, first), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    if (waits) {
      ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
      gate.open();
    }
    ASSERT_EQ(cudaMemcpyAsync(to.get(), from.get(), 8, cudaMemcpyDefault, second), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_EQ(to[0] == 2, waits);
    if (!waits) gate.open();
    ASSERT_EQ(cudaStreamSynchronize(first), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    static_cast<void>(cudaGetLastError());
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
}

TEST(StandinStreams, PageableMemoryIsReadAtOnceAndPinnedMemoryWhenTheStreamComesThere) {
  const OwnStream stream;
  const OnDevice<int> to(2);
  int pageable = 1;
  int* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), sizeof(int), 0), cudaSuccess);
  *pinned = 1;
  Gate gate;
  gate.put_into(stream);
  ASSERT_EQ(cudaMemcpyAsync(to.get(), &pageable, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(to.get() + 1, pinned, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
  pageable = *pinned = 2;
  gate.open();
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(to[0], 1);
  EXPECT_EQ(to[1], 2);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST(StandinStreams, PastItsCapacityThereIsNoMemoryAndTheErrorIsNotSticky) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, std::size_t(1) << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(StandinDeathTest, AnErrorOfAKernelIsTheContextsForEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const OwnStream stream;
        static_cast<cudaStream_t>(stream)->enqueue("a kernel", [] { throw std::runtime_error("planted"); });
        const bool told = cudaStreamSynchronize(stream) == cudaErrorLaunchFailure;
        void* p = nullptr;
        std::_Exit(told && cudaMalloc(&p, 8) == cudaErrorLaunchFailure &&
                           cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure
                       ? 7
                       : 1);
      },
      testing::ExitedWithCode(7), "planted");
}

TEST(StandinDeathTest, AForkedProcessCannotUseWhatItsParentUsed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        int gpus = 0;
        const bool here = cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0;
        const pid_t child = ::fork();
        if (child == 0) std::_Exit(cudaGetDeviceCount(&gpus) == cudaErrorInitializationError ? 7 : 1);
        int status = 0;
        std::_Exit(here && ::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

// ---- communicators -------------------------------------------------------------------------------------------------

TEST(StandinNccl, ReductionsGoRoundTheRing) {
  constexpr int kRanks = 3;
  constexpr std::size_t kN = 20'001;  // no multiple of the ranks, and more than a ring of bytes holds
  const auto own = [](int rank, std::size_t i) { return 0.1f * float(rank + 1) + 1e-3f * float(i % 97); };
  // The parts of the others in the order of the ring, from the one behind the owner on; its own last.
  const auto sum = [&](int owner, std::size_t i) {
    float s = own((owner + 1) % kRanks, i);
    for (int hop = 2; hop <= kRanks; ++hop) s += own((owner + hop) % kRanks, i);
    return s;
  };
  on_ranks(kRanks, [&](RankOfThreads& me) {
    const OnDevice<float> from(kN), all(kN), rooted(kN), scattered(kN / kRanks);
    for (std::size_t i = 0; i < kN; ++i) from[i] = own(me.rank, i);
    EXPECT_EQ(ncclAllReduce(from.get(), all.get(), kN, ncclFloat32, ncclSum, me.comm, me.stream), ncclInProgress);
    ASSERT_EQ(settled(me.comm), ncclSuccess);
    EXPECT_EQ(ncclReduce(from.get(), rooted.get(), kN, ncclFloat32, ncclSum, 1, me.comm, me.stream), ncclSuccess);
    EXPECT_EQ(ncclReduceScatter(from.get(), scattered.get(), kN / kRanks, ncclFloat32, ncclSum, me.comm, me.stream),
              ncclSuccess);
    ASSERT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
    const std::size_t each = (kN + kRanks - 1) / kRanks;
    for (std::size_t i = 0; i < kN; ++i) {
      ASSERT_EQ(all[i], sum(int(i / each), i)) << i;
      if (me.rank == 1) {
        ASSERT_EQ(rooted[i], sum(1, i)) << i;
      }
    }
    for (std::size_t i = 0; i < kN / kRanks; ++i)
      ASSERT_EQ(scattered[i], sum(me.rank, std::size_t(me.rank) * (kN / kRanks) + i)) << i;
    EXPECT_EQ(ncclCommFinalize(me.comm), ncclInProgress);
    EXPECT_EQ(settled(me.comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(me.comm), ncclSuccess);
  });
}

// The first group with a peer: its work comes to the stream when both have begun. Using the stream before that is red.
TEST(StandinNccl, AStreamThatIsTouchedWhileAGroupConnectsIsSeen) {
  for (const bool touches : {false, true}) {
    const Collected red;
    std::atomic<bool> go{false};
    on_ranks(2, [&](RankOfThreads& me) {
      const OnDevice<std::uint8_t> buffer(100);
      if (me.rank == 1) {
        go.wait(false);
        EXPECT_EQ(ncclRecv(buffer.get(), 100, ncclUint8, 0, me.comm, me.stream), ncclInProgress);
      } else {
        EXPECT_EQ(ncclSend(buffer.get(), 100, ncclUint8, 1, me.comm, me.stream), ncclInProgress);
        // Nor does the communicator take another call, and it is poisoned by one.
        ncclResult_t state = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(me.comm, &state), ncclSuccess);
        EXPECT_EQ(state, ncclInProgress);
        if (touches) {
          EXPECT_EQ(cudaMemsetAsync(buffer.get(), 0, 100, me.stream), cudaSuccess);
        }
        go = true;
        go.notify_one();
      }
      EXPECT_EQ(settled(me.comm), ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
      EXPECT_EQ(ncclCommAbort(me.comm), ncclSuccess);
    });
    ASSERT_EQ(red.all().size(), touches ? 1u : 0u);
    if (touches) {
      EXPECT_NE(red.all()[0].find("while a group of NCCL is in progress"), std::string::npos) << red.all()[0];
    }
  }
}

TEST(StandinNccl, AnErrorInAGroupDropsItAndPoisonsACommunicatorThatIsThenNotDestroyed) {
  const Collected red;
  on_ranks(1, [&](RankOfThreads& me) {
    const OnDevice<std::uint8_t> buffer(100);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(buffer.get(), 50, ncclUint8, 0, me.comm, me.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(buffer.get() + 50, 50, ncclUint8, 3, me.comm, me.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(settled(me.comm), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "there is no group";
    EXPECT_TRUE(red.all().empty());
    EXPECT_EQ(ncclCommDestroy(me.comm), ncclInvalidArgument);
    EXPECT_EQ(red.all().size(), 1u) << "of the destroy";
    EXPECT_EQ(ncclCommAbort(me.comm), ncclSuccess);
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(me.comm, &state), ncclInvalidArgument);
    EXPECT_EQ(red.all().size(), 2u) << "of a handle that is gone";
  });
}

TEST(StandinNccl, MessagesOfAnotherSizeAreSeen) {
  const Collected red;
  on_ranks(2, [&](RankOfThreads& me) {
    const OnDevice<std::uint8_t> buffer(100);
    const ncclResult_t result = me.rank == 0 ? ncclSend(buffer.get(), 100, ncclUint8, 1, me.comm, me.stream)
                                             : ncclRecv(buffer.get(), 90, ncclUint8, 0, me.comm, me.stream);
    EXPECT_EQ(result, ncclInProgress);
    EXPECT_EQ(settled(me.comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
    EXPECT_EQ(ncclCommAbort(me.comm), ncclSuccess);
  });
  ASSERT_EQ(red.all().size(), 1u);
  EXPECT_NE(red.all()[0].find("receives 90 bytes"), std::string::npos) << red.all()[0];
}

// A peer that does not come is not reported. An abort ends the wait, and the stream goes on as if nothing had happened.
TEST(StandinNccl, AHungOperationReportsSuccessAndAnAbortFreesItsStream) {
  on_ranks(2, [&](RankOfThreads& me) {
    const OnDevice<std::uint8_t> buffer(8);
    for (int round = 0; round < 2 - me.rank; ++round) {  // rank 1 leaves after the first
      if (me.rank == 0)
        static_cast<void>(ncclRecv(buffer.get(), 8, ncclUint8, 1, me.comm, me.stream));
      else
        static_cast<void>(ncclSend(buffer.get(), 8, ncclUint8, 0, me.comm, me.stream));
      EXPECT_EQ(settled(me.comm), ncclSuccess);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(settled(me.comm), ncclSuccess);
    if (me.rank == 1) {
      EXPECT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
    }
    EXPECT_EQ(ncclCommAbort(me.comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
  });
}

TEST(StandinNccl, TwoRanksOnOneGpuAreRefused) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
      EXPECT_EQ(settled(comm), ncclInvalidUsage);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- our queues on it ----------------------------------------------------------------------------------------------

struct OwnDevice {
  runtime::Signals signals;
  runtime::WallClock wall;
  runtime::ProgressLoop loop{wall};
  runtime::CudaDevice device{loop, signals, 0, {std::size_t(1) << 30, std::size_t(1) << 30, std::size_t(1) << 30}, 0};
  runtime::WaitResult wait(const runtime::Event& event, runtime::TimeNs for_ns) {
    return device.wait(event, runtime::later(wall.now(), for_ns), ~std::uint32_t(0));
  }
};

// An event belongs to its place: it does not wait for later items of the queue. (It did once: pipelines hung.)
TEST(StandinQueues, AnEventDoesNotWaitForWhatWasEnqueuedBehindIt) {
  Gate gate;
  OwnDevice own;
  runtime::Queue& first = own.device.communication_queue();
  runtime::Queue& second = own.device.compute_queue();
  const runtime::BufferPtr buffer = own.device.allocate(64, runtime::MemoryTag::scratch, "buffer");
  const auto fill = [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0x3f800000u); };
  runtime::Op op;
  first.launch(op, {}, fill, runtime::vec<float>(*buffer));
  const runtime::Event there = first.record();
  first.launch(
      op, {},
      [&gate](kernels::Lane lane, kernels::Vec<float>) { gate.put_into(static_cast<cudaStream_t>(lane.stream)); },
      runtime::vec<float>(*buffer));
  second.wait(there);
  second.launch(op, {}, fill, runtime::vec<float>(*buffer));
  EXPECT_EQ(own.wait(second.record(), 5 * runtime::kSecond), runtime::WaitResult::done);
  EXPECT_EQ(own.wait(there, 5 * runtime::kSecond), runtime::WaitResult::done);
  gate.open();
  own.device.drain();
}

// A host that asks whether an event is there leaves no error for the next launch. (It did once.)
TEST(StandinQueues, AQuestionThatIsAnsweredByNotYetIsNoError) {
  Gate gate;
  OwnDevice own;
  runtime::Queue& queue = own.device.compute_queue();
  const runtime::BufferPtr buffer = own.device.allocate(64, runtime::MemoryTag::scratch, "buffer");
  runtime::Op op;
  queue.launch(
      op, {},
      [&gate](kernels::Lane lane, kernels::Vec<float>) { gate.put_into(static_cast<cudaStream_t>(lane.stream)); },
      runtime::vec<float>(*buffer));
  EXPECT_FALSE(queue.done(queue.record()));
  gate.open();
  queue.launch(
      op, {}, [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0); },
      runtime::vec<float>(*buffer));
  EXPECT_EQ(own.wait(queue.record(), 5 * runtime::kSecond), runtime::WaitResult::done);
}

// Memory that others have is out_of_memory where the budget has room; the next call does not report it again.
TEST(StandinQueues, MemoryThatOthersHaveIsOutOfMemoryOnce) {
  ::setenv("SEEKSIM_STANDIN_MEMORY", "1000000", 1);
  OwnDevice own;
  void* others = nullptr;
  ASSERT_EQ(cudaMalloc(&others, 900'000), cudaSuccess);
  try {
    static_cast<void>(own.device.allocate(200'000, runtime::MemoryTag::scratch, "too much"));
    ADD_FAILURE() << "there was room";
  } catch (const runtime::SeamError& error) {
    EXPECT_EQ(error.kind(), runtime::ErrorKind::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("has none left, though the budget"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(static_cast<void>(own.device.allocate(64, runtime::MemoryTag::scratch, "little")));
  EXPECT_EQ(cudaFree(others), cudaSuccess);
  ::unsetenv("SEEKSIM_STANDIN_MEMORY");
}

// The same for the working memory of a kernel. (The next launch used to report it, too.)
TEST(StandinQueues, WorkingMemoryThatIsNotThereIsOutOfMemoryOnce) {
  constexpr Index kRows = 400, kColumns = 500;
  ::setenv("SEEKSIM_STANDIN_MEMORY", "1000000", 1);
  OwnDevice own;
  runtime::Queue& queue = own.device.compute_queue();
  const runtime::BufferPtr dy =
      own.device.allocate(kRows * kColumns * sizeof(float), runtime::MemoryTag::scratch, "dy");
  const runtime::BufferPtr out = own.device.allocate(kColumns * sizeof(float), runtime::MemoryTag::scratch, "out");
  runtime::Op op;
  queue.launch(
      op, {},
      [](kernels::Lane lane, kernels::Vec<const float> x, kernels::Vec<float> sums) {
        kernels::bias_grad<float>(lane, {x.data, kRows, kColumns, kColumns}, 1, sums);
      },
      runtime::vec<const float>(*dy), runtime::vec<float>(*out));
  try {
    own.wait(queue.record(), 5 * runtime::kSecond);
    ADD_FAILURE() << "there was room";
  } catch (const runtime::SeamError& error) {
    EXPECT_EQ(error.kind(), runtime::ErrorKind::out_of_memory) << error.what();
  }
  own.device.drain();
  queue.launch(
      op, {}, [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0); },
      runtime::vec<float>(*out));
  EXPECT_EQ(own.wait(queue.record(), 5 * runtime::kSecond), runtime::WaitResult::done);
  ::unsetenv("SEEKSIM_STANDIN_MEMORY");
}

}  // namespace
}  // namespace seeksim::standin
