// Checks, faults and families that a user adds: named by scenarios, refused where they cannot be, written back. What
// they do in a program of the user's own is tested by tests/package/.
#include "harness/loading/extensions.h"

#include <algorithm>
#include <stdexcept>

#include "faults/forwarding.h"
#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "harness/scenario/variants.h"
#include "harness/search/explore.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Adds a constant to each virtual time that the runtime reads: nothing depends on it, so that the bits stay.
class LateClock final : public OwnFault {
 public:
  explicit LateClock(runtime::TimeNs by_ns) : by_ns_(by_ns) {}
  runtime::Seams decorate(int, runtime::Seams inner) override {
    clocks_.push_back(std::make_unique<Shifted>(*this, inner.clock));
    return {*clocks_.back(), inner.device, inner.transport, inner.storage, inner.control};
  }
  std::uint64_t fired() const override { return fired_; }

 private:
  class Shifted final : public faults::ForwardingClock {
   public:
    Shifted(LateClock& owner, runtime::Clock& inner) : ForwardingClock(inner), owner_(owner) {}
    runtime::TimeNs now() const override {
      if (owner_.by_ns_ > 0) ++owner_.fired_;
      return inner_.now() + owner_.by_ns_;
    }

   private:
    LateClock& owner_;
  };
  runtime::TimeNs by_ns_;
  std::uint64_t fired_ = 0;
  std::vector<std::unique_ptr<Shifted>> clocks_;
};

// A family that refuses whatever it is asked.
class NoModel final : public runtime::ModelFamily {
 public:
  std::vector<runtime::ParameterInfo> parameters(const runtime::ModelPlan& plan, bool decay_all) const override {
    runtime::ModelPlan gpt2 = plan;
    gpt2.family = "gpt2";
    gpt2.own = nullptr;
    return runtime::whole_model(gpt2, decay_all);
  }
  std::vector<std::unique_ptr<runtime::Model>> models(runtime::Device&, const runtime::TrainPlan&,
                                                      const runtime::Parameters&, std::size_t, runtime::Index, int,
                                                      runtime::TensorAxis*) const override {
    throw std::logic_error("refused by problem()");
  }
  std::string problem(const runtime::TrainPlan&) const override { return "this family trains nothing"; }
};

OwnCheck check_called(const std::string& name) {
  OwnCheck check;
  check.name = name;
  check.argument = "3";
  check.summary = "at least so many steps";
  check.look = [](const Evidence& evidence, const std::string& argument) {
    if (evidence.run.steps.empty()) return blind("no step was committed");
    return evidence.run.steps.size() >= std::stoul(argument) ? good("enough") : bad("too few");
  };
  return check;
}

// Once for all tests of the process.
void add_all() {
  static const bool added = [] {
    add_check(check_called("own_steps"));
    add_fault("own_late_clock", [](const Json& parameters, std::uint64_t) {
      return std::make_unique<LateClock>(runtime::TimeNs(parameters.value("by_s", 1.0) * 1e9));
    });
    add_family("own_nothing", std::make_shared<NoModel>());
    return true;
  }();
  ASSERT_TRUE(added);
}

Outcome run_small(const std::vector<std::string>& sets) {
  LoadOptions load;
  load.sets = {"faults=[]", "checks=[\"golden:bitwise\"]"};
  load.sets.insert(load.sets.end(), sets.begin(), sets.end());
  return run_text(small_text(), "s.json", load);
}

std::string check_detail(const Outcome& outcome, const std::string& name) {
  for (const Json& check : outcome.report.at("checks")) {
    if (check.at("name") == name) return check.at("detail");
  }
  return "not made";
}

TEST(Own, ACheckIsJudgedAndListed) {
  add_all();
  EXPECT_EQ(run_small({"checks=[\"own_steps:2\"]", "steps=2"}).status, ExitStatus::as_expected);
  const Outcome red = run_small({"checks=[\"own_steps:3\"]", "steps=2"});
  EXPECT_EQ(red.status, ExitStatus::check_failed);
  EXPECT_EQ(check_detail(red, "own_steps:3"), "too few");
  EXPECT_EQ(run_small({"checks=[\"own_steps:3\"]", "steps=2", R"(expect={"check_fails":"own_steps"})"}).status,
            ExitStatus::as_expected);
  EXPECT_NE(seeksim({"list", "checks"}).out.find("own_steps:3\n    at least so many steps"), std::string::npos);
  EXPECT_NE(problems_of(small_text(), {"checks=[\"own_stps:3\"]"}).find("own_steps"), std::string::npos);
}

TEST(Own, WhatACheckSaysOfItselfHolds) {
  add_all();
  EXPECT_NE(problems_of(small_text(), {"checks=[\"own_steps:1\"]", "numerics=shapes"}).find("own_steps"),
            std::string::npos);
  ASSERT_NE(own_check("own_steps"), nullptr);
  EXPECT_EQ(own_check("golden"), nullptr);
}

