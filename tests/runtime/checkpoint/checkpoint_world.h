// Runs that share disks, one after the other, and a disk on which the power fails at a chosen call.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_files.h"
#include "sim/storage.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {

inline TrainPlan saving_plan(int stage = 0, bool async = false) {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = async ? 9 : 4;  // one is under way for some steps
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.persistence_threshold_elements = 20;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  plan.checkpoint.path = "run/checkpoints";
  plan.checkpoint.every_steps = 1;
  plan.checkpoint.async = async;
  return plan;
}

struct SavingObserver : KeepingObserver {
  std::vector<CheckpointRecord> checkpoints;
  std::vector<std::int64_t> rolled_back_to;
  void checkpoint(int, const CheckpointRecord& record) override { checkpoints.push_back(record); }
  void rolled_back(int, std::int64_t steps) override { rolled_back_to.push_back(steps); }
};

struct SavingRun {
  std::vector<std::optional<TrainOutcome>> outcomes;
  SavingObserver observer;
  sim::WorldResult world;
};

inline SavingRun run_saving(
    const TrainPlan& plan, sim::WorldPlan world_plan, const std::shared_ptr<sim::Disks>& disks,
    const std::function<void(sim::World&)>& prepare = [](sim::World&) {}) {
  SavingRun result;
  if (!plan.checkpoint.node_local) world_plan.storage.shared_path = plan.checkpoint.path;
  result.outcomes.resize(std::size_t(world_plan.ranks()));
  sim::World world(world_plan, disks);
  prepare(world);
  result.world =
      world.run([&](Rank& rank) { result.outcomes[std::size_t(rank.id)] = train(rank, plan, result.observer); });
  for (const sim::Race& race : result.world.races) ADD_FAILURE() << "rank " << race.rank << ": " << race.text;
  EXPECT_EQ(result.world.end, sim::WorldEnd::finished) << result.world.wait_for_graph;
  return result;
}

// The shared disk, as a tool sees it.
struct Looking {
  explicit Looking(sim::Disks& disks, const TrainPlan& plan) : path(plan.checkpoint.path), storage(disks, model, 0, 0) {
    model.shared_path = path;
  }
  std::string folder(std::int64_t step) const { return step_folder(path, step); }
  std::string path;
  sim::StorageModel model;
  sim::SimStorage storage;
};

// Another world's disks with the same files.
inline std::shared_ptr<sim::Disks> copy_of(const sim::Disks& disks) {
  auto copy = std::make_shared<sim::Disks>(disks);
  const auto own = [](sim::Disk& disk) {
    std::map<const sim::Disk::Inode*, std::shared_ptr<sim::Disk::Inode>> inodes;
    for (auto* names : {&disk.names, &disk.durable}) {
      for (auto& [name, inode] : *names) {
        auto& mine = inodes[inode.get()];
        if (mine == nullptr) mine = std::make_shared<sim::Disk::Inode>(*inode);
        inode = mine;
      }
    }
  };
  own(copy->shared);
  for (auto& [node, disk] : copy->by_node) own(disk);
  return copy;
}

// At the n-th call that changes anything, before it happens, the power of all nodes fails.
struct PowerCut {
  int at = -1;  // counted from 1; -1: never
  int calls = 0;
  bool off = false;
  std::set<std::int64_t> steps;  // whose folders were written to
  std::function<void()> fails;

  bool happens(std::string_view path) {
    if (off) return false;
    const std::size_t step = path.find("/step-");
    if (step != std::string_view::npos) {
      if (const auto of = step_of_folder(path.substr(step + 1, 15))) steps.insert(*of);
    }
    if (++calls != at) return true;
    off = true;
    fails();
    return false;
  }
};

class CutStorage final : public Storage {
 public:
  CutStorage(Storage& inner, PowerCut& cut) : inner_(inner), cut_(cut) {}
  std::string read(std::string_view path) override { return inner_.read(path); }
  void write(std::string_view path, std::string_view bytes) override {
    if (cut_.happens(path)) inner_.write(path, bytes);
  }
  void sync(std::string_view path) override {
    if (cut_.happens(path)) inner_.sync(path);
  }
  void rename(std::string_view from, std::string_view to) override {
    if (cut_.happens(from)) inner_.rename(from, to);
  }
  void remove(std::string_view path) override {
    if (cut_.happens(path)) inner_.remove(path);
  }
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override {
    return inner_.read_at(path, offset, into);
  }
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override {
    return cut_.happens(path) ? inner_.write_at(path, offset, from) : from.size();
  }
  bool exists(std::string_view path) override { return inner_.exists(path); }
  std::vector<std::string> list(std::string_view folder) override { return inner_.list(folder); }
  std::uint64_t free_bytes(std::string_view folder) override { return inner_.free_bytes(folder); }

 private:
  Storage& inner_;
  PowerCut& cut_;
};

inline SavingRun run_until_power_fails(const TrainPlan& plan, const sim::WorldPlan& world,
                                       const std::shared_ptr<sim::Disks>& disks, PowerCut& cut) {
  std::vector<std::unique_ptr<CutStorage>> storages;
  Clock* clock = nullptr;
  return run_saving(plan, world, disks, [&](sim::World& w) {
    cut.fails = [&] {
      for (int rank = 0; rank < world.ranks(); ++rank) w.kill_at(rank, clock->now(), nullptr);
    };
    w.decorate([&](int, Seams inner) {
      clock = &inner.clock;
      storages.push_back(std::make_unique<CutStorage>(inner.storage, cut));
      return Seams{inner.clock, inner.device, inner.transport, *storages.back(), inner.control};
    });
  });
}

// Two steps of a training on four ranks, then two more on three, at another stage: the bits of one rank.
inline void expect_another_world_goes_on(TrainPlan plan, int stage, const std::string& about) {
  plan.checkpoint = saving_plan(stage).checkpoint;
  plan.definition.steps = 2;
  const auto disks = std::make_shared<sim::Disks>();
  run_saving(plan, world_of(4), disks);
  plan.definition.steps = 4;
  plan.checkpoint.resume = true;
  plan.layout.zero = zero_plan((stage + 1) % 4);
  const SavingRun resumed = run_saving(plan, world_of(3), disks);
  TrainPlan alone = plan;
  alone.checkpoint = {};
  const StateDigest want = run_alone(alone).outcome.state;
  ASSERT_FALSE(resumed.observer.rolled_back_to.empty()) << about;
  EXPECT_EQ(resumed.observer.rolled_back_to.front(), 2) << about;
  for (const auto& outcome : resumed.outcomes) {
    ASSERT_TRUE(outcome && outcome->ending == Ending::finished) << outcome->why;
    EXPECT_EQ(outcome->state, want) << about;
  }
}

}  // namespace seeksim::test
