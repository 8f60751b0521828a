// world.platform: whole collectives take what a file says, to the nanosecond and by size; nothing else changes, and
// without the key nothing at all. What the file says is computed here, not asked of the reader.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/loading/scenario_json.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using runtime::OpKind;
using runtime::Record;

constexpr int kRanks = 4, kPerNode = 2;

std::string output(const std::string& redop, double busy, const std::map<std::uint64_t, double>& us,
                   int ranks = kRanks) {
  std::string text;
  for (int rank = 0; rank < ranks; ++rank)
    text += fmt::format("#  Rank {} Group 0 Pid 42 on node{} device {} [0x8d] GPU\n", rank, rank / kPerNode,
                        rank % kPerNode);
  for (const auto& [bytes, time] : us) {
    const double bandwidth = double(bytes) / time / 1e3;
    text += fmt::format("{} {} float {} -1 {:.3f} {:.6f} {:.6f} 0\n", bytes, bytes / 4, redop, time, bandwidth,
                        bandwidth * busy * (ranks - 1) / ranks);
  }
  return text;
}
std::string sums(const std::map<std::uint64_t, double>& us) { return output("sum", 2, us); }
std::string scatters(const std::map<std::uint64_t, double>& us) { return output("sum", 1, us); }
std::string gathers(const std::map<std::uint64_t, double>& us) { return output("none", 1, us); }

// A microsecond for a thousand bytes, so that a time in nanoseconds is a size in bytes.
const std::map<std::uint64_t, double> kLinear = {{1000, 1}, {100'000'000, 100'000}};

struct Ran {
  RunRecord record;
  // By kind and sequence: from when the last member had come until each had ended, and the size.
  struct Collective {
    OpKind kind;
    std::uint64_t bytes = 0;
    runtime::TimeNs last_start = 0, first_end = runtime::kForever, last_end = 0;
  };
  std::map<std::uint64_t, Collective> collectives;
};

Json scenario_of(int stage) {
  Json json = Json::parse(testing::small_text_with(8, ""));
  json.erase("recovery");
  json["world"]["noise"] = 0;
  json["deepspeed"]["zero_optimization"]["stage"] = stage;
  json["steps"] = 2;
  json["checks"] = Json::array({"ranks_agree"});
  return json;
}

Ran ran(const Json& json, const std::string& file) {
  const Scenario scenario = load_scenario_text(json.dump(), file);
  Simulation simulation(scenario, {});
  Ran all;
  all.record = simulation.run();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const Record& record : simulation.recorder(rank).records()) {
      if (record.comm == 0 || record.ended_ns < 0) continue;
      Ran::Collective& one = all.collectives[record.op.sequence];
      one.kind = record.op.kind;
      one.bytes = std::max(one.bytes, record.op.bytes);
      one.last_start = std::max(one.last_start, record.started_ns);
      one.first_end = std::min(one.first_end, record.ended_ns);
      one.last_end = std::max(one.last_end, record.ended_ns);
    }
  }
  return all;
}

class Platforms : public ::testing::Test {
 protected:
  Json with(Json json, const std::vector<std::string>& files) const {
    json["world"]["platform"] = {{"gpu", "h100"}, {"nccl_tests", files}};
    return json;
  }
  std::string scenario_file() const { return folder_.file("s.json"); }
  testing::TemporaryFolder folder_;
};

std::map<std::uint64_t, double> distinct_times(const Ran& run, std::initializer_list<OpKind> kinds) {
  std::map<std::uint64_t, double> us;
  for (const auto& [sequence, one] : run.collectives)
    if (std::count(kinds.begin(), kinds.end(), one.kind) > 0) us[one.bytes] = 0;
  int i = 0;
  for (auto& [bytes, time] : us) time = 101.125 + 17 * i++;  // eighths are exact
  return us;
}

