// A run as a Chrome trace: a small validator that is seen to fail checks it against the trace-event format, and it is
// compared with the run: every launch and operation is in it once, at its time, and drawing it changes nothing.
#include "harness/export/chrome_trace.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
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

std::int64_t ns(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

bool is_whole(const Json& event, const char* key) { return event.contains(key) && event[key].is_number_integer(); }

// What is wrong with a trace, by the rules of the trace-event format and those of what is drawn here.
std::string wrong_with(const Json& trace) {
  static const std::set<std::string> kColours = {"thread_state_uninterruptible",
                                                 "thread_state_iowait",
                                                 "thread_state_running",
                                                 "thread_state_runnable",
                                                 "thread_state_sleeping",
                                                 "thread_state_unknown",
                                                 "background_memory_dump",
                                                 "light_memory_dump",
                                                 "detailed_memory_dump",
                                                 "vsync_highlight_color",
                                                 "generic_work",
                                                 "good",
                                                 "bad",
                                                 "terrible",
                                                 "black",
                                                 "grey",
                                                 "white",
                                                 "yellow",
                                                 "olive",
                                                 "rail_response",
                                                 "rail_animation",
                                                 "rail_idle",
                                                 "rail_load",
                                                 "startup"};
  static const std::set<std::string> kMetadata = {"process_name", "process_sort_index", "thread_name",
                                                  "thread_sort_index"};
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return "no traceEvents";
  if (trace["displayTimeUnit"] != "ns" && trace["displayTimeUnit"] != "ms") return "displayTimeUnit";
  using Thread = std::pair<int, int>;
  std::set<Thread> named;
  std::map<Thread, std::int64_t> ends;
  std::map<std::int64_t, std::int64_t> sent, received;
  std::int64_t last = 0;
  for (const Json& event : trace["traceEvents"]) {
    const auto fail = [&](const std::string& what) { return what + ": " + event.dump(); };
    if (!event.contains("name") || !event["name"].is_string()) return fail("no name");
    if (!is_whole(event, "pid") || !is_whole(event, "tid")) return fail("no process or thread");
    const Thread thread{event["pid"], event["tid"]};
    const std::string phase = event.value("ph", "");
    if (phase == "M") {
      if (!kMetadata.count(event["name"]) || !event["args"].is_object()) return fail("unknown metadata");
      if (event["name"] == "thread_name") named.insert(thread);
      continue;
    }
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0) return fail("no time");
    const std::int64_t at = ns(event["ts"]);
    if (at < last) return fail("out of order");
    last = at;
    if (!named.count(thread)) return fail("of a thread without a name");
    if (event.contains("cname") && !kColours.count(event["cname"])) return fail("no reserved colour");
    if (phase == "X") {
      if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0) return fail("no duration");
      if (!event["args"].is_object() || !event["cat"].is_string()) return fail("no arguments or category");
      if (at < ends[thread]) return fail("begins before what is in front of it has ended");
      ends[thread] = at + ns(event["dur"]);
    } else if (phase == "i") {
      const std::string scope = event.value("s", "");
      if (scope != "g" && scope != "p" && scope != "t") return fail("no scope");
    } else if (phase == "C") {
      if (!event["args"].is_object() || event["args"].empty()) return fail("counts nothing");
      for (const auto& [what, value] : event["args"].items())
        if (!value.is_number() || value < 0) return fail("a counter below zero");
    } else if (phase == "s" || phase == "f") {
      if (!is_whole(event, "id")) return fail("no id");
      if (phase == "f" && event.value("bp", "") != "e") return fail("bound to what comes next");
      auto& times = phase == "s" ? sent : received;
      if (!times.emplace(event["id"].get<std::int64_t>(), at).second) return fail("its id is taken");
    } else {
      return fail("unknown kind of event");
    }
  }
  if (sent.size() != received.size()) return "an arrow without an end";
  for (const auto& [id, at] : sent) {
    if (!received.count(id) || received[id] < at) return fmt::format("arrow {} ends before it begins", id);
  }
  return "";
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
    EXPECT_EQ(wrong_with(trace), "");
    EXPECT_EQ(trace["otherData"]["oldest_spans_left_out"], 0);
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
    return wrong_with(bad);
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
  EXPECT_NE(wrong_with(bad).find("without an end"), std::string::npos) << wrong_with(bad);
  bad["traceEvents"].back()["ph"] = "i";
  EXPECT_NE(wrong_with(bad).find("no scope"), std::string::npos) << wrong_with(bad);
  EXPECT_NE(wrong_with(Json::array()), "");
  std::size_t counter = 0;
  while (good["traceEvents"][counter]["ph"] != "C") ++counter;
  bad = good;
  bad["traceEvents"][counter]["args"] = {{"bytes", -1}};
  EXPECT_NE(wrong_with(bad).find("below zero"), std::string::npos) << wrong_with(bad);
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
  EXPECT_EQ(wrong_with(trace), "");
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
  EXPECT_EQ(wrong_with(Json::parse(drawn.text)), "");
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
  EXPECT_EQ(wrong_with(Json::parse(read_all(trace))), "");
  const Ran two = seeksim({"run", file, file, "--trace", trace});
  EXPECT_EQ(two.status, 2);
  const Ran nowhere = seeksim({"run", file, "--row", "1", "--trace", folder.file("no/such/folder.json")});
  EXPECT_EQ(nowhere.status, 2);
}

}  // namespace
}  // namespace seeksim::harness
