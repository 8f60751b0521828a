// Flight recorders as files, read back, analysed; what a red run leaves behind.
#include "harness/export/flight_recorder.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <set>

#include <nlohmann/json.hpp>

#include "harness/analyse/pickle.h"
#include "harness/export/pickle_writer.h"
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
  const Ran analysed = seeksim({"analyse", folder.file("fr"), "--json"});
  EXPECT_EQ(analysed.status, 0) << analysed.err;
  const Json analysis = Json::parse(analysed.out);
  EXPECT_EQ(analysis.at("culprit_ranks"), Json::array({2}));
  EXPECT_EQ(analysis.at("match"), "missing");
  EXPECT_EQ(analysis.at("victims"), Json::array({0, 1, 3}));
}

// What torchfrtrace asserts when it reads a folder: the names of files and operations, and the members of groups.
TEST(FlightRecorder, PicklesHaveWhatTorchfrtraceTakesAndNothingElse) {
  TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", small_text());
  ASSERT_EQ(seeksim({"run", scenario, "--flight-recorder", folder.file("fr"), "--set",
                     "deepspeed.zero_optimization.stage=3", "--set", "faults.0.op=reduce_scatter"})
                .status,
            0);
  const std::set<std::string> known = {"nccl:all_reduce", "nccl:broadcast", "nccl:barrier", "nccl:all_to_all"};
  std::size_t entries = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Tree tree = read_pickle(read_all(fmt::format("{}/fr/torch/nccl_trace_rank_{}", folder.path(), rank)));
    EXPECT_FALSE(tree.contains("seeksim"));
    for (const Tree& entry : tree.at("entries")) {
      ++entries;
      EXPECT_TRUE(known.contains(entry.at("profiling_name").get<std::string>())) << entry.dump();
      EXPECT_FALSE(entry.contains("seeksim"));
      EXPECT_TRUE(tree.at("pg_config").contains(entry.at("process_group").at(0).get<std::string>())) << entry.dump();
    }
  }
  EXPECT_GT(entries, 8u);
  const Ran analysed = seeksim({"analyse", folder.file("fr/torch"), "--json"});
  EXPECT_EQ(analysed.status, 0) << analysed.err;
  EXPECT_EQ(Json::parse(analysed.out).at("accused"), Json::array({2})) << analysed.out;
}

TEST(FlightRecorder, PicklesGiveBackEveryValue) {
  const Json value = {{"text", "a\n\xc3\xa9\"'"},
                      {"numbers",
                       {0, -1, 255, 2147483647, -2147483648LL, 2147483648LL, -2147483649LL, 9223372036854775807LL,
                        (-9223372036854775807LL - 1), 0.1, -1e300}},
                      {"nothing", nullptr},
                      {"flags", {true, false}},
                      {"empty", {{"list", Json::array()}, {"dict", Json::object()}}}};
  EXPECT_EQ(read_pickle(pickled(value)), Tree::parse(value.dump()));
  EXPECT_EQ(read_pickle(pickled(Json("\xff"))).get<std::string>(), "\xef\xbf\xbd");
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
  const Ran analysed = seeksim({"analyse", folder.file("fr"), "--json"});
  EXPECT_EQ(analysed.status, 0) << analysed.err;
  EXPECT_EQ(Json::parse(analysed.out).at("accused"), Json::array({2})) << analysed.out;
}

TEST(FlightRecorder, AFolderWithoutDumpsOrWithOtherJsonIsBadInput) {
  TemporaryFolder folder;
  EXPECT_EQ(seeksim({"analyse", folder.path()}).status, 2);
  folder.write("nccl_trace_rank_0.json", "{\"version\": \"2\"}");
  const Ran ran = seeksim({"analyse", folder.path()});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("flight recorder"), std::string::npos) << ran.err;
}

// The smallest dump that is read, with one thing changed.
Json smallest_dump() {
  return Json::parse(R"({"version": "2.5", "pg_config": {"7": {"name": "7", "desc": "data", "ranks": "[0, 1]"}},
    "entries": [{"process_group": ["7", "data"], "is_p2p": false, "collective_seq_id": 1, "p2p_seq_id": 0,
                 "profiling_name": "nccl:all_reduce", "time_created_ns": 5, "input_sizes": [[4, 4]],
                 "input_dtypes": ["Float"], "state": "scheduled"}]})");
}

TEST(FlightRecorder, WhatNoProgramWritesIsBadInputWithItsName) {
  struct Wrong {
    const char* pointer;
    const char* value;
    const char* says;
  };
  const Wrong wrongs[] = {
      {"/seeksim/rank", "-2147483648", "rank is \"-2147483648\", no whole number"},
      {"/seeksim/rank", "1e300", "rank is"},
      {"/pg_config/7/ranks", "[4294967296]", "a member's rank is \"4294967296\""},
      {"/pg_config/7/ranks", "\"[[[[0]]]]\"", "a list of ranks is nested deeper"},
      {"/entries/0/collective_seq_id", "-1", "collective_seq_id is \"-1\""},
      {"/entries/0/time_created_ns", "1e300", "time_created_ns is"},
      {"/entries/0/input_sizes", "[[4294967296, 4294967296, 4294967296]]", "more elements than memory has bytes"},
      {"/seeksim/ballot/error", "77", "error is \"77\""},
  };
  TemporaryFolder folder;
  Json smallest = smallest_dump();
  smallest["seeksim"]["rank"] = 0;  // what is PyTorch's own is read by harness/analyse
  folder.write("nccl_trace_rank_0.json", smallest.dump());
  const Ran fine = seeksim({"analyse", folder.path()});
  ASSERT_EQ(fine.status, 0) << fine.err;
  for (const Wrong& wrong : wrongs) {
    Json dump = smallest;
    if (std::string(wrong.pointer).find("ballot") != std::string::npos) dump["seeksim"]["ballot"]["ok"] = false;
    dump[Json::json_pointer(wrong.pointer)] = Json::parse(wrong.value);
    folder.write("nccl_trace_rank_0.json", dump.dump());
    const Ran ran = seeksim({"analyse", folder.path()});
    EXPECT_EQ(ran.status, 2) << wrong.pointer << ran.out << ran.err;
    EXPECT_NE(ran.err.find(wrong.says), std::string::npos) << wrong.says << ran.err;
  }
}

TEST(FlightRecorder, DeepJsonPicklesAndLongNumbersInNamesAreBadInput) {
  const std::string deep = R"({"seeksim": )" + std::string(400'000, '[') + std::string(400'000, ']') +
                           R"(, "pg_config": {}, "entries": []})";
  const struct {
    const char* file;
    std::string content;
    const char* says;
  } wrongs[] = {
      {"nccl_trace_rank_0", deep, "the dump is nested deeper than 32 levels"},
      {"nccl_trace_rank_1", "\x80\x05\x95 a pickle", "is no flight recorder dump: the pickle"},
      {"nccl_trace_rank_99999999999", smallest_dump().dump(), "its name ends in a number that is no rank"},
  };
  for (const auto& wrong : wrongs) {
    TemporaryFolder folder;
    folder.write(wrong.file, wrong.content);
    const Ran ran = seeksim({"analyse", folder.path()});
    EXPECT_EQ(ran.status, 2) << wrong.file << ran.out << ran.err;
    EXPECT_NE(ran.err.find(wrong.says), std::string::npos) << ran.err;
  }
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
