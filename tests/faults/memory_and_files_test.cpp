// Allocations that fail and files that lie: what each kind does, that it fires as often as it says and where it says.
#include <gtest/gtest.h>

#include "sim/storage.h"
#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {
namespace {

using runtime::MemoryTag;
using runtime::Space;

// One rank over a simulated disk, under the given rules.
class DiskBench {
 public:
  explicit DiskBench(std::vector<Rule> rules)
      : disk_(disks_, model_, 0, 0), plan(std::move(rules), 1, {0}), seams(plan.decorate(0, with_disk())) {}

  std::string read(std::uint64_t offset, std::size_t bytes) {
    std::string text(bytes, '?');
    const std::size_t n = seams.storage.read_at("nvme/a", offset, std::as_writable_bytes(std::span(text)));
    text.resize(n);
    return text;
  }
  std::size_t write(const std::string& text) {
    return seams.storage.write_at("nvme/a", 0, std::as_bytes(std::span(text)));
  }
  std::string truth() { return disk_.read("nvme/a"); }
  ErrorKind error_of(const std::function<void()>& act, std::string* text = nullptr) {
    try {
      act();
    } catch (const runtime::SeamError& error) {
      if (text != nullptr) *text = error.what();
      return error.kind();
    }
    return ErrorKind::count_;
  }

 private:
  Seams with_disk() { return {inner_.clock, inner_.device, inner_.transport, disk_, inner_.control}; }

  sim::StorageModel model_;
  sim::Disks disks_;
  sim::SimStorage disk_;
  Inner inner_;