// Each size that the run has is in the file, with a time of its own.
TEST_F(Platforms, MeasuredSizesTakeTheirTimes) {
  const std::initializer_list<OpKind> gathering = {OpKind::all_gather, OpKind::publish, OpKind::param_gather};
  for (const int stage : {0, 1}) {
    const Json plain = scenario_of(stage);
    const Ran before = ran(plain, scenario_file());
    const auto reduce = distinct_times(before, {OpKind::all_reduce}), gather = distinct_times(before, gathering);
    std::vector<std::string> files;
    if (!reduce.empty()) folder_.write("reduce.txt", sums(reduce)), files.emplace_back("reduce.txt");
    if (!gather.empty()) folder_.write("gather.txt", gathers(gather)), files.emplace_back("gather.txt");
    ASSERT_FALSE(files.empty());
    const Ran after = ran(with(plain, files), scenario_file());
    int held = 0;
    for (const auto& [sequence, one] : after.collectives) {
      const bool gathers = std::count(gathering.begin(), gathering.end(), one.kind) > 0;
      if (!gathers && one.kind != OpKind::all_reduce) continue;
      const double us = (gathers ? gather : reduce).at(one.bytes);
      const auto ns = runtime::TimeNs(us * 1000);
      EXPECT_EQ(one.first_end - one.last_start, ns) << stage << ' ' << name(one.kind) << ' ' << one.bytes;
      EXPECT_EQ(one.last_end - one.last_start, ns) << stage << ' ' << name(one.kind) << ' ' << one.bytes;
      ++held;
    }
    EXPECT_GT(held, 0) << stage;
    EXPECT_NE(before.record.virtual_ns, after.record.virtual_ns);
    EXPECT_EQ(before.record.state(), after.record.state()) << "no bit depends on a time";
  }
}

// Between two sizes by a power of the size: of a straight line, the line.
TEST_F(Platforms, ScattersTakeTheTimesOfTheirWholeVectors) {
  folder_.write("scatter.txt", scatters(kLinear));
  const Ran run = ran(with(scenario_of(2), {"scatter.txt"}), scenario_file());
  runtime::TimeNs together = 0;
  for (const auto& [sequence, one] : run.collectives) {
    if (one.kind != OpKind::reduce_scatter) continue;
    EXPECT_EQ(one.first_end, one.last_end);
    together += one.last_end - one.last_start;
  }
  // What is reduced is each parameter, the embedding's second use in the head, and the loss; twice a step.
  const Json json = scenario_of(2);
  const double parameters = double(estimate(load_scenario_text(json.dump(), "s.json")).parameters);
  const double head = json["model"]["vocab"].get<double>() * json["model"]["width"].get<double>();
  EXPECT_EQ(double(together), 2 * 4 * (parameters + head + 1) * json["steps"].get<double>());
}

// Parameters that stay gathered (here: all) are gathered from their owners once a step.
TEST_F(Platforms, GathersOfShardedParametersTakeTheTimesOfAllOfThem) {
  folder_.write("gather.txt", gathers(kLinear));
  const Ran run = ran(with(scenario_of(3), {"gather.txt"}), scenario_file());
  const double bytes = 4 * double(estimate(load_scenario_text(scenario_of(3).dump(), "s.json")).parameters);
  int gathered = 0;
  for (const auto& [sequence, one] : run.collectives) {
    if (one.kind != OpKind::publish) continue;
    EXPECT_EQ(double(one.last_end - one.last_start), bytes);
    ++gathered;
  }
  EXPECT_GE(gathered, 2);
}

// A trace of torch.profiler says the same as nccl-tests' output.
std::string trace_of(const std::map<std::uint64_t, double>& us) {
  std::string events;
  for (const auto& [bytes, time] : us)
    events += fmt::format(
        R"({}{{"cat": "kernel", "dur": {:.3f}, "args": {{"Collective name": "allreduce", "In msg nelems": {},
           "Out msg nelems": {}, "Group size": {}, "dtype": "Float", "Process Group Ranks": "[0, 1, ...]"}}}})",
        events.empty() ? "" : ",", time, bytes / 4, bytes / 4, kRanks);
  return "{\"traceEvents\": [" + events + "]}";
}

