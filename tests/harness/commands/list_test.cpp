// Looking things up by name, and commands that are none.
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

TEST(List, FindsOneThingByItsName) {
  const Ran ran = seeksim({"list", "faults", "rank_crash"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.find("rank_crash  F08"), 0u) << ran.out;
  EXPECT_EQ(ran.out.find("node_crash"), std::string::npos) << ran.out;
}

TEST(List, FindsWhatIsBelowAName) {
  const Ran all = seeksim({"list", "keys"}), some = seeksim({"list", "keys", "deepspeed"});
  EXPECT_LT(some.out.size(), all.out.size());
  EXPECT_NE(some.out.find("deepspeed.zero_optimization.stage"), std::string::npos);
  EXPECT_EQ(some.out.find("world.nodes"), std::string::npos);
  EXPECT_NE(seeksim({"list", "keys", "peer_copies"}).out.find("recovery.peer_copies"), std::string::npos)
      << "a part of a name";
  EXPECT_NE(seeksim({"list", "figures", "goodput"}).out.find("ETTR"), std::string::npos);
}

TEST(List, KnowsWhatWasMeant) {
  const Ran ran = seeksim({"list", "faults", "rank_crsh"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("Did you mean \"rank_crash\"?"), std::string::npos) << ran.err;
  EXPECT_EQ(seeksim({"list", "falts"}).status, 2);
  EXPECT_EQ(seeksim({"list", "schema", "faults"}).status, 2);
  const Ran museum = seeksim({"museum", "bf16_without_master"});
  EXPECT_EQ(museum.status, 2);
  EXPECT_NE(museum.err.find("Did you mean"), std::string::npos) << museum.err;
}

TEST(Commands, OneThatIsNoneIsRefusedWithHelpToo) {
  for (const char* word : {"replay", "rnu", "build"}) {
    const Ran ran = seeksim({word, "--help"});
    EXPECT_EQ(ran.status, 2) << word;
    EXPECT_NE(ran.err.find("there is no such command"), std::string::npos) << ran.err;
  }
  EXPECT_NE(seeksim({"rnu", "--help"}).err.find("Did you mean \"run\"?"), std::string::npos);
  EXPECT_EQ(seeksim({"analyze", "--help"}).status, 0) << "an alias";
  const Ran none = seeksim({"run"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("which scenario?"), std::string::npos) << none.err;
}

// Editors complete and underline by it.
TEST(Schema, KnowsFaultsChecksAndQuirks) {
  const Json& rule = scenario_schema()["properties"]["faults"]["items"]["properties"];
  const auto has = [](const Json& list, const char* word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  EXPECT_TRUE(has(rule["kind"]["enum"], "rank_crash"));
  EXPECT_FALSE(has(rule["kind"]["enum"], "rank_crsh"));
  EXPECT_TRUE(has(rule["op"]["enum"], "all_reduce"));
  EXPECT_TRUE(has(rule["phase"]["enum"], "grad_reduce"));
  const std::string pattern = scenario_schema()["properties"]["checks"]["items"]["pattern"];
  EXPECT_EQ(pattern.find("^(golden|"), 0u) << pattern;
  EXPECT_TRUE(has(scenario_schema()["properties"]["quirks"]["items"]["enum"], "ds_old_default_clipping"));
}

}  // namespace
}  // namespace seeksim::harness
