// Dumps of real PyTorch processes that hang (make_dumps.py), each with its right answer (answers.txt), and dumps in
// the form that NCCL's recorder has, made here.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/input/json.h"
#include "tests/harness/analyse/answers.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct Answer {
  std::string folder, verdict, accused;
  std::vector<std::string> words;
};
std::vector<Answer> answers(const std::string& file) {
  std::vector<Answer> all;
  std::istringstream in(read_all(file));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto fields = split(line, ';');
    all.push_back({fields.at(0), fields.at(1), fields.at(2), split(fields.at(3), '|')});
  }
  return all;
}
Json ranks(const std::string& text) {
  Json list = Json::array();
  for (const std::string& rank : split(text, ',')) {
    if (rank != "-") list.push_back(std::stoi(rank));
  }
  return list;
}

TEST(AnalyseDumps, RealDumpsOfSixteenSituationsAreAllJudgedRightly) {
  const auto all = answers(kHere + "/answers.txt");
  EXPECT_GE(all.size(), 16u);
  for (const Answer& a : all) {
    const std::string folder = kHere + "/dumps/" + a.folder;
    const Ran text = seeksim({"analyse", folder});
    const Ran ran = seeksim({"analyze", folder, "--json"});
    ASSERT_EQ(ran.status, 0) << a.folder << ran.err;
    const Json json = Json::parse(ran.out);
    EXPECT_EQ(json.at("verdict"), a.verdict) << a.folder << "\n" << text.out;
    EXPECT_EQ(json.at("accused"), ranks(a.accused)) << a.folder << "\n" << text.out;
    std::string flat = ran.out;
    for (const std::string& word : a.words) {
      std::string escaped;
      for (const char c : word) escaped += c == '"' ? std::string("\\\"") : std::string(1, c);
      EXPECT_NE(flat.find(escaped), std::string::npos) << a.folder << ": " << word << "\n" << text.out;
    }
    EXPECT_LE(std::count(text.out.begin(), text.out.end(), '\n'), 20) << text.out;
  }
}

TEST(AnalyseDumps, DumpsCutAnywhereAreStatusTwo) {
  const std::string bytes = read_all(kHere + "/dumps/never_joined/nccl_trace_rank_0");
  TemporaryFolder folder;
  for (std::size_t n = 1; n < bytes.size(); n += 7) {
    folder.write("nccl_trace_rank_0", bytes.substr(0, n));
    EXPECT_EQ(seeksim({"analyse", folder.path()}).status, 2) << n;
  }
}

// ---- made here, in the form of NCCL's recorder ---------------------------------------------------------------------

Json entry(const std::string& operation, std::int64_t number, const std::string& state, bool p2p = false,
           const std::string& group = "0") {
  static std::int64_t record = 0;
  return {{"record_id", 0},
          {"pg_id", 0},
          {"process_group", {group, group == "0" ? "default_pg" : "tensor"}},
          {"collective_seq_id", p2p ? 0 : number},
          {"p2p_seq_id", p2p ? number : 0},
          {"op_id", number},
          {"profiling_name", "nccl:" + operation},
          {"time_created_ns", 1000 + ++record},
          {"input_sizes", {{8}}},
          {"input_dtypes", {"Float"}},
          {"output_sizes", {{8}}},
          {"output_dtypes", {"Float"}},
          {"state", state},
          {"is_p2p", p2p},
          {"retired", state == "completed"},
          {"frames", Json::array()}};
}
const Json kWorld = {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2]"}}}};

Json dump_with(const std::vector<Json>& entries, const Json& config = kWorld) {
  return {{"version", "2.5"}, {"pg_config", config}, {"pg_status", Json::object()}, {"entries", entries}};
}
Json judged(const std::vector<Json>& dumps) {
  TemporaryFolder folder;
  for (std::size_t rank = 0; rank < dumps.size(); ++rank)
    folder.write(fmt::format("nccl_trace_rank_{}", rank), dumps[rank].dump());
  const Ran ran = seeksim({"analyse", folder.path(), "--json"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  return ran.status == 0 ? Json::parse(ran.out) : Json::object();
}

TEST(AnalyseDumps, AReceiveWhoseSenderWaitsInNothingNamesTheSender) {
  const Json done = entry("all_reduce", 1, "completed");
  const Json got =
      judged({dump_with({done}), dump_with({done, entry("recv 1<-0", 1, "started", true)}), dump_with({done})});
  EXPECT_EQ(got.at("verdict"), "no_partner") << got.dump(1);
  EXPECT_EQ(got.at("accused"), Json::array({0}));
}

TEST(AnalyseDumps, TwoThatReceiveFromEachOtherAreACycle) {
  const Json got = judged({dump_with({entry("recv 0<-1", 1, "started", true)}),
                           dump_with({entry("recv 1<-0", 1, "started", true)}), dump_with({})});
  EXPECT_EQ(got.at("verdict"), "cycle") << got.dump(1);
  EXPECT_EQ(got.at("accused"), Json::array());
}

TEST(AnalyseDumps, WhereAllCameNoRankIsAccused) {
  const Json dump = dump_with({entry("all_reduce", 1, "completed"), entry("all_reduce", 2, "started")});
  const Json got = judged({dump, dump, dump});
  EXPECT_EQ(got.at("verdict"), "all_came") << got.dump(1);
  EXPECT_EQ(got.at("accused"), Json::array());
}

TEST(AnalyseDumps, NumbersOfDifferentGroupsAreNotCompared) {
  const Json config = {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2]"}}},
                       {"1", {{"name", "1"}, {"desc", "tensor"}, {"ranks", "[0, 1]"}}}};
  const std::vector<Json> own = {entry("all_reduce", 1, "completed"),
                                 entry("all_gather", 900, "completed", false, "1")};
  const Json got = judged(
      {dump_with(own, config), dump_with(own, config), dump_with({entry("all_reduce", 1, "completed")}, config)});
  EXPECT_EQ(got.at("verdict"), "nothing_stuck") << got.dump(1);
}

// A dump of rank 0 alone, everything over: what was not collected is not dead.
TEST(AnalyseDumps, ADumpThatWasNotCollectedAccusesNobody) {
  const Json got = judged({dump_with({entry("all_reduce", 1, "completed")})});
  EXPECT_EQ(got.at("verdict"), "nothing_stuck") << got.dump(1);
  EXPECT_EQ(got.at("accused"), Json::array());
  EXPECT_EQ(got.at("missing_dumps"), Json::array({1, 2}));
}

TEST(AnalyseDumps, WhatNoRecorderWritesIsStatusTwoWithItsPlace) {
  const struct {
    const char* pointer;
    Json value;
    const char* says;
  } wrongs[] = {{"/version", "1.3", "2.1 and later"},
                {"/entries", 5, "no list \"entries\""},
                {"/entries/0", 5, "an entry is no dict"},
                {"/entries/0/collective_seq_id", 1e300, "collective_seq_id is"},
                {"/pg_config/0/ranks", "[4294967296]", "no list of ranks"},
                {"/pg_config/0/ranks", "[[[[0]]]]", "nested deeper"}};
  for (const auto& wrong : wrongs) {
    Json dump = dump_with({entry("all_reduce", 1, "completed")});
    dump[Json::json_pointer(wrong.pointer)] = wrong.value;
    TemporaryFolder folder;
    folder.write("nccl_trace_rank_0", dump.dump());
    const Ran ran = seeksim({"analyse", folder.path()});
    EXPECT_EQ(ran.status, 2) << wrong.pointer << ran.out;
    EXPECT_NE(ran.err.find(wrong.says), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace seeksim::harness