 public:
  FaultPlan plan;
  Seams seams;
};

const std::string kText(2048, 'x');

TEST(FileFaults, AReadFailsOnceAndNamesTheFile) {
  DiskBench bench({rule(FaultKind::nvme_read_error)});
  bench.write(kText);
  std::string text;
  EXPECT_EQ(bench.error_of([&] { bench.read(0, 4); }, &text), ErrorKind::io);
  EXPECT_NE(text.find("nvme/a: input/output error"), std::string::npos) << text;
  EXPECT_EQ(bench.read(0, 4), "xxxx");
  EXPECT_EQ(bench.plan.status()[0].fired, 1u);
}

TEST(FileFaults, ACheckpointsFileIsDamagedOnceItIsDurable) {
  for (const Mode mode : {Mode::truncate, Mode::flip, Mode::missing}) {
    Rule r = rule(FaultKind::checkpoint_corrupt);
    r.path = "nvme/a";
    r.mode = mode;
    r.bit = 9;
    DiskBench bench({r});
    bench.write(kText);
    EXPECT_EQ(bench.truth(), kText) << "not durable yet";
    bench.seams.storage.sync("nvme/a");
    EXPECT_EQ(bench.plan.status()[0].fired, 1u);
    if (mode == Mode::missing) {
      EXPECT_FALSE(bench.seams.storage.exists("nvme/a"));
      continue;
    }
    EXPECT_EQ(bench.truth().size(), mode == Mode::truncate ? 1024u : 2048u);
    EXPECT_EQ(bench.truth()[1], mode == Mode::flip ? char('x' ^ 2) : 'x');
    bench.write(kText);
    bench.seams.storage.sync("nvme/a");
    EXPECT_EQ(bench.truth(), kText) << "once";
  }
}

TEST(FileFaults, ALostCheckpointIsGoneWithAllThatLiesBesideIt) {
  Rule r = rule(FaultKind::lost_checkpoint);
  DiskBench bench({r});
  Storage& disk = bench.seams.storage;
  disk.write("c/step-1/rank-0", "x");
  disk.write("c/step-1/manifest.json.tmp", "{}");
  disk.write("c/step-2/rank-0", "y");
  disk.sync("c/step-1/rank-0");
  EXPECT_EQ(disk.list("c/step-1").size(), 2u);
  disk.rename("c/step-1/manifest.json.tmp", "c/step-1/manifest.json");
  EXPECT_TRUE(disk.list("c/step-1").empty());
  EXPECT_TRUE(disk.exists("c/step-2/rank-0"));
  EXPECT_EQ(bench.plan.status()[0].fired, 1u);
}

TEST(FileFaults, AShortReadBringsHalfInSectorsAndSaysSo) {
  DiskBench bench({rule(FaultKind::nvme_short_read)});
  bench.write(kText);
  EXPECT_EQ(bench.read(0, 2048).size(), 1024u);
  EXPECT_EQ(bench.read(0, 2048).size(), 2048u);
}

TEST(FileFaults, AShortReadBringsSoManyBytesWhereTheRuleSaysHowMany) {
  Rule r = rule(FaultKind::nvme_short_read);
  r.bytes = 100;
  r.count = 2;
  DiskBench bench({r});
  bench.write(kText);
  EXPECT_EQ(bench.read(0, 2048).size(), 100u);
  EXPECT_EQ(bench.read(0, 60).size(), 60u) << "no more than was asked for";
  EXPECT_EQ(bench.read(0, 2048).size(), 2048u);
}

TEST(FileFaults, AWriteFailsAndLeavesWhatWasThere) {
  Rule r = rule(FaultKind::nvme_write_error);
  r.when.call = 2;
  DiskBench bench({r});
  bench.write(kText);
  EXPECT_EQ(bench.error_of([&] { bench.write(std::string(2048, 'y')); }), ErrorKind::io);
  EXPECT_EQ(bench.truth(), kText);
  EXPECT_EQ(bench.write(std::string(2048, 'y')), 2048u);
}

TEST(FileFaults, ATornWriteSaysItIsWhole) {
  Rule r = rule(FaultKind::nvme_torn_write);
  r.when.call = 2;
  DiskBench bench({r});
  bench.write(kText);
  EXPECT_EQ(bench.write(std::string(2048, 'y')), 2048u);
  EXPECT_EQ(bench.truth(), std::string(1024, 'y') + std::string(1024, 'x'));
}

TEST(FileFaults, AFullDiskTakesNothing) {
  Rule r = rule(FaultKind::disk_full);
  r.count = 0;
  DiskBench bench({r});
  EXPECT_EQ(bench.write(kText), 0u);
  std::string text;
  EXPECT_EQ(bench.error_of([&] { bench.seams.storage.write("nvme/b", "whole"); }, &text), ErrorKind::io);
  EXPECT_NE(text.find("no space left"), std::string::npos) << text;
  EXPECT_EQ(bench.error_of([&] { bench.seams.storage.sync("nvme"); }), ErrorKind::io);
}

TEST(FileFaults, OnlyFilesWithThePath) {
  Rule r = rule(FaultKind::nvme_read_error);
  r.path = "nvme/b";
  r.count = 0;
  DiskBench bench({r});
  bench.write(kText);
  bench.seams.storage.write("nvme/b", "x");
  EXPECT_EQ(bench.read(0, 1), "x");
  EXPECT_EQ(bench.error_of([&] { bench.seams.storage.read("nvme/b"); }), ErrorKind::io);
}

TEST(FileFaults, ASlowDiskStretchesItsOperationsOnly) {
  Rule r = rule(FaultKind::slow_disk);
  r.when.rank = 0;
  Bench bench({r});
  runtime::Device& device = bench.seams[0].device;
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 0, 0), {}), 1000);
  EXPECT_EQ(device.duration(of_kind(OpKind::storage_read, 0, 0), {}), 10000);
  EXPECT_EQ(device.duration(of_kind(OpKind::storage_write, 0, 0), {}), 10000);
}

