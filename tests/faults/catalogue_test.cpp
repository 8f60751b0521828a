// The catalogue is complete, what it says is what is accepted, and a rule's text is what a scenario would say.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "faults/trigger.h"
#include "tests/support/manual_seams.h"
#include "tests/support/paths.h"

namespace seeksim::faults::test {

namespace {

std::string file(const std::string& path) {
  std::ifstream in(seeksim::paths::source_dir() + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> keys_of_problems(const Rule& r, int nodes = 2, int per_node = 2) {
  std::vector<std::string> keys;
  for (const Problem& problem : problems(r, Bench::node_table(nodes, per_node))) {
    EXPECT_FALSE(problem.what.empty());
    keys.push_back(problem.key);
  }
  return keys;
}

using Keys = std::vector<std::string>;

// A sound rule of each kind.
Rule sound(FaultKind kind) {
  Rule r = rule(kind);
  if (kind == FaultKind::link_drop || kind == FaultKind::slow_link) r = link(kind, 0, 1);
  if (kind == FaultKind::straggler || kind == FaultKind::slow_disk) r.when.rank = 1;
  if (kind == FaultKind::node_crash) r.when.node = 1;
  if (kind == FaultKind::clock_skew || kind == FaultKind::preemption_notice) r.when.rank = 1;
  if (kind == FaultKind::clock_skew) r.offset_ns = 5;
  if (kind == FaultKind::pause || kind == FaultKind::data_stall || kind == FaultKind::zombie_message) r.delay_ns = 5;
  const bool timed = kind == FaultKind::preemption_notice || is_of_the_control_plane(kind);
  if (timed) r.when.at_ns = 5;
  if (kind == FaultKind::partition) r.sides = {{0, 3}, {1, 2}};
  return r;
}

std::vector<FaultKind> all_kinds() {
  std::vector<FaultKind> kinds;
  for (int k = 0; k < int(FaultKind::count_); ++k) kinds.push_back(FaultKind(k));
  return kinds;
}

}  // namespace

TEST(Catalogue, EveryKindHasItsEntryInOrder) {
  ASSERT_EQ(catalogue().size(), std::size_t(FaultKind::count_));
  for (const FaultKind kind : all_kinds()) {
    const FaultInfo& entry = catalogue()[std::size_t(kind)];
    EXPECT_EQ(entry.kind, kind);
    EXPECT_EQ(fault_kind(name(kind)), kind);
    for (const std::string_view text :
         {entry.rows, entry.summary, entry.sees, entry.recovery, entry.defaults, entry.field}) {
      EXPECT_FALSE(text.empty()) << name(kind);
    }
    const std::set<std::string_view> once(entry.parameters.begin(), entry.parameters.end());
    EXPECT_EQ(once.size(), entry.parameters.size()) << name(kind);
    EXPECT_EQ(entry.modes.empty(), once.count("mode") == 0) << name(kind);
  }
  EXPECT_EQ(fault_kind("no_such_fault"), FaultKind::count_);
}

TEST(Catalogue, EveryModeHasItsName) {
  for (int m = int(Mode::never); m <= int(Mode::drop); ++m) EXPECT_EQ(mode(name(Mode(m))), Mode(m));
  EXPECT_EQ(mode("sometimes"), Mode::unset);
}

// What a kind does is in docs/reference/faults.md, which is generated from the catalogue.
TEST(Catalogue, EveryKindIsInAScenario) {
  std::string scenarios;
  for (const auto& entry : std::filesystem::directory_iterator(seeksim::paths::source_dir() + "/scenarios/faults"))
    scenarios += file("scenarios/faults/" + entry.path().filename().string());
  for (const FaultInfo& entry : catalogue())
    EXPECT_NE(scenarios.find("\"" + std::string(name(entry.kind)) + "\""), std::string::npos) << name(entry.kind);
}

// Each row of the table in docs/faults.md is a kind, and has a scenario whose reason says so.
TEST(Catalogue, EveryRowOfTheReferenceIsAKindAndAScenario) {
  std::string rows;
  for (const FaultInfo& entry : catalogue()) rows += std::string(entry.rows) + ", ";
  std::string reasons;
  for (const auto& entry : std::filesystem::directory_iterator(seeksim::paths::source_dir() + "/scenarios/faults"))
    reasons += file("scenarios/faults/" + entry.path().filename().string());
  for (int row = 1; row <= 33; ++row) {
    const std::string id = (row < 10 ? "F0" : "F") + std::to_string(row);
    EXPECT_NE(rows.find(id + ","), std::string::npos) << id;
    EXPECT_NE(reasons.find("\"why\": \"" + id + ":"), std::string::npos) << id;
  }
}

TEST(Catalogue, EverySoundRuleIsAcceptedAndMakesAPlan) {
  for (const FaultKind kind : all_kinds()) {
    EXPECT_EQ(keys_of_problems(sound(kind)), Keys{}) << name(kind);
    EXPECT_NO_THROW(Bench({sound(kind)}));
  }
}

TEST(Catalogue, ImpossibleRulesAreRefusedByKey) {
  const auto with = [](FaultKind kind, auto change) {
    Rule r = sound(kind);
    change(r);
    return keys_of_problems(r);
  };
  using K = FaultKind;
  EXPECT_EQ(with(K::rank_crash, [](Rule& r) { r.when.rank = 4; }), Keys{"rank"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.when.peer = -1; }), Keys{"peer"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.when.rank = r.when.peer = 2; }), Keys{"peer"});
  EXPECT_EQ(with(K::rank_crash, [](Rule& r) { r.when.peer = 1; }), Keys{"peer"});
  EXPECT_EQ(with(K::rank_crash, [](Rule& r) { r.when.at_ns = 5; }), Keys{"rank"});
  EXPECT_EQ(with(K::straggler, [](Rule& r) { r.when.rank.reset(); }), Keys{"rank"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.to.reset(); }), Keys{"link"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.to = 0; }), Keys{"link"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.to = 4; }), Keys{"link"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.nodes = true, r.to = 2; }), Keys{"link"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.when.rank = 1; }), Keys{"rank"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.from = 0; }), Keys{"link"});
  EXPECT_EQ(with(K::collective_timeout, [](Rule& r) { r.when.op = OpKind::compute; }), Keys{"op"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.when.op = OpKind::vote; }), Keys{"op"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.when.call = 0; }), Keys{"call"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.when.probability = 0; }), Keys{"probability"});
  EXPECT_EQ(with(K::message_drop, [](Rule& r) { r.count = -1; }), Keys{"count"});
  EXPECT_EQ(with(K::rank_crash, [](Rule& r) { r.mode = Mode::late; }), Keys{"mode"});
  EXPECT_EQ(with(K::slow_link, [](Rule& r) { r.mode = Mode::permanent; }), Keys{"mode"});
  EXPECT_EQ(with(K::collective_timeout, [](Rule& r) { r.mode = Mode::late; }), Keys{"delay_s"});
  EXPECT_EQ(with(K::collective_timeout, [](Rule& r) { r.delay_ns = 5; }), Keys{"delay_s"});
  EXPECT_EQ(with(K::slow_link, [](Rule& r) { r.factor = 2; }), Keys{"factor"});
  EXPECT_EQ(with(K::straggler, [](Rule& r) { r.factor = 0.5; }), Keys{"factor"});
  EXPECT_EQ(with(K::straggler, [](Rule& r) { r.mode = Mode::periodic, r.duty = 1.5; }), Keys{"duty"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.down_ns = 1, r.cycles = 0; }), Keys{"cycles"});
  EXPECT_EQ(with(K::node_crash, [](Rule& r) { r.when.node = 2; }), Keys{"node"});
  EXPECT_EQ(with(K::node_crash, [](Rule& r) { r.when.node.reset(); }), Keys{"node"});
  EXPECT_EQ(with(K::device_error, [](Rule& r) { r.code = 2; }), Keys{"code"});
  EXPECT_EQ(with(K::pause, [](Rule& r) { r.delay_ns = 0; }), Keys{"delay_s"});
  EXPECT_EQ(with(K::clock_skew, [](Rule& r) { r.offset_ns = 0; }), Keys{"offset_s"});
  EXPECT_EQ(with(K::preemption_notice, [](Rule& r) { r.when.node = 0; }), Keys{"rank"});
  EXPECT_EQ(with(K::preemption_notice, [](Rule& r) { r.when.at_ns.reset(); }), Keys{"at_s"});
  EXPECT_EQ(with(K::partition, [](Rule& r) { r.sides = {{0, 1}, {1, 2, 3}}; }), Keys{"sides"});
  EXPECT_EQ(with(K::partition, [](Rule& r) { r.sides = {{0, 1}, {2}}; }), Keys{"sides"});
  EXPECT_EQ(with(K::partition, [](Rule& r) { r.store_side = 2; }), Keys{"store_side"});
  EXPECT_EQ(with(K::store_death, [](Rule& r) { r.when.at_ns.reset(); }), Keys{"at_s"});
  EXPECT_EQ(with(K::link_drop, [](Rule& r) { r.loss = 0; }), Keys{"loss"});
  EXPECT_EQ(with(K::stale_gradient, [](Rule& r) { r.when.step = 0; }), Keys{"step"});
  EXPECT_EQ(with(K::collective_mismatch, [](Rule& r) { r.mode = Mode::never; }), Keys{"mode"});
  EXPECT_EQ(with(K::collective_mismatch, [](Rule& r) { r.when.op = OpKind::vote; }), Keys{"op"});
  EXPECT_EQ(with(K::rank_crash, [](Rule& r) { r.signal = "term"; }), Keys{"signal"});
  EXPECT_EQ(with(K::pause, [](Rule& r) { r.signal = "kill"; }), Keys{"signal"});
  EXPECT_EQ(with(K::data_error, [](Rule& r) { r.when.sample = -1; }), Keys{"sample"});
  EXPECT_EQ(with(K::oom, [](Rule& r) { r.when.sample = 1; }), Keys{"sample"});
  EXPECT_EQ(keys_of_problems(Rule{}), Keys{"kind"});
}

