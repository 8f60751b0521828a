// A run as a Chrome trace: a small validator that is seen to fail checks it against the trace-event format, and it is
// compared with the run: every launch and operation is in it once, at its time, and drawing it changes nothing.
#include "harness/export/chrome_trace.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "tests/harness/export/trace_rules.h"
#include "tests/sim/sim_test.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct Drawn {
  std::string text;
  RunRecord run;
  std::map<int, std::uint64_t> communicated;  // by rank: operations of training that its recorder counted
  std::uint64_t gathered = 0;                 // operations behind the last step, of all ranks
  Json events() const { return Json::parse(text)["traceEvents"]; }
};

Drawn draw(const Scenario& scenario) {
  SimulationOptions options;
  options.timeline = true;
  Simulation simulation(scenario, options);
  Drawn drawn;
  drawn.run = simulation.run();
  // What gathers the state after the last step is recorded like all operations, and not drawn.
  for (int rank = 0; rank < scenario.world.ranks(); ++rank) {
    const auto records = simulation.recorder(rank).records();
    const auto gathered = std::uint64_t(std::count_if(records.begin(), records.end(), [&](const auto& record) {
      return record.op.step >= scenario.train.definition.steps;
    }));
    drawn.gathered += gathered;
    drawn.communicated[rank] = simulation.recorder(rank).count() - gathered;
  }
  drawn.text = chrome_trace(*simulation.timeline(), scenario, drawn.run);
  return drawn;
}

// Four ranks on two nodes, ZeRO 2 on offloaded state in files: every queue has something to do.
Scenario busy_scenario() {
  Scenario scenario = small_scenario();
  scenario.faults.clear();
  scenario.checks.clear();
  scenario.train.layout.zero = runtime::zero_plan(2);
  scenario.train.layout.offload.optimizer.home = runtime::Home::nvme;
  return scenario;
}

// A rank never joins an all-reduce: it is found and the step made again.
Scenario broken_scenario() {
  Scenario scenario = small_scenario();
  scenario.checks.clear();
  return scenario;
}

std::string thread_of(const Json& events, const Json& event) {
  for (const Json& other : events) {
    if (other["name"] == "thread_name" && other["pid"] == event["pid"] && other["tid"] == event["tid"])
      return other["args"]["name"];
  }
  return "";
}

TEST(Timeline, IsAChromeTrace) {
  for (const Scenario& scenario : {busy_scenario(), broken_scenario()}) {
    const Drawn drawn = draw(scenario);
    const Json trace = Json::parse(drawn.text);
    EXPECT_EQ(wrong_with_trace(trace), "");
    EXPECT_EQ(trace["otherData"]["spans_left_out"], 0);
    EXPECT_EQ(trace["otherData"]["ranks"], scenario.world.ranks());
  }
}

