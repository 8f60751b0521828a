// What a script's run looks like to other programs: its trace, its page and its flight recorder, from records made by
// hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/analyse/pickle.h"
#include "harness/torch/judges.h"
#include "harness/torch/report.h"
#include "harness/torch/show/flight_recorder.h"
#include "harness/torch/show/run_page.h"
#include "harness/torch/show/spans.h"
#include "harness/torch/show/trace.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using testing::CallState;
using testing::made_run;
using testing::MadeRun;
using testing::StepPhase;

constexpr std::int64_t kMs = 1'000'000;

// Two ranks, two steps of 100 ms: 30 ms forward, 50 backward with a sum from 40 to 80 (rank 1 comes 20 ms late), 20 in
// the optimizer.
TorchRun two_steps() {
  TorchRun run = made_run(2);
  for (RankRun& rank : run.ranks) {
    pytorch::RankRecord& record = *rank.record;
    record.now.started_ns = 5 * kMs;
    record.calls.resize(2);
    record.steps.resize(2);
    record.losses.resize(2);
    for (std::int64_t step = 0; step < 2; ++step) {
      const std::int64_t at = (100 * step + 10) * kMs;
      record.phases.push_back({StepPhase::forward, 0, step, at});
      record.losses[std::size_t(step)].time_ns = at + 30 * kMs;
      record.phases.push_back({StepPhase::backward, 0, step, at + 30 * kMs});
      record.phases.push_back({StepPhase::optimizer, 0, step, at + 80 * kMs});
      pytorch::CallEntry& call = record.calls[std::size_t(step)];
      call.created_ns = call.started_ns = at + (40 + 20 * rank.rank) * kMs;
      call.finished_ns = at + 70 * kMs;
      record.steps[std::size_t(step)].time_ns = at + 100 * kMs;
    }
  }
  return run;
}

TEST(TorchSpans, ArePhasesStepsAndCollectivesSinceTheFirstRankBegan) {
  const TorchRun run = two_steps();
  const std::vector<RankSpans> all = spans_of(run);
  ASSERT_EQ(all.size(), 2U);
  ASSERT_EQ(all[0].steps.size(), 2U);
  EXPECT_EQ(all[0].steps[1].begin_ns, 105 * kMs);
  EXPECT_EQ(all[0].steps[1].end_ns, 205 * kMs);
  ASSERT_EQ(all[0].phases.size(), 7U) << "what came before the first step is one";
  EXPECT_EQ(all[0].phases[0].phase, StepPhase::init);
  EXPECT_EQ(all[0].phases[2].phase, StepPhase::backward);
  EXPECT_EQ(all[0].phases[2].begin_ns, 35 * kMs);
  EXPECT_EQ(all[0].phases[2].end_ns, 85 * kMs);
  EXPECT_EQ(all[0].phases[6].end_ns, 205 * kMs) << "the last one ends with the rank's last sign";
  EXPECT_EQ(all[0].calls[0].waits_for, 1);
  EXPECT_EQ(all[0].calls[0].waited_until_ns, 65 * kMs);
  EXPECT_EQ(all[1].calls[0].waits_for, -1) << "it came last";
}

TEST(TorchSpans, ACollectiveThatNeverEndedLastsUntilTheRanksLastSign) {
  TorchRun run = two_steps();
  pytorch::CallEntry& call = run.ranks[0].record->calls[1];
  call.finished_ns = 0;
  call.state = CallState::started;
  const std::vector<RankSpans> all = spans_of(run);
  EXPECT_EQ(all[0].calls[1].end_ns, all[0].end_ns);
  EXPECT_EQ(all[0].calls[1].waits_for, -1);
}

TEST(TorchTrace, HasRanksAsProcessesAndTheirSpansOnThreads) {
  const Json trace = Json::parse(trace_text(two_steps()));
  std::map<std::string, int> names;
  std::set<int> ranks;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++names[event["name"].get<std::string>()];
    ranks.insert(event["pid"].get<int>());
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_EQ(names["step 0"], 2);
  EXPECT_EQ(names["backward"], 4);
  EXPECT_EQ(names["all_reduce"], 4);
  EXPECT_EQ(names["waits for rank 1"], 2) << "rank 0, in both steps";
  EXPECT_EQ(trace["otherData"]["time"], "real");
}

