// A checkpoint is read of nodes that have files of their own, and that goes wrong half-way: the run recovers or stops,
// with a verdict.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

class NodeFilesFail : public ::testing::TestWithParam<const char*> {};

TEST_P(NodeFilesFail, AndTheRunHasAVerdict) {
  TemporaryFolder folder;
  const std::string file = paths::source_dir() + "/tests/harness/data/node_files/" + GetParam();
  for (const char* seed : {"11680540", "1", "2"}) {
    const Ran ran = seeksim({"run", file, "--seed", seed, "--report", folder.file("report.json")});
    EXPECT_TRUE(ran.status == 0 || ran.status == 1) << seed << ran.out << ran.err;
    const Json report = Json::parse(read_all(folder.file("report.json")));
    EXPECT_FALSE(report.at("recoveries").empty()) << "rank 1 died, and the others read a checkpoint";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NodeFilesFail, ::testing::Values("broadcasts_corrupt.json", "broadcast_lost.json"));

TEST(NodeFiles, ACheckpointIsCompleteOnceEachNodeHasAManifest) {
  const Ran ran = seeksim({"run", paths::source_dir() + "/tests/harness/data/node_files/manifest_on_one_node.json"});
  EXPECT_EQ(ran.status, 1) << "node 0 is gone with its files: the run stops";
  EXPECT_NE(ran.out.find("ok    checkpoints_valid"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("newest of step 4"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace seeksim::harness
