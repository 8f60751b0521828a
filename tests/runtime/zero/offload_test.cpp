// What offload rests on: no kernel touches memory that it could not touch on a real machine, and a file gives back what
// was written, whatever the disk does on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "kernels/check.h"
#include "runtime/comm/communicator.h"
#include "runtime/files/file_io.h"
#include "runtime/launch/launcher.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

constexpr Index kN = 1000;

// Runs `body` on the one rank of a world.
void on_a_rank(const std::function<void(Rank&)>& body, int ranks = 1) {
  sim::World world(world_of(ranks));
  const sim::WorldResult result = world.run(body);
  for (const sim::RankEnd& end : result.ranks) EXPECT_EQ(end.how, sim::RankEnd::How::returned) << end.what;
}

BufferPtr memory(Rank& rank, Space space) {
  return rank.device.allocate_in(space, std::size_t(kN) * sizeof(float), MemoryTag::scratch, "memory");
}

TEST(Spaces, KernelsTouchTheMemoryOfWhoRunsThem) {
  on_a_rank([](Rank& rank) {
    const auto touch = [&](OpKind kind, Buffer& buffer) {
      Launcher launch(rank.device.compute_queue(), rank.id, 0, kind);
      launch(
          "x", SEEKSIM_SITE, {}, [](kernels::Lane, kernels::Vec<float>) {}, vec<float>(buffer));
    };
    for (const Space space : {Space::device, Space::host, Space::pinned}) {
      const BufferPtr buffer = memory(rank, space);
      EXPECT_NO_THROW(touch(OpKind::copy, *buffer));
      EXPECT_NO_THROW(touch(space == Space::device ? OpKind::compute : OpKind::host_compute, *buffer));
      EXPECT_THROW(touch(space == Space::device ? OpKind::host_compute : OpKind::compute, *buffer), CheckError);
      if (space == Space::device) {
        EXPECT_THROW(touch(OpKind::storage_read, *buffer), CheckError);
      }
      rank.device.drain();
    }
  });
}

TEST(Spaces, CommunicationTouchesTheDevicesMemoryOnly) {
  on_a_rank(
      [](Rank& rank) {
        Communicator comm(rank, Axis::data, 0, rank.control.members(), kSecond);
        const BufferPtr here = memory(rank, Space::device), there = memory(rank, Space::pinned);
        const int peer = 1 - rank.id;
        Queue& queue = rank.device.communication_queue();
        for (const BufferPtr& buffer : {std::cref(here), std::cref(there)}) {
          const Piece piece{peer, rank.id == 0, buffer.get(), 0, 4};
          const std::vector<Piece> pieces = {piece};
          if (buffer->space == Space::device) {
            EXPECT_NO_THROW(comm.exchange(queue, Op{}, pieces));
          } else {
            EXPECT_THROW(comm.exchange(queue, Op{}, pieces), CheckError);
          }
        }
        rank.device.drain();
      },
      2);
}

// A disk with one fault at a time.
class FaultyDisk final : public Storage {
 public:
  enum class Fault { none, short_transfer, torn_write, first_byte, write_error, read_error };
  std::string read(std::string_view path) override { return files_.at(std::string(path)); }
  void write(std::string_view path, std::string_view bytes) override { files_[std::string(path)] = bytes; }
  void sync(std::string_view) override {}
  void rename(std::string_view, std::string_view) override {}
  void remove(std::string_view path) override { files_.erase(std::string(path)); }
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override {
    if (strikes(Fault::read_error)) throw SeamError(ErrorKind::io, Op{}, "cannot be read");
    const std::string& file = files_[std::string(path)];
    std::size_t n = offset < file.size() ? std::min<std::size_t>(into.size(), file.size() - offset) : 0;
    if (strikes(Fault::short_transfer)) n /= 2;
    std::memcpy(into.data(), file.data() + offset, n);
    return n;
  }
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override {
    if (strikes(Fault::write_error)) throw SeamError(ErrorKind::io, Op{}, "cannot be written");
    std::string& file = files_[std::string(path)];
    std::size_t n = from.size();
    if (strikes(Fault::short_transfer)) n /= 2;
    file.resize(std::max<std::size_t>(file.size(), offset + n));
    std::memcpy(file.data() + offset, from.data(), strikes(Fault::torn_write) ? n / 2 : n);
    if (strikes(Fault::first_byte)) file[offset] ^= 1;
    return n;
  }
  bool exists(std::string_view path) override { return files_.contains(std::string(path)); }
  std::vector<std::string> list(std::string_view) override { return {}; }
  std::uint64_t free_bytes(std::string_view) override { return 0; }

