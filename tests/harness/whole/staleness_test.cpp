// Gradients that come late against an emulation that shares none of their code: plain vectors, and the delays that the
// scenario says. Without delays it is ordinary training. And what staleness cannot be together with is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "tests/harness/whole/emulated_runs.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr const char* kUntied =
    R"("model": { "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61, "tied": false },)";

std::string untied(std::string text) {
  const std::size_t begin = text.find("\"model\""), end = text.find("\"data\"");
  return text.replace(begin, end - begin, kUntied);
}

// When the gradient that a worker makes in a step enters: its delay later, and not before earlier ones.
using DelayOf = int (*)(int worker, int step);

// Each step is the sum, in pairs, of what comes of each worker, the oldest first.
ByStep summed_late(DelayOf delay, const ByStep& groups) {
  ByStep sums;
  const std::size_t n = groups.at(0).size();
  for (int step = 0; step < kPartsSteps; ++step) {
    std::vector<Floats> of(kParts, Floats(n, 0.0F));
    for (int worker = 0; worker < kParts; ++worker) {
      bool first = true;
      for (int made = 0, enters = 0; made <= step; ++made) {
        enters = std::max(enters, made + delay(worker, made));
        if (enters != step) continue;
        for (std::size_t i = 0; i < n; ++i) {
          const float x = groups.at(made * kParts + worker)[i] / kParts;
          float& sum = of[std::size_t(worker)][i];
          sum = first ? x : sum + x;
        }
        first = false;
      }
    }
    for (std::size_t i = 0; i < n; ++i) sums[step].push_back((of[0][i] + of[1][i]) + (of[2][i] + of[3][i]));
  }
  return sums;
}

TEST(StalenessEmulation, EachStepAppliesWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const ByStep groups = reduced_in(untied(emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "")));
  const struct {
    const char* keys;
    DelayOf delay;
  } rows[] = {{R"("bound": 0)", [](int, int) { return 0; }},
              {R"("bound": 1)", [](int, int) { return 1; }},
              {R"("bound": 3, "delays": "most")", [](int, int) { return 3; }},
              {R"("bound": 1, "delays": "skewed")", [](int worker, int step) { return 1 - (step + worker) % 2; }},
              {R"("bound": 2, "delays": "listed", "of_workers": [2, 0, 1, 2])", [](int worker, int) {
                 return std::array{2, 0, 1, 2}[std::size_t(worker)];
               }}};
  for (const auto& [keys, delay] : rows) {
    const ByStep want = summed_late(delay, groups);
    for (const auto& [ranks, stage] : {std::pair(1, 0), std::pair(4, 0), std::pair(3, 1), std::pair(2, 1)}) {
      const std::string staleness = fmt::format(R"("staleness": {{ "workers": {}, {} }},)", kParts, keys);
      EXPECT_EQ(reduced_in(untied(emulated_text(kPartsBatch, kPartsSteps, ranks, stage, staleness))), want)
          << keys << ", " << ranks << " ranks, stage " << stage;
    }
  }
}

// By the record of which gradients entered, and by the sums themselves; some come together, and some steps have none.
TEST(StalenessEmulation, DrawnDelaysApplyEachGradientOnce) {
  const ByStep groups = reduced_in(untied(emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "")));
  const std::string text = untied(emulated_text(
      kPartsBatch, kPartsSteps, 2, 0, R"("staleness": { "workers": 4, "bound": 2, "delays": "drawn", "seed": 5 },)"));
  static std::map<std::pair<int, int>, int> entered;  // the step, by worker and step made
  entered.clear();
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  Simulation simulation(scenario, {});
  std::size_t together = 0, none = 0;
  for (const runtime::LateRecord& one : simulation.run().agreement.late) {
    for (const std::int64_t made : one.made) entered[{int(one.worker), int(made)}] = int(one.clock);
    together += one.made.size() > 1;
    none += one.made.empty();
  }
  EXPECT_GT(together, 0U);
  EXPECT_GT(none, 0U);
  const ByStep want = summed_late(
      [](int worker, int made) {
        const auto found = entered.find({worker, made});
        return found == entered.end() ? kPartsSteps : found->second - made;
      },
      groups);
  EXPECT_EQ(reduced_in(text), want);
}

