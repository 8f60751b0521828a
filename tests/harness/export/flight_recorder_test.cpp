// Flight recorders as files, read back, analysed; what a red run leaves behind.
#include "harness/export/flight_recorder.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(FlightRecorder, DumpsHaveThePyTorchKeysAndAreAnalysedFromTheirFolder) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text());
  const Ran ran = seeksim({"run", scenario, "--flight-recorder", folder.file("fr")});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json json = Json::parse(read_all(folder.file("fr") + "/nccl_trace_rank_0.json"));
  for (const char* key : {"version", "pg_config", "pg_status", "entries", "nccl_comm_state"})
    EXPECT_TRUE(json.contains(key)) << key;
  ASSERT_FALSE(json.at("entries").empty());
  for (const char* key :
       {"record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name",
        "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms", "input_sizes",
        "input_dtypes", "output_sizes", "output_dtypes", "state", "is_p2p", "retired", "frames"}) {
    EXPECT_TRUE(json.at("entries").at(0).contains(key)) << key;
  }
  const Ran analysed = seeksim({"analyse", folder.file("fr")});
  EXPECT_EQ(analysed.status, 0) << analysed.err;
  const Json analysis = Json::parse(analysed.out);
  EXPECT_EQ(analysis.at("culprit_ranks"), Json::array({2}));
  EXPECT_EQ(analysis.at("match"), "missing");
  EXPECT_EQ(analysis.at("victims"), Json::array({0, 1, 3}));
}

// A dump as PyTorch writes it has nothing of ours: no ballots, times as the CPU noticed them.
TEST(FlightRecorder, DumpsWithoutOurKeysAreReadToo) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text());
  ASSERT_EQ(seeksim({"run", scenario, "--flight-recorder", folder.file("fr")}).status, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string file = fmt::format("fr/nccl_trace_rank_{}.json", rank);
    Json json = Json::parse(read_all(folder.file(file)));
    json.erase("seeksim");
    for (Json& entry : json["entries"]) entry.erase("seeksim");
    folder.write(file, json.dump());
  }
  const Ran analysed = seeksim({"analyse", folder.file("fr")});
  EXPECT_EQ(analysed.status, 0) << analysed.err;
  EXPECT_EQ(Json::parse(analysed.out).at("culprit_ranks"), Json::array({2})) << analysed.out;
}

TEST(FlightRecorder, AFolderWithoutDumpsOrWithOtherJsonIsBadInput) {
  TemporaryFolder folder;
  EXPECT_EQ(seeksim({"analyse", folder.path()}).status, 2);
  folder.write("nccl_trace_rank_0.json", "{\"version\": \"2\"}");
  const Ran ran = seeksim({"analyse", folder.path()});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("flight recorder"), std::string::npos) << ran.err;
}

TEST(Bundle, ARedRunLeavesWhatIsNeededToSeeItAgain) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text_with(10, R"(  "checks": [ "culprit:1" ])"));
  EXPECT_EQ(seeksim({"run", scenario, "--out", folder.file("out")}).status, 1);
  for (const char* file : {"scenario.json", "run.json", "story.txt", "analysis.json", "nccl_trace_rank_0.json"})
    EXPECT_FALSE(read_all(folder.file("out") + "/bundle/" + file).empty()) << file;
  EXPECT_EQ(Json::parse(read_all(folder.file("out") + "/bundle/analysis.json")).at(0).at("culprit_ranks"),
            Json::array({2}));
  // And again from the bundle: the same.
  EXPECT_EQ(seeksim({"run", folder.file("out") + "/bundle/scenario.json"}).status, 1);
}

TEST(Bundle, AGreenRunLeavesNone) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text());
  EXPECT_EQ(seeksim({"run", scenario, "--out", folder.file("out"), "--bundle", folder.file("b")}).status, 0);
  EXPECT_TRUE(read_all(folder.file("b") + "/run.json").empty());
}

TEST(Bundle, AStopIsToldByDomainAndOutlook) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text());
  const Ran ran = seeksim({"run", scenario, "--set", "recovery.policy=stop", "--bundle", folder.file("b")});
  EXPECT_EQ(ran.status, 1);
  const Json run = Json::parse(read_all(folder.file("b") + "/run.json"));
  EXPECT_EQ(run.at("failure_domain"), "unknown");
  EXPECT_EQ(run.at("outlook"), "may_recover");
  EXPECT_EQ(run.at("exit_code"), 1);
}

}  // namespace
}  // namespace seeksim::harness