TEST(Catalogue, APlanWithAnImpossibleRuleIsNotBuilt) {
  Rule r = rule(FaultKind::rank_crash);
  r.when.rank = 17;
  try {
    FaultPlan plan({r}, 1, {0, 0, 1, 1});
    FAIL() << "built";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("\"rank\": ranks go from 0 to 3"), std::string::npos) << error.what();
  }
}

TEST(Defaults, FollowFromWhatIsGiven) {
  const auto mode_of = [](const Rule& r) { return with_defaults(r).mode; };
  EXPECT_EQ(mode_of(sound(FaultKind::collective_timeout)), Mode::never);
  EXPECT_EQ(mode_of(sound(FaultKind::rank_crash)), Mode::before);
  EXPECT_EQ(mode_of(sound(FaultKind::link_drop)), Mode::permanent);
  Rule flap = sound(FaultKind::link_drop);
  flap.down_ns = 5;
  EXPECT_EQ(mode_of(flap), Mode::transient);
  EXPECT_EQ(with_defaults(sound(FaultKind::slow_link)).factor, 0.5);
  Rule latency = sound(FaultKind::slow_link);
  latency.delay_ns = 5;
  EXPECT_EQ(with_defaults(latency).factor, 1.0) << "only latency was asked for";
  EXPECT_EQ(with_defaults(sound(FaultKind::straggler)).factor, 1.1);
  Rule periodic = sound(FaultKind::straggler);
  periodic.period_ns = 5;
  EXPECT_EQ(mode_of(periodic), Mode::periodic);
  EXPECT_EQ(with_defaults(periodic).factor, 2.0);
  Rule ramp = sound(FaultKind::straggler);
  ramp.ramp_ns = 5;
  EXPECT_EQ(mode_of(ramp), Mode::ramp);
}