  std::string& file(const std::string& path) { return files_[path]; }
  Fault fault = Fault::none;
  int times = 0;  // that it still strikes

 private:
  bool strikes(Fault which) { return fault == which && times-- > 0; }
  std::map<std::string, std::string> files_;
};

// Writes 0, 1, 2, ... and reads it into other memory; what came is returned. between: after the write.
std::vector<float> there_and_back(
    Rank& rank, FaultyDisk& disk, const std::function<void()>& between = [] {}) {
  TrainPlan plan;
  plan.layout.offload.aio.block_bytes = 300;
  plan.layout.offload.aio.queue_depth = 2;
  plan.recovery.storage_attempts_max = 3;
  Rank with_disk{rank.id, rank.world_size, rank.clock, rank.device, rank.transport, disk, rank.control, rank.recorder};
  FileIo io(with_disk, plan);
  const std::string path = "file";
  const BufferPtr from = memory(rank, Space::host), into = memory(rank, Space::pinned);
  float* const values = vec<float>(*from).get().data;
  std::iota(values, values + kN, 0.0f);
  Transfer write, read;
  write.path = read.path = &path;
  write.offset = read.offset = 40;
  write.values = vec<float>(*from);
  write.write = true;
  io.start(write);
  io.finish(write);
  between();
  read.values = vec<float>(*into);
  read.digest = write.digest;
  io.start(read);
  io.finish(read);
  const float* const came = vec<float>(*into).get().data;
  return {came, came + kN};
}

TEST(FileIo, GivesBackWhatWasWritten) {
  std::vector<float> wanted(kN);
  std::iota(wanted.begin(), wanted.end(), 0.0f);
  using Fault = FaultyDisk::Fault;
  for (const Fault fault : {Fault::none, Fault::short_transfer, Fault::torn_write, Fault::first_byte,
                            Fault::write_error, Fault::read_error}) {
    for (const int times : {1, 2}) {
      on_a_rank([&](Rank& rank) {
        FaultyDisk disk;
        disk.fault = fault;
        disk.times = times;
        EXPECT_EQ(there_and_back(rank, disk), wanted) << int(fault) << ", " << times << " times";
        if (fault != Fault::none) {
          EXPECT_LE(disk.times, 0) << "the fault struck";
        }
      });
    }
  }
}

TEST(FileIo, NamesWhatItCannotDo) {
  using Fault = FaultyDisk::Fault;
  for (const Fault fault : {Fault::short_transfer, Fault::torn_write, Fault::write_error, Fault::read_error}) {
    on_a_rank([&](Rank& rank) {
      FaultyDisk disk;
      disk.fault = fault;
      disk.times = 1 << 20;
      try {
        there_and_back(rank, disk);
        // Half of what is left comes each time: with enough attempts that would be all.
        ADD_FAILURE() << int(fault) << " went unnoticed";
      } catch (const SeamError& error) {
        EXPECT_EQ(error.kind(), ErrorKind::io);
        for (const char* part : {"file of rank 0", "from byte 40", "3 times"})
          EXPECT_NE(error.detail().find(part), std::string::npos) << error.detail();
      }
    });
  }
}

TEST(FileIo, NoticesContentThatChanged) {
  on_a_rank([](Rank& rank) {
    FaultyDisk disk;
    try {
      there_and_back(rank, disk, [&] { disk.file("file")[1234] ^= 1; });
      ADD_FAILURE() << "a flipped bit went unnoticed";
    } catch (const SeamError& error) {
      EXPECT_NE(error.detail().find("its checksum is not that of what was written"), std::string::npos)
          << error.detail();
    }
  });
}

}  // namespace
}  // namespace seeksim::test