TEST(Own, ACheckGetsTheGoldenThatItAskedFor) {
  static const bool added = [] {
    OwnCheck check = check_called("own_golden");
    check.argument.clear();
    check.look = [](const Evidence& evidence, const std::string&) {
      return evidence.golden != nullptr ? good("there is one") : bad("there is none");
    };
    add_check(check);
    check.name = "own_with_golden";
    check.needs_golden = true;
    add_check(check);
    return true;
  }();
  ASSERT_TRUE(added);
  EXPECT_EQ(check_detail(run_small({R"(checks=["own_with_golden"])", "steps=1"}), "own_with_golden"), "there is one");
  EXPECT_EQ(check_detail(run_small({R"(checks=["own_golden"])", "steps=1"}), "own_golden"), "there is none");
}

TEST(Own, ACheckMayJudgeRunsOfShapesAndBeLeftOutOfExploring) {
  static const bool added = [] {
    OwnCheck check = check_called("own_of_shapes");
    check.of_shapes = true;
    add_check(check);
    check.name = "own_undisturbed";
    check.under_faults = false;
    add_check(check);
    return true;
  }();
  ASSERT_TRUE(added);
  EXPECT_EQ(run_small({R"(checks=["own_of_shapes:2"])", "steps=2", "numerics=shapes"}).status, ExitStatus::as_expected);

  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  ExploreOptions options;
  options.faults = true;
  const Explored explored =
      load_explored(file, {"faults=[]", R"(checks=["own_of_shapes:1","own_undisturbed:1"])"}, options);
  std::vector<std::string> kept;
  for (const CheckSpec& check : explored.scenario.checks) kept.push_back(check.name);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), "own_of_shapes"), 1);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), "own_undisturbed"), 0);
}

TEST(Own, AFaultWrapsEachRankAndHasToFire) {
  add_all();
  const Outcome late = run_small({R"(own_faults=[{"name":"own_late_clock","by_s":5}])"});
  EXPECT_EQ(late.status, ExitStatus::as_expected) << late.report.dump(1);
  EXPECT_GT(late.report.at("own_faults").at(0).at("fired").get<int>(), 0);
  const Outcome idle = run_small({R"(own_faults=[{"name":"own_late_clock","by_s":0}])"});
  EXPECT_EQ(idle.status, ExitStatus::check_failed);
  EXPECT_EQ(check_detail(idle, "faults_fired"), "own_faults.0 never fired: own_late_clock");
}

TEST(Own, AFaultIsWrittenBackAndLeftOutOfTheGolden) {
  add_all();
  LoadOptions load;
  load.sets = {R"(own_faults=[{"name":"own_late_clock","by_s":5}])"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", load);
  const Scenario again = load_scenario_text(to_json(scenario).dump(), "s.json");
  EXPECT_EQ(again.own_faults, scenario.own_faults);
  ASSERT_EQ(again.own_faults.size(), 1u);
  EXPECT_EQ(again.own_faults[0].parameters, R"({"by_s":5})");
  EXPECT_TRUE(one_rank(scenario).own_faults.empty());
}

TEST(Own, WhatIsNotThereIsRefusedWithWhatIs) {
  add_all();
  EXPECT_NE(problems_of(small_text(), {R"(own_faults=[{"name":"own_early_clock"}])"}).find("it has own_late_clock"),
            std::string::npos);
  EXPECT_NE(problems_of(small_text(), {"model.family=own_nothin"}).find("own_nothing"), std::string::npos);
  EXPECT_NE(problems_of(small_text(), {"model.family=own_nothing"}).find("this family trains nothing"),
            std::string::npos);
}

TEST(Own, NamesAreTakenOnce) {
  add_all();
  EXPECT_THROW(add_check(check_called("own_steps")), std::invalid_argument);
  EXPECT_THROW(add_check(check_called("golden")), std::invalid_argument);
  EXPECT_THROW(add_check(check_called("finished")), std::invalid_argument);
  EXPECT_THROW(add_check(check_called("own steps")), std::invalid_argument);
  OwnCheck blind_one = check_called("own_blind");
  blind_one.look = {};
  EXPECT_THROW(add_check(blind_one), std::invalid_argument);
  EXPECT_THROW(add_fault("own_late_clock", [](const Json&, std::uint64_t) { return nullptr; }), std::invalid_argument);
  EXPECT_THROW(add_fault("own_none", {}), std::invalid_argument);
  EXPECT_THROW(add_family("gpt2", std::make_shared<NoModel>()), std::invalid_argument);
  EXPECT_THROW(add_family("own_null", nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace seeksim::harness