TEST_F(Platforms, ATraceOfTorchTakesThePlaceOfNcclTests) {
  const std::map<std::uint64_t, double> us = {{1000, 3}, {100'000'000, 300'000}};
  folder_.write("reduce.txt", sums(us)), folder_.write("rank0.json", trace_of(us));
  folder_.write("rank1.json", trace_of({{1000, 40}, {100'000'000, 400'000}}));  // it waited for rank 0
  Json json = scenario_of(0);
  json["world"]["platform"] = {{"gpu", "h100"}, {"torch_traces", {"rank0.json", "rank1.json"}}};
  const Ran by_trace = ran(json, scenario_file());
  const Ran by_output = ran(with(scenario_of(0), {"reduce.txt"}), scenario_file());
  EXPECT_EQ(by_trace.record.virtual_ns, by_output.record.virtual_ns);
  EXPECT_NE(by_trace.record.virtual_ns, ran(scenario_of(0), scenario_file()).record.virtual_ns);
  EXPECT_EQ(to_json(load_scenario_text(json.dump(), scenario_file()))["world"]["platform"]["torch_traces"].size(), 2u);
  json["world"]["platform"]["nccl_tests"] = {"reduce.txt"};
  EXPECT_NE(testing::problems_of(json.dump(1), {}, scenario_file()).find("a second curve of all_reduce"),
            std::string::npos);
  json["world"]["platform"] = {{"gpu", "h100"}, {"torch_traces", {"reduce.txt", "none.json"}}};
  const std::string said = testing::problems_of(json.dump(1), {}, scenario_file());
  for (const char* part : {"no trace of torch.profiler", "none.json"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " is not in " << said;
}

// A file that cannot be taken is refused at its line, each of several, and nothing runs.
TEST_F(Platforms, EachBadFileIsNamed) {
  folder_.write("infinite.txt", output("sum", 2, {}) + "1048576 262144 float sum -1 inf 0.00 0.00 0\n");
  folder_.write("empty.txt", "");
  folder_.write("bytes.txt", std::string(100, '\xff'));
  folder_.write("good.txt", sums(kLinear));
  const Json json = with(scenario_of(0), {"infinite.txt", "empty.txt", "bytes.txt", "good.txt", "good.txt",
                                          "there/is/none.txt", std::string(5000, 'x')});
  const std::string said = testing::problems_of(json.dump(1), {}, scenario_file());
  for (const char* part : {"infinite.txt:5: this is no row", "empty.txt: this output of nccl-tests names no ranks",
                           "bytes.txt: this output", "a second curve of all_reduce on 4 ranks and 2 nodes", "none.txt"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " is not in " << said;
}

TEST_F(Platforms, OtherGpusAreRefusedAndFallingBackIsSaid) {
  Json json = scenario_of(0);
  json["world"]["platform"] = {{"gpu", "b200"}};
  EXPECT_NE(testing::problems_of(json.dump(), {}, scenario_file()), "");
  json["world"]["platform"] = {{"nccl_tests", Json::array()}};
  EXPECT_NE(testing::problems_of(json.dump(), {}, scenario_file()), "") << "which GPU?";
  folder_.write("eight.txt", output("sum", 2, kLinear, 8));
  const Scenario scenario = load_scenario_text(with(scenario_of(0), {"eight.txt"}).dump(), scenario_file());
  const std::string notes = fmt::format("{}", fmt::join(scenario.notes, "\n"));
  EXPECT_NE(notes.find("the curve of all_reduce on 8 ranks and 4 nodes is not of all ranks here"), std::string::npos);
  EXPECT_NE(notes.find("all_reduce, all_gather, reduce_scatter of 4 ranks on 2 nodes"), std::string::npos) << notes;
}

TEST_F(Platforms, TheKeyIsWrittenAndReadAgain) {
  folder_.write("reduce.txt", sums(kLinear));
  const Scenario once = load_scenario_text(with(scenario_of(0), {"reduce.txt"}).dump(), scenario_file());
  const Json written = to_json(once);
  EXPECT_EQ(written["world"]["platform"]["gpu"], "h100");
  EXPECT_EQ(to_json(load_scenario_text(written.dump(), scenario_file())), written);
  EXPECT_FALSE(to_json(load_scenario_text(scenario_of(0).dump(), "s.json"))["world"].contains("platform"));
}

}  // namespace
}  // namespace seeksim::harness
