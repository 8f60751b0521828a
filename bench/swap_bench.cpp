// The optimizer's state to files and back, as a step of NVMe offload does it (pieces, blocks, checksums, read-back of
// what is written), beside a plain loop of pwrite and pread with the same block on the same file system, in turn.
//
//   bench_swap_bench [folder] [MiB of state] [block in KiB] [rounds]
//
// Both sync what they write, and both read with an empty page cache: after POSIX_FADV_DONTNEED. Prints medians of wall
// time, since a disk is measured, and it is not busy for one process only.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/backend/machine/posix_storage.h"
#include "runtime/zero/swapped_state.h"
#include "sim/world.h"

namespace {

using namespace seeksim;
using runtime::AnyVec;

struct Seconds {
  std::vector<double> write, read;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

[[noreturn]] void fail(const std::string& what) {
  std::perror(("bench_swap_bench: " + what).c_str());
  std::exit(1);
}

// Drops the page cache of the file, so that the next read comes from the disk. The file must have been synced.
void forget_pages(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) fail(path);
  ::close(fd);
}

// dd if=memory of=file bs=block conv=fsync, and back.
void plain_round(const std::string& path, std::vector<char>& memory, std::size_t block, Seconds& out) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  if (fd < 0) fail(path);
  out.write.push_back(seconds_of([&] {
    for (std::size_t at = 0; at < memory.size(); at += block) {
      const std::size_t n = std::min(block, memory.size() - at);
      if (::pwrite(fd, memory.data() + at, n, off_t(at)) != ssize_t(n)) fail(path);
    }
    if (::fsync(fd) != 0) fail(path);
  }));
  forget_pages(path);
  out.read.push_back(seconds_of([&] {
    for (std::size_t at = 0; at < memory.size(); at += block) {
      const std::size_t n = std::min(block, memory.size() - at);
      if (::pread(fd, memory.data() + at, n, off_t(at)) != ssize_t(n)) fail(path);
    }
  }));
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const std::size_t bytes = std::size_t(argc > 2 ? std::atoi(argv[2]) : 384) << 20;
  const std::size_t block = std::size_t(argc > 3 ? std::atoi(argv[3]) : 1024) << 10;
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  const runtime::Index elements = runtime::Index(bytes / 3 / sizeof(float));

  runtime::TrainPlan plan;
  plan.layout.zero = runtime::zero_plan(2);
  plan.layout.zero.sub_group_elements = elements / 8;
  plan.layout.offload.optimizer.home = runtime::Home::nvme;
  plan.layout.offload.optimizer.nvme_path = "swap_bench";
  plan.layout.offload.aio.block_bytes = std::int64_t(block);

  runtime::PosixStorage files(folder);
  sim::World world((sim::WorldPlan()));
  world.decorate([&](int, runtime::Seams inner) {
    return runtime::Seams{inner.clock, inner.device, inner.transport, files, inner.control};
  });
  Seconds plain, swap;
  const sim::WorldResult result = world.run([&](runtime::Rank& rank) {
    std::vector<char> memory(bytes, 'x');
    const std::string path = folder + "/swap_bench.plain";
    std::array<runtime::BufferPtr, 3> state;
    std::vector<AnyVec> values(state.size());
    for (std::size_t kind = 0; kind < state.size(); ++kind) {
      state[kind] = rank.device.allocate_in(runtime::Space::host, std::size_t(elements) * sizeof(float),
                                            runtime::MemoryTag::staging, "state");
      values[kind] = AnyVec(state[kind].get(), 0, elements, runtime::ElementType::f32);
    }
    runtime::SwappedState files_of_state(rank, plan, "bench", runtime::ElementType::f32, elements);
    for (int round = 0; round <= rounds; ++round) {
      Seconds ours, theirs;
      plain_round(path, memory, block, theirs);
      ours.write.push_back(seconds_of([&] { files_of_state.store(values); }));
      for (const std::string& name : files.list("swap_bench/rank0")) forget_pages(folder + "/swap_bench/rank0/" + name);
      ours.read.push_back(seconds_of([&] { files_of_state.load(values); }));
      if (round == 0) continue;  // makes the files
      plain.write.push_back(theirs.write[0]), plain.read.push_back(theirs.read[0]);
      swap.write.push_back(ours.write[0]), swap.read.push_back(ours.read[0]);
    }
    files_of_state.remove_files();
    ::unlink(path.c_str());
  });
  ::rmdir((folder + "/swap_bench/rank0").c_str());
  ::rmdir((folder + "/swap_bench").c_str());
  if (result.end != sim::WorldEnd::finished || result.ranks[0].how != sim::RankEnd::How::returned) {
    std::fprintf(stderr, "bench_swap_bench: %s\n", result.ranks[0].what.c_str());
    return 1;
  }
  const double mb = double(bytes) / 1e6;
  const auto line = [&](const char* what, const std::vector<double>& ours, const std::vector<double>& theirs) {
    const double a = mb / median(ours), b = mb / median(theirs);
    std::printf("%-5s  swap %7.0f MB/s   plain loop %7.0f MB/s   ratio %.2f\n", what, a, b, a / b);
  };
  std::printf("%.0f MB of state, blocks of %zu KiB, %d rounds, medians\n", mb, block >> 10, rounds);
  line("write", swap.write, plain.write);
  line("read", swap.read, plain.read);
  return 0;
}