TEST(StalenessEmulation, SeesAnotherDelay) {
  const ByStep groups = reduced_in(untied(emulated_text(kPartsBatch / kParts, kPartsSteps * kParts, 1, 0, "")));
  EXPECT_NE(summed_late([](int, int) { return 1; }, groups), summed_late([](int, int) { return 2; }, groups));
}

TEST(Staleness, WithoutDelaysItIsOrdinaryTrainingBitForBit) {
  const auto weights = [&](std::vector<std::string> more) {
    LoadOptions options;
    options.sets = {"faults=[]", R"(checks=["golden:bitwise"])"};
    options.sets.insert(options.sets.end(), more.begin(), more.end());
    const Scenario scenario = load_scenario_text(small_text(), "small.json", options);
    Simulation simulation(scenario, {});
    return simulation.run().state()->params;
  };
  for (const char* stage : {"0", "1"}) {
    const std::string zero = std::string("deepspeed.zero_optimization.stage=") + stage;
    const auto ordinary = weights({zero});
    EXPECT_EQ(weights({zero, R"(staleness={"workers":4,"bound":0})"}), ordinary);
    EXPECT_EQ(weights({zero, R"(staleness={"workers":4,"bound":3,"delays":"listed","of_workers":[0,0,0,0]})"}),
              ordinary);
    EXPECT_NE(weights({zero, R"(staleness={"workers":4,"bound":1})"}), ordinary);
  }
}

TEST(Staleness, TheCheckNamesWhatIsWrong) {
  const std::pair<std::vector<std::vector<std::int64_t>>, const char*> rows[] = {
      {{{}, {1}}, "the gradient of clock 1 enters, and the next that is due is that of clock 0"},
      {{{0}, {0, 1}}, "the gradient of clock 0 enters, and the next that is due is that of clock 1"},
      {{{}, {}, {0, 1, 2}}, "the gradient of clock 0 enters 2 steps late; the bound is 1"},
      {{{0}, {}, {}}, "after applied step 2 the gradient of clock 1 still waits"},
  };
  const Scenario scenario = small_scenario();
  for (const auto& [by_clock, message] : rows) {
    RunRecord run = good_run();
    applied_late(by_clock)(run);
    const std::string said = judge(CheckSpec{"staleness_bounded", ""}, {scenario, run, nullptr, {}, {}}).detail;
    EXPECT_NE(said.find(message), std::string::npos) << said;
  }
}

TEST(StalenessLoading, RefusesByName) {
  const auto problems = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"faults=[]", R"(checks=["golden:bitwise"])",
                                     R"(staleness={"workers":4,"bound":2})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return problems_of(small_text(), sets);
  };
  EXPECT_EQ(problems({}), "");
  const std::pair<const char*, const char*> rows[] = {
      {"staleness.workers=3", "8 samples a step for 3 workers: a worker has to have a power of two"},
      {"staleness.delays=late", "\"late\" is not one of"},
      {"staleness.bound=-1", "-1 is out of range"},
      {"staleness.of_workers=[1,1,1,1]", "delays are not \"listed\""},
      {R"(staleness={"workers":4,"delays":"listed","of_workers":[1]})", "1 delays for 4 workers"},
      {R"(staleness={"workers":2,"delays":"listed","bound":1,"of_workers":[1,2]})",
       "a delay of 2 steps is above the bound"},
      {"deepspeed.zero_optimization.stage=2", "not supported: late gradients with ZeRO 2 and 3"},
      {"world.pipeline=2", "not supported: late gradients in a model"},
      {R"(compression={"method":"sign","groups":4})", "not supported: late gradients that are compressed"},
      {R"(quirks=["ds_old_default_clipping"])", "not supported: late gradients with quirks"},
      {"recovery.memory_ladder=true", "not supported: late gradients with the memory ladder"},
      {"recovery.spares=1", "not supported: late gradients with spares"},
      {"recovery.grow=true", "not supported: late gradients in a run that admits ranks"},
      {R"(checks=["conservation"])", "conservation counts the samples of one step"},
  };
  for (const auto& [set, message] : rows) {
    const std::string said = problems({set});
    EXPECT_NE(said.find(message), std::string::npos) << set << ":\n" << said;
  }
}

}  // namespace
}  // namespace seeksim::harness