TEST(Signal, IsKilledUnlessItSaysOtherwise) {
  EXPECT_EQ(process_ending("")->how, ProcessEnd::kill);
  EXPECT_EQ(process_ending("kill")->how, ProcessEnd::kill);
  EXPECT_EQ(process_ending("segv")->how, ProcessEnd::segv);
  EXPECT_EQ(process_ending("abrt")->how, ProcessEnd::abrt);
  for (const int status : {0, 1, 127, 255}) {
    const auto ending = process_ending("exit:" + std::to_string(status));
    ASSERT_TRUE(ending) << status;
    EXPECT_EQ(ending->how, ProcessEnd::exit);
    EXPECT_EQ(ending->status, status);
  }
  for (const char* not_one : {"KILL", "term", "9", "exit", "exit:", "exit:256", "exit:-1", "exit:+1", "exit:01",
                              "exit: 1", "exit:1 ", "exit:0x1", "exit:99999999999999999999"})
    EXPECT_FALSE(process_ending(not_one)) << not_one;
}

TEST(RuleText, IsTheLineOfTheScenario) {
  Rule hang = rule(FaultKind::collective_timeout);
  hang.when.rank = 5;
  hang.when.step = 7;
  hang.when.op = OpKind::all_reduce;
  EXPECT_EQ(text(hang), R"({"kind": "collective_timeout", "rank": 5, "step": 7, "op": "all_reduce"})");

  Rule cut = link(FaultKind::link_drop, 1, 0);
  cut.nodes = true;
  cut.both_directions = false;
  cut.when.at_ns = 1500 * kMillisecond;
  cut.down_ns = 2 * kSecond;
  cut.cycles = 3;
  EXPECT_EQ(text(cut), R"({"kind": "link_drop", "link": {"nodes": [1, 0]}, "both_directions": false, "at_s": 1.5, )"
                       R"("down_s": 2, "cycles": 3})");

  Rule leaves = rule(FaultKind::rank_crash);
  leaves.when.rank = 1;
  leaves.signal = "exit:0";
  EXPECT_EQ(text(leaves), R"({"kind": "rank_crash", "rank": 1, "signal": "exit:0"})");

  Rule unreadable = rule(FaultKind::data_error);
  unreadable.when.sample = 21;
  unreadable.count = 0;
  EXPECT_EQ(text(unreadable), R"({"kind": "data_error", "sample": 21, "count": 0})");

  Rule noise = rule(FaultKind::message_corrupt);
  noise.when.probability = 0.1;
  noise.when.phase = Phase::grad_reduce;
  noise.count = 0;
  noise.bit = 20;
  noise.checksum = false;
  EXPECT_EQ(text(noise),
            R"({"kind": "message_corrupt", "phase": "grad_reduce", "probability": 0.1, "count": 0, "bit": 20, )"
            R"("checksum": false})");
}

}  // namespace seeksim::faults::test
