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

TEST(Storage, BelongsToTheNode) {
  World world(spread_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    if (rank.id == 0) rank.storage.write("a", "x");
    rank.clock.sleep_until(1);
    EXPECT_EQ(rank.storage.exists("a"), rank.id == 0);
  });
  EXPECT_TRUE(all_returned(result));
}

}  // namespace
}  // namespace seeksim::sim