TEST(Timeline, TheValidatorSeesWhatIsWrong) {
  const Json good = Json::parse(draw(busy_scenario()).text);
  std::size_t span = 0;
  while (good["traceEvents"][span]["ph"] != "X") ++span;
  const auto with = [&](const char* key, const Json& value) {
    Json bad = good;
    bad["traceEvents"][span][key] = value;
    return wrong_with_trace(bad);
  };
  EXPECT_NE(with("dur", -1).find("no duration"), std::string::npos);
  EXPECT_NE(with("dur", 1e9).find("begins before"), std::string::npos);
  EXPECT_NE(with("ts", 1e12).find("out of order"), std::string::npos);
  EXPECT_NE(with("ts", "0").find("no time"), std::string::npos);
  EXPECT_NE(with("ph", "x").find("unknown kind"), std::string::npos);
  EXPECT_NE(with("cname", "pink").find("colour"), std::string::npos);
  EXPECT_NE(with("tid", 99).find("without a name"), std::string::npos);
  EXPECT_NE(with("name", 1).find("no name"), std::string::npos);
  EXPECT_NE(with("pid", "rank").find("no process"), std::string::npos);
  Json bad = good;
  bad["traceEvents"].push_back(
      {{"ph", "s"}, {"name", "m"}, {"pid", 0}, {"tid", 0}, {"ts", 1e12}, {"id", 1'000'000'000}});
  EXPECT_NE(wrong_with_trace(bad).find("without an end"), std::string::npos) << wrong_with_trace(bad);
  bad["traceEvents"].back()["ph"] = "i";
  EXPECT_NE(wrong_with_trace(bad).find("no scope"), std::string::npos) << wrong_with_trace(bad);
  EXPECT_NE(wrong_with_trace(Json::array()), "");
  // Both ends of an arrow, but where no span is.
  bad["traceEvents"].back() = {{"ph", "s"}, {"name", "m"}, {"pid", 0}, {"tid", 0}, {"ts", 1e12}, {"id", 1'000'000'000}};
  bad["traceEvents"].push_back(bad["traceEvents"].back());
  bad["traceEvents"].back()["ph"] = "f";
  EXPECT_NE(wrong_with_trace(bad).find("bound to what comes next"), std::string::npos) << wrong_with_trace(bad);
  bad["traceEvents"].back()["bp"] = "e";
  EXPECT_NE(wrong_with_trace(bad).find("outside of all spans"), std::string::npos) << wrong_with_trace(bad);
  bad = good;
  for (Json& event : bad["traceEvents"]) {
    if (event["name"] == "process_name" && event["pid"] == 0) event["name"] = "process_labels";
  }
  EXPECT_NE(wrong_with_trace(bad).find("metadata"), std::string::npos) << wrong_with_trace(bad);
  std::size_t counter = 0;
  while (good["traceEvents"][counter]["ph"] != "C") ++counter;
  bad = good;
  bad["traceEvents"][counter]["args"] = {{"bytes", -1}};
  EXPECT_NE(wrong_with_trace(bad).find("below zero"), std::string::npos) << wrong_with_trace(bad);
}

// The largest that the counters show of each tag on any rank is the peak of the run's report, but of scratch, of which
// gathering after the last step needs more; what is in flight comes
// back to zero, and so do queues.
TEST(Timeline, CountsMemoryTrafficAndQueues) {
  const Scenario scenario = busy_scenario();
  const Drawn drawn = draw(scenario);
  std::map<std::string, std::size_t> peaks;
  std::map<std::pair<int, std::string>, std::int64_t> last, most;
  for (const Json& event : drawn.events()) {
    if (event["ph"] != "C") continue;
    const std::string name = event["name"];
    for (const auto& [what, value] : event["args"].items()) {
      if (name == "memory, bytes") peaks[what] = std::max(peaks[what], value.get<std::size_t>());
      last[{event["pid"], name + what}] = value;
      std::int64_t& high = most[{event["pid"], name + what}];
      high = std::max(high, value.get<std::int64_t>());
    }
  }
  for (std::size_t tag = 0; tag < drawn.run.memory.peak_by_tag.size(); ++tag) {
    const std::size_t peak = drawn.run.memory.peak_by_tag[tag];
    if (runtime::MemoryTag(tag) == runtime::MemoryTag::scratch) continue;
    EXPECT_EQ(peaks[std::string(name(runtime::MemoryTag(tag)))], peak) << name(runtime::MemoryTag(tag));
  }
  for (int rank = 0; rank < scenario.world.ranks(); ++rank) {
    EXPECT_GT((most[{rank, "in flight, bytesbytes"}]), 0);
    EXPECT_EQ((last[{rank, "in flight, bytesbytes"}]), 0);
    EXPECT_GT((most[{rank, "compute queue, depthitems"}]), 1) << "the host is ahead of its queue";
    EXPECT_EQ((last[{rank, "compute queue, depthitems"}]), 0);
  }
}

TEST(Timeline, HoldsEveryLaunchAndOperationOnce) {
  const Scenario scenario = busy_scenario();
  const Drawn drawn = draw(scenario);
  const Json events = drawn.events();
  std::map<int, std::set<std::uint64_t>> launches;      // of the compute queue, by rank
  std::map<int, std::uint64_t> computed, communicated;  // spans
  std::set<std::string> threads;
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    const std::string thread = thread_of(events, event);
    threads.insert(thread);
    const int rank = event["pid"];
    if (thread == "compute queue") {
      ++computed[rank];
      launches[rank].insert(event["args"]["sequence"].get<std::uint64_t>());
    }
    const std::string kind = event["args"].value("kind", "");
    communicated[rank] += runtime::is_collective(runtime::op_kind(kind));
  }
  for (const char* name : {"steps", "phases of the compute queue", "host", "compute queue", "communication queue",
                           "copy queue", "host queue", "storage queue"})
    EXPECT_TRUE(threads.count(name)) << name;
  for (int rank = 0; rank < scenario.world.ranks(); ++rank) {
    ASSERT_FALSE(launches[rank].empty());
    EXPECT_EQ(*launches[rank].begin(), 1u);
    EXPECT_EQ(*launches[rank].rbegin(), launches[rank].size()) << "a launch is missing on rank " << rank;
    EXPECT_EQ(computed[rank], launches[rank].size()) << "a launch is there twice on rank " << rank;
    EXPECT_EQ(communicated[rank], drawn.communicated.at(rank)) << "rank " << rank;
    EXPECT_GT(communicated[rank], 0u);
  }
}

TEST(Timeline, MarksStepsFaultsAndRecoveries) {
  const Drawn drawn = draw(broken_scenario());
  ASSERT_EQ(drawn.run.detection.recoveries.size(), 1u);
  std::set<std::string> steps, marks;
  std::int64_t fault_ns = -1, detected_ns = -1;
  for (const Json& event : drawn.events()) {
    const std::string name = event["name"];
    if (event.value("cat", "") == "step") steps.insert(name);
    if (event["ph"] != "i") continue;
    marks.insert(event["cat"]);
    if (event["cat"] == "fault") fault_ns = ns(event["ts"]);
    if (name.find("detected") != std::string::npos) detected_ns = ns(event["ts"]);
  }
  const std::size_t committed = drawn.run.steps.size();
  for (std::size_t i = 0; i < committed; ++i) {
    const std::string step = fmt::format("step {}", i);
    EXPECT_TRUE(steps.count(step) || steps.count(step + ", epoch 1")) << step;
  }
  EXPECT_TRUE(marks.count("fault"));
  EXPECT_TRUE(marks.count("recovery"));
  EXPECT_EQ(fault_ns, drawn.run.faults.at(0).first_fired_ns);
  EXPECT_EQ(detected_ns, drawn.run.detection.recoveries[0].detected_ns);
}

const Json* span_named(const Json& events, const std::string& name) {
  for (const Json& event : events) {
    if (event["ph"] == "X" && event["name"] == name) return &event;
  }
  return nullptr;
}

// The times of the report, as spans: a recovery from the fault to the next commit contains its stages in a row.
TEST(Timeline, DrawsRecoveriesAsSpansOfTheirStages) {
  const Scenario scenario = broken_scenario();
  const Drawn drawn = draw(scenario);
  ASSERT_EQ(drawn.run.detection.recoveries.size(), 1u);
  const Recovery& told = drawn.run.detection.recoveries[0];
  const Json events = drawn.events();
  const auto expect = [&](const std::string& name, std::int64_t begin, std::int64_t end) {
    const Json* span = span_named(events, name);
    ASSERT_NE(span, nullptr) << name;
    EXPECT_EQ((*span)["pid"], scenario.world.ranks()) << "a process of its own";
    EXPECT_EQ(ns((*span)["ts"]), begin) << name;
    EXPECT_EQ(ns((*span)["ts"]) + ns((*span)["dur"]), end) << name;
  };
  const std::int64_t fired = drawn.run.faults.at(0).first_fired_ns;
  expect("recovery of epoch 0", fired, told.resumed_ns);
  expect("detection", fired, told.detected_ns);
  expect("agreement", told.detected_ns, told.agreed_ns);
  expect("rebuild", told.agreed_ns, told.rebuilt_ns);
  expect("resume", told.rebuilt_ns, told.resumed_ns);
  expect("collective_timeout, rank 2", fired, told.rebuilt_ns);
  EXPECT_EQ((*span_named(events, "recovery of epoch 0"))["args"]["fault"], 0);
  EXPECT_EQ(span_named(draw(busy_scenario()).events(), "recovery of epoch 0"), nullptr);
}

// A failure while ranks recover from another one: spans that overlap stand on tracks of their own.
TEST(Timeline, OverlappingRecoveriesStandSideBySide) {
  RunRecord run = good_run();
  for (const TimeNs begin : {100, 150, 400}) {
    Recovery recovery = recovery_naming({1});
    recovery.epoch = std::uint32_t(run.detection.recoveries.size());
    recovery.detected_ns = begin;
    recovery.agreed_ns = begin + 10;
    recovery.rebuilt_ns = begin + 20;
    recovery.resumed_ns = begin + 100;
    run.detection.recoveries.push_back(recovery);
  }
  const sim::Timeline nothing(4);
  Json trace = Json::parse(chrome_trace(nothing, small_scenario(), run));
  EXPECT_EQ(wrong_with_trace(trace), "");
  const auto track = [&](const char* name) { return (*span_named(trace["traceEvents"], name))["tid"].get<int>(); };
  EXPECT_NE(track("recovery of epoch 0"), track("recovery of epoch 1"));
  EXPECT_EQ(track("recovery of epoch 0"), track("recovery of epoch 2"));
  // Seen: a stage that is longer than its recovery.
  for (Json& event : trace["traceEvents"]) {
    if (event["name"] == "resume") event["dur"] = 1000;
  }
  EXPECT_NE(wrong_with_trace(trace).find("ends behind the span"), std::string::npos) << wrong_with_trace(trace);
}

// The job dies and starts again from a checkpoint: both attempts are in one trace, in the same threads.
TEST(Timeline, OfAJobThatStartsAgainHasBothAttempts) {
  LoadOptions options;
  options.sets = {R"(faults=[{"kind":"rank_crash","rank":1,"step":2,"op":"vote"}])", "checks=[]",
                  R"(recovery={"policy":"stop","watchdog_s":60,"restarts":1,"restart_s":60})",
                  R"(checkpoint={"path":"kept","every_steps":1})"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", options);
  const Drawn drawn = draw(scenario);
  ASSERT_EQ(drawn.run.training.attempts.size(), 2u);
  const Json events = drawn.events();
  EXPECT_EQ(wrong_with_trace(Json::parse(drawn.text)), "");
  const TimeNs again = drawn.run.training.attempts[1].began_ns;
  std::map<std::string, std::set<bool>> seen;  // by what: before and after the second start
  std::map<std::pair<int, std::string>, int> threads;
  for (const Json& event : events) {
    if (event["name"] == "thread_name") ++threads[{event["pid"], event["args"]["name"]}];
    if (event["ph"] == "X" || event["ph"] == "C") seen[event.value("cat", "counter")].insert(ns(event["ts"]) >= again);
  }
  for (const char* what : {"step", "phase", "forward", "counter"}) EXPECT_EQ(seen[what].size(), 2u) << what;
  for (const auto& [thread, count] : threads) EXPECT_EQ(count, 1) << thread.first << ' ' << thread.second;
}

// Ranks stand below each other by node, and say to which one they belong.
TEST(Timeline, NamesTheNodeOfEachRank) {
  const Json events = draw(busy_scenario()).events();
  std::map<int, std::string> names, labels;
  std::map<int, int> places;
  for (const Json& event : events) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["name"] == "process_labels") labels[event["pid"]] = event["args"]["labels"];
    if (event["name"] == "process_sort_index") places[event["pid"]] = event["args"]["sort_index"];
  }
  EXPECT_EQ(names[0], "node 0 / rank 0");
  EXPECT_EQ(names[3], "node 1 / rank 3");
  EXPECT_EQ(labels[3], "node 1");
  for (int rank = 1; rank < 4; ++rank) EXPECT_LT(places[rank - 1], places[rank]);
}

// More than there is room for: the first steps, the last ones, those around the fault and every few of the others are
// there as a whole, and the trace says which are not.
TEST(Timeline, OfALongRunSaysWhichStepsAreLeftOut) {
  sim::Timeline timeline(1);
  struct Nobody final : runtime::Executor {
    void make_ready(runtime::SteppedQueue&) override {}
    void step_after(runtime::SteppedQueue&, TimeNs) override {}
    TimeNs duration(const runtime::SteppedQueue&, const runtime::Op&, runtime::Cost) override { return 0; }
    void host_place_reached(runtime::SteppedQueue&) override {}
    void kernel_failed(runtime::SteppedQueue&, const runtime::Op&, std::string_view) override {}
  } nobody;
  runtime::SteppedQueue queue(nobody, "compute queue", 0);
  Scenario scenario = small_scenario();
  scenario.train.definition.steps = 600;
  constexpr int kLaunches = 1000;
  for (int i = 0; i < 600 * kLaunches; ++i) {
    runtime::Op op;
    op.step = i / kLaunches;
    op.rank = 0;
    timeline.ran(queue, 0, op, i * 10, i * 10 + 10);
    if (i == 300 * kLaunches) timeline.mark(i * 10, 0, "fault", "a fault");
  }
  const Json trace = Json::parse(chrome_trace(timeline, scenario, RunRecord{}));
  EXPECT_EQ(wrong_with_trace(trace), "");
  std::map<std::string, std::int64_t> steps;
  std::set<std::int64_t> left_out;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    if (event["cat"] == "step") steps[event["name"]] = ns(event["dur"]);
    if (event["cat"] == "left_out") left_out.insert(ns(event["ts"]) / (10 * kLaunches));
  }
  for (const int step : {0, 1, 50, 299, 300, 301, 598, 599})
    EXPECT_TRUE(steps.count(fmt::format("step {}", step))) << step;
  for (const auto& [name, length] : steps) EXPECT_EQ(length, 10 * kLaunches) << name << " is not whole";
  EXPECT_GE(steps.size(), 300u);
  EXPECT_FALSE(left_out.empty());
  for (const std::int64_t step : left_out) EXPECT_FALSE(steps.count(fmt::format("step {}", step))) << step;
  EXPECT_EQ(trace["otherData"]["left_out"].size(), left_out.size());
  EXPECT_EQ(trace["otherData"]["spans_left_out"], (600 - int(steps.size())) * kLaunches);
  EXPECT_NE(trace_summary(timeline, "t.json").find("left out: step"), std::string::npos);
}

TEST(Timeline, IsTheSameForASeedAndChangesNothing) {
  Scenario scenario = broken_scenario();
  const Drawn once = draw(scenario), again = draw(scenario);
  EXPECT_TRUE(once.text == again.text);
  const RunRecord plain = Simulation(scenario, {}).run();
  EXPECT_EQ(plain.fingerprint, once.run.fingerprint);
  EXPECT_EQ(plain.virtual_ns, once.run.virtual_ns);
  scenario.world.seed += 1;
  EXPECT_FALSE(draw(scenario).text == once.text) << "times are drawn from the seed";
}

TEST(Timeline, DrawsMessagesAsArrows) {
  using namespace sim;
  WorldPlan plan = spread_world(2);
  plan.timeline = true;
  World world(plan);
  send_one_message(world, OpKind::send);
  Scenario scenario = small_scenario();
  scenario.world = plan;
  const Json trace = Json::parse(chrome_trace(*world.timeline(), scenario, RunRecord{}));
  EXPECT_EQ(wrong_with_trace(trace), "");
  int inside = 0;
  for (const Json& end : trace["traceEvents"]) {
    if (end["ph"] != "s" && end["ph"] != "f") continue;
    EXPECT_EQ(end["pid"], end["ph"] == "s" ? 0 : 1);
    for (const Json& span : trace["traceEvents"]) {
      if (span["ph"] != "X" || span["pid"] != end["pid"] || span["tid"] != end["tid"]) continue;
      inside += ns(span["ts"]) <= ns(end["ts"]) && ns(end["ts"]) < ns(span["ts"]) + ns(span["dur"]);
    }
  }
  EXPECT_EQ(inside, 2);
}

// After the last step the ranks gather what they hold. That is no step, and takes no time of the training.
TEST(Timeline, EndsWithTheLastStep) {
  const Scenario scenario = busy_scenario();
  const Drawn drawn = draw(scenario);
  EXPECT_GT(drawn.gathered, 0u) << "nothing was gathered, so nothing is shown here";
  const std::int64_t last = scenario.train.definition.steps - 1;
  std::int64_t ends = 0, committed = drawn.run.steps.back().committed_ns;
  for (const Json& event : drawn.events()) {
    if (event["ph"] == "M") continue;
    EXPECT_NE(event["name"], fmt::format("step {}", last + 1));
    if (event["ph"] == "X") ends = std::max(ends, ns(event["ts"]) + ns(event["dur"]));
  }
  EXPECT_EQ(drawn.run.virtual_ns, ends);
  EXPECT_GT(drawn.run.virtual_ns, committed) << "the last parameters are published behind the commit";
  EXPECT_GT(drawn.run.ended_ns, drawn.run.virtual_ns);
}

// Every message of an operation that consists of messages; a sum that the simulator makes at once has none.
TEST(Timeline, RealRunsHaveArrows) {
  LoadOptions options;
  options.sets = {"faults=[]", "checks=[]", "model.layers=2", "world.pipeline=2"};
  const Drawn drawn = draw(load_scenario_text(small_text(), "s.json", options));
  EXPECT_EQ(wrong_with_trace(Json::parse(drawn.text)), "");
  std::map<std::int64_t, int> from, to;
  for (const Json& event : drawn.events()) {
    if (event["ph"] == "s") from[event["id"]] = event["pid"];
    if (event["ph"] == "f") to[event["id"]] = event["pid"];
  }
  EXPECT_GE(from.size(), 4u * 4u * 2u) << "activations and gradients of each step and micro-batch";
  for (const auto& [id, rank] : from) EXPECT_NE(to.at(id), rank);
}

TEST(Timeline, OfASweepIsThatOfOneRow) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("trace.json");
  std::string text = small_text_with(8, "");
  text.replace(text.find(R"(, "culprit:2")"), 13, "");
  text.insert(text.rfind('}'), R"(, "sweep": [ { "world.ranks_per_node": [ 1, 2 ] } ])");
  const std::string file = folder.write("swept.json", text);
  const Ran all = seeksim({"run", file, "--trace", trace});
  EXPECT_EQ(all.status, 2);
  EXPECT_NE(all.err.find("--row N"), std::string::npos) << all.err;
  const Ran one = seeksim({"run", file, "--row", "1", "--trace", trace});
  EXPECT_EQ(one.status, 0) << one.err << one.out;
  EXPECT_NE(one.out.find(trace), std::string::npos) << one.out;
  EXPECT_EQ(wrong_with_trace(Json::parse(read_all(trace))), "");
  const Ran two = seeksim({"run", file, file, "--trace", trace});
  EXPECT_EQ(two.status, 2);
  const Ran nowhere = seeksim({"run", file, "--row", "1", "--trace", folder.file("no/such/folder.json")});
  EXPECT_EQ(nowhere.status, 2);
}

}  // namespace
}  // namespace seeksim::harness