// The step of a read is that of the operation that the storage queue has begun.
TEST(FileFaults, TheStepIsTheStorageQueues) {
  Rule r = rule(FaultKind::nvme_read_error);
  r.when.step = 3;
  DiskBench bench({r});
  bench.write(kText);
  bench.seams.device.duration(of_kind(OpKind::storage_read, 0, 2), {});
  EXPECT_EQ(bench.read(0, 1), "x");
  bench.seams.device.duration(of_kind(OpKind::storage_read, 0, 3), {});
  EXPECT_EQ(bench.error_of([&] { bench.read(0, 1); }), ErrorKind::io);
  ASSERT_TRUE(bench.plan.status()[0].first_op);
  EXPECT_EQ(bench.plan.status()[0].first_op->step, 3);
}

ErrorKind allocation(Bench& bench, Space space, MemoryTag tag, std::size_t bytes = 64) {
  try {
    bench.seams[0].device.allocate_in(space, bytes, tag, "ln_1");
  } catch (const runtime::SeamError& error) {
    return error.kind();
  }
  return ErrorKind::count_;
}

TEST(MemoryFaults, TheNthAllocationFails) {
  Rule r = rule(FaultKind::oom);
  r.when.call = 3;
  Bench bench({r});
  for (int n = 1; n <= 4; ++n) {
    EXPECT_EQ(allocation(bench, Space::device, MemoryTag::activations),
              n == 3 ? ErrorKind::out_of_memory : ErrorKind::count_)
        << n;
  }
}

TEST(MemoryFaults, OfATag) {
  Rule r = rule(FaultKind::oom);
  r.tag = "gradients";
  Bench bench({r});
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::activations), ErrorKind::count_);
  EXPECT_EQ(allocation(bench, Space::host, MemoryTag::gradients), ErrorKind::count_);
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::gradients), ErrorKind::out_of_memory);
}

// The device of these tests says that 3 bytes are in use.
TEST(MemoryFaults, BeyondABudget) {
  Rule r = rule(FaultKind::oom);
  r.bytes = 100;
  r.count = 0;
  Bench bench({r});
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::data, 97), ErrorKind::count_);
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::data, 98), ErrorKind::out_of_memory);
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::data, 97), ErrorKind::count_);
}

TEST(MemoryFaults, PinnedMemoryHasItsOwn) {
  Bench bench({rule(FaultKind::pinned_alloc_failure)});
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::staging), ErrorKind::count_);
  EXPECT_EQ(allocation(bench, Space::host, MemoryTag::staging), ErrorKind::count_);
  EXPECT_EQ(allocation(bench, Space::pinned, MemoryTag::staging), ErrorKind::out_of_memory);
}

TEST(MemoryFaults, TheStepIsTheLastLaunchs) {
  Rule r = rule(FaultKind::oom);
  r.when.step = 2;
  Bench bench({r});
  runtime::Queue& queue = bench.seams[0].device.compute_queue();
  const auto launch = [&](std::int64_t step) {
    queue.launch(of_kind(OpKind::compute, 0, step), {}, [](kernels::Lane) {});
  };
  launch(1);
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::data), ErrorKind::count_);
  launch(2);
  EXPECT_EQ(allocation(bench, Space::device, MemoryTag::data), ErrorKind::out_of_memory);
}

TEST(MemoryFaults, OfACommunicatorOnlyWhenItSaysSo) {
  const Op op = of_kind(OpKind::comm_create, 0, -1);
  Bench plain({rule(FaultKind::oom)});
  EXPECT_NO_THROW(plain.seams[0].transport.create(op, {}, kForever));
  Rule r = rule(FaultKind::oom);
  r.when.op = OpKind::comm_create;
  Bench bench({r});
  EXPECT_THROW(bench.seams[0].transport.create(op, {}, kForever), runtime::SeamError);
}

TEST(MemoryFaults, AnUnknownTagIsRefused) {
  Rule r = rule(FaultKind::oom);
  r.tag = "gradient";
  const std::vector<Problem> found = problems(r, {0});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "tag");
}

}  // namespace
}  // namespace seeksim::faults::test