// A stranger's texts.
TEST(TorchTrace, TakesAnyNameAndText) {
  MadeRun made(1);
  made[0].steps(1);
  made[0].writer().add(pytorch::FaultEntry{0, 1, -1, 0, made[0].writer().text("\"</script>\n\xff"), 5});
  const TorchRun run = made.run();
  EXPECT_NO_THROW(Json::parse(trace_text(run)));
  const std::string page = run_page(run, report_json(run, judge(run)), "");
  EXPECT_EQ(page.find("\"</script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;/script&gt;"), std::string::npos);
}

TEST(TorchPage, SaysWhatTheReportSays) {
  const TorchRun run = two_steps();
  const Json report = report_json(run, judge(run));
  const std::string page = run_page(run, report, "seeksim torch run -- train.py");
  for (const char* part : {"What each rank did when", "Who kept the others waiting", "Time by phase", "real time",
                           "replicas_equal", "seeksim torch run -- train.py", "40 ms"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("irtual time"), std::string::npos) << "it is the machine's";
}

TEST(TorchFlightRecorder, HasEachCollectiveWithPyTorchsKeys) {
  TorchRun run = two_steps();
  run.ranks[0].record->calls[1].state = CallState::started;
  harness::testing::TemporaryFolder folder;
  write_flight_dumps(folder.file("fr"), run);
  const Tree dump = read_pickle(harness::testing::read_all(folder.file("fr/nccl_trace_rank_0")));
  ASSERT_EQ(dump.at("entries").size(), 2U);
  const Tree& entry = dump.at("entries").at(0);
  EXPECT_EQ(entry.at("profiling_name"), "nccl:all_reduce");
  EXPECT_EQ(entry.at("collective_seq_id"), 1);
  EXPECT_EQ(entry.at("state"), "completed");
  EXPECT_EQ(dump.at("entries").at(1).at("state"), "started");
  EXPECT_EQ(entry.at("frames").at(1).at("filename"), "/data/torch/train.py");
  EXPECT_EQ(entry.at("frames").at(1).at("line"), 51);
  EXPECT_EQ(dump.at("pg_config").at("0").at("ranks"), "[0,1]");
  EXPECT_EQ(dump.at("pg_status").at("0").at("last_completed_collective"), 1);
  EXPECT_TRUE(std::filesystem::exists(folder.file("fr/nccl_trace_rank_1")));
}

TEST(TorchFlightRecorder, ARankOnItsWayHasNotCome) {
  TorchRun run = two_steps();
  pytorch::RankRecord& record = *run.ranks[0].record;
  record.calls[1].state = CallState::created;
  EXPECT_EQ(flight_dump(record)["entries"].size(), 1U);
  EXPECT_EQ(flight_dump(record)["pg_status"]["0"]["last_enqueued_collective"], 1);
  record.calls[0].state = CallState::started;
  EXPECT_EQ(flight_dump(record)["entries"].size(), 2U) << "it stands behind the first one";
  EXPECT_EQ(flight_dump(record)["entries"][1]["state"], "scheduled");
}

// torchfrtrace holds one to the other.
TEST(TorchFlightRecorder, HasTheSizesThatFollowFromWhatARankGave) {
  TorchRun run = two_steps();
  pytorch::RankRecord& record = *run.ranks[0].record;
  record.texts.push_back("[4,2] [6]");
  for (pytorch::CallEntry& call : record.calls) call.shape = std::uint32_t(record.texts.size() - 1);
  record.calls[0].op = pytorch::OpName::all_gather;
  record.calls[1].op = pytorch::OpName::reduce_scatter;
  const Json dump = flight_dump(record);
  EXPECT_EQ(dump["entries"][0]["input_sizes"], Json::parse("[[4,2],[6]]"));
  EXPECT_EQ(dump["entries"][0]["output_sizes"], Json::parse("[[16],[12]]"));
  EXPECT_EQ(dump["entries"][1]["output_sizes"], Json::parse("[[4],[3]]"));
  EXPECT_EQ(dump["entries"][0]["profiling_name"], "nccl:_all_gather_base");
}

}  // namespace
}  // namespace seeksim::harness::torch
