// Files: what is seen, what lasts, and what a node takes with it.
#include "sim/storage.h"

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

TEST(Storage, ReadsWhatWasWrittenAndNamesWhatIsMissing) {
  World world(small_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    if (rank.id == 0) {
      rank.storage.write("run/a", "one");
      rank.storage.write("run/b", "two");
      rank.storage.rename("run/b", "run/c");
      rank.storage.write("run/a", "three");
      EXPECT_EQ(rank.storage.list("run"), (std::vector<std::string>{"a", "c"}));
    }
    rank.clock.sleep_until(1);
    EXPECT_EQ(rank.storage.read("run/a"), "three");  // the node's files, not the rank's
    std::string text;
    EXPECT_EQ(failure_of([&] { rank.storage.read("run/b"); }, &text), ErrorKind::io);
    EXPECT_NE(text.find("run/b: no such file"), std::string::npos) << text;
    EXPECT_TRUE(rank.storage.exists("run/c"));
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Storage, ADeadNodeLosesWhatWasNotSynced) {
  Disks disks;
  const StorageModel model;
  SimStorage files(disks, model, 0, 0);
  files.write("f/kept", "old");
  files.write("f/renamed.tmp", "whole");
  files.sync("f/kept");
  files.sync("f/renamed.tmp");
  files.sync("f");
  files.write("f/kept", "new");
  files.rename("f/renamed.tmp", "f/renamed");
  files.write("f/nameless", "x");
  files.sync("f/nameless");  // its content is safe, its name is not
  disks.by_node[0].lose_what_is_not_synced();
  EXPECT_EQ(files.read("f/kept"), "old");
  EXPECT_EQ(files.list("f"), (std::vector<std::string>{"kept", "renamed.tmp"}));
  files.rename("f/renamed.tmp", "f/renamed");
  files.sync("f");
  disks.by_node[0].lose_what_is_not_synced();
  EXPECT_EQ(files.list("f"), (std::vector<std::string>{"kept", "renamed"}));
  EXPECT_EQ(files.read("f/renamed"), "whole");
}

TEST(Storage, FoldersAreThereAsLongAsAnythingIsInThem) {
  Disks disks;
  const StorageModel model;
  SimStorage files(disks, model, 0, 0);
  files.write("run/b/x", "1");
  files.write("run/a", "2");
  files.write("run/b/c/y", "3");
  files.write("running", "4");
  EXPECT_EQ(files.list("run"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(files.exists("run/b"));
  EXPECT_FALSE(files.exists("ru"));
  files.remove("run/b/x");
  files.remove("run/b/c/y");
  EXPECT_FALSE(files.exists("run/b"));
}

TEST(Storage, WhatIsSharedIsSeenByAllNodesAndOutlivesThem) {
  const auto disks = std::make_shared<Disks>();
  WorldPlan plan = spread_world(2);
  plan.storage.shared_path = "shared";
  {
    World world(plan, disks);
    world.kill_at(0, 10, nullptr);
    const WorldResult result = world.run([](Rank& rank) {
      if (rank.id == 0) rank.storage.write("shared/a", "x");
      rank.clock.sleep_until(20);
      EXPECT_TRUE(rank.storage.exists("shared/a"));  // its node is gone, the other is not
      EXPECT_FALSE(rank.storage.exists("share"));
      rank.storage.sync("shared/a");
      rank.storage.sync("shared");
      rank.storage.write("shared/b", "y");
    });
    EXPECT_EQ(result.ranks[1].how, RankEnd::How::returned);
  }
  World again(plan, disks, 100);
  const WorldResult result = again.run([](Rank& rank) {
    EXPECT_EQ(rank.clock.now(), 100);
    EXPECT_EQ(rank.storage.list("shared"), (std::vector<std::string>{"a", "b"}));  // no power was cut
  });
  EXPECT_TRUE(all_returned(result));
  World dark(plan, disks, 200);
  for (const int rank : {0, 1}) dark.kill_at(rank, 300, nullptr);
  dark.run([](Rank& rank) { rank.clock.sleep_until(400); });
  EXPECT_EQ(disks->shared.names.size(), 1u);
}

// Sectors and names last by themselves or not; what is synced always does.
TEST(Storage, TearsWhatIsNotSyncedInParts) {
  const StorageModel model;
  int whole = 0, parts = 0, old = 0, named = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Disks disks;
    SimStorage files(disks, model, 0, 0);
    files.write("f/kept", std::string(2000, 'a'));
    files.sync("f/kept");
    files.sync("f");
    files.write("f/kept", std::string(2000, 'b'));
    files.write("f/new", "x");
    disks.by_node[0].tear_what_is_not_synced(seed);
    const std::string left = files.read("f/kept");
    ASSERT_EQ(left.size(), 2000u);
    const auto b = std::count(left.begin(), left.end(), 'b');
    ASSERT_EQ(std::count(left.begin(), left.end(), 'a') + b, 2000);
    for (std::size_t at = 0; at < left.size(); at += 512) {
      const std::string sector = left.substr(at, 512);
      ASSERT_EQ(sector, std::string(sector.size(), sector[0])) << "a sector lasts whole or not at all";
    }
    whole += b == 2000;
    old += b == 0;
    parts += b > 0 && b < 2000;
    named += files.exists("f/new");
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(old, 0);
  EXPECT_GT(parts, 50);
  EXPECT_GT(named, 20);
  EXPECT_LT(named, 80);
}

TEST(Storage, BelongsToTheNode) {
  World world(spread_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    if (rank.id == 0) rank.storage.write("a", "x");
    rank.clock.sleep_until(1);
    EXPECT_EQ(rank.storage.exists("a"), rank.id == 0);
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Storage, OfANodeIsLostWithItsDisk) {
  WorldPlan plan = spread_world(2);
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    rank.storage.write("run/a", "synced");
    rank.storage.sync("run/a");
    rank.storage.sync("run");
    if (rank.id == 1) world.lose_files(1);
    rank.clock.sleep_until(kSecond);
    EXPECT_EQ(rank.storage.exists("run/a"), rank.id == 0);
  });
  EXPECT_TRUE(all_returned(result));
}

}  // namespace
}  // namespace seeksim::sim
