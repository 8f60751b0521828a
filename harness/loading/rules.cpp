#include "harness/loading/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "harness/input/problem.h"
#include "harness/loading/extensions.h"
#include "harness/scenario/recovery_words.h"
#include "harness/scenario/variants.h"
#include "runtime/layout/model_limits.h"

namespace seeksim::harness {
namespace {

using runtime::PipelineSchedule;
using runtime::RecoveryPlan;
using runtime::RecoveryPolicy;

void no_such_word(const Reader& object, const char* key, const std::string& given,
                  const std::vector<std::string>& known) {
  object.problem(key, fmt::format("{} is not one of: {}", in_quotes(given), fmt::join(known, ", ")),
                 did_you_mean(given, known));
}

void read_schedule(const Reader& world, const char* key, Scenario& scenario) {
  runtime::ParallelPlan& plan = scenario.train.layout.parallel;
  const std::string given = world.text(key);
  const PipelineSchedule built_in = runtime::pipeline_schedule(given);
  if (built_in < PipelineSchedule::own) {
    plan.schedule = built_in;
  } else if (const auto rule = own_schedule(given)) {
    plan.schedule = PipelineSchedule::own;
    plan.own_schedule = given;
    plan.schedule_rule = rule;
  } else {
    no_such_word(world, key, given, schedule_names());
  }
}

void read_placement(const Reader& world, const char* key, Scenario& scenario) {
  const std::string given = world.text(key);
  if (given == "even") return;
  runtime::ZeroPlan& zero = scenario.train.layout.zero;
  zero.own_placement = given;
  zero.rule = own_placement(given);
  if (zero.rule != nullptr) return;
  std::vector<std::string> known = own_placement_names();
  known.insert(known.begin(), "even");
  no_such_word(world, key, given, known);
}

void read_gather(const Reader& world, const char* key, Scenario& scenario) {
  const std::string given = world.text(key);
  if (given == "direct") return;
  runtime::ParallelPlan& plan = scenario.train.layout.parallel;
  plan.own_gather = given;
  plan.gather_rule = runtime::built_in_gather(given);
  if (plan.gather_rule == nullptr) plan.gather_rule = own_gather(given);
  if (plan.gather_rule != nullptr) return;
  std::vector<std::string> known = own_gather_names();
  known.insert(known.begin(), {"direct", "ring", "doubling"});
  no_such_word(world, key, given, known);
}

void read_policy(const Reader& recovery, const char* key, RecoveryPlan& plan) {
  const std::string given = recovery.text(key);
  for (const auto& [policy, word] : kRecoveryPolicies) {
    if (given != word) continue;
    plan.policy = policy;
    return;
  }
  plan.rule = own_recovery_policy(given);
  if (plan.rule != nullptr) {
    plan.own_policy = given;
    plan.policy = plan.rule->mechanism();
    return;
  }
  std::vector<std::string> known;
  for (const auto& [policy, word] : kRecoveryPolicies) known.emplace_back(word);
  for (const std::string& own : own_recovery_policy_names()) known.push_back(own);
  no_such_word(recovery, key, given, known);
}

// Of all worlds that the run may come to, since ranks may leave; a large one is tried at some sizes.
std::string problem_of_placement(const runtime::PlacementRule& rule, const runtime::Parameters& parameters, int ranks) {
  constexpr int kWorldsTried = 64;
  const runtime::Index all = parameters.trainable_size();
  for (int shards = ranks; shards >= 2; shards -= std::max(1, ranks / kWorldsTried)) {
    runtime::Index before = 0;
    for (int shard = 1; shard < shards; ++shard) {
      const runtime::Index begin = rule.begin(parameters, shard, shards);
      if (begin < before || begin > all)
        return fmt::format("shard {} of {} begins at element {}, outside [{}, {}]", shard, shards, begin, before, all);
      before = begin;
    }
  }
  return "";
}

void check_placement(const Reader& top, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  const runtime::ZeroPlan& zero = scenario.train.layout.zero;
  if (!runtime::problem(d.model).empty()) return;  // said elsewhere
  std::string why;
  try {
    why = problem_of_placement(*zero.rule, runtime::Parameters(d.model, d.optimizer), data_size(scenario));
  } catch (const std::exception& wrong) {  // of the rule itself
    why = wrong.what();
  }
  if (!why.empty())
    top.findings().add("/world/placement", fmt::format("{}: {}", zero.own_placement, why),
                       "Mend the rule that was added by this name.");
}

// Of all communicators that the run may come to. The rounds of n members are n * (n - 1) moves.
constexpr int kMembersOfRoundsMax = 1024;
std::string problem_of_gather(const runtime::GatherRule& rule, int ranks) {
  constexpr int kSizesTried = 64;
  try {
    for (int members = ranks; members >= 2; members -= std::max(1, ranks / kSizesTried)) {
      if (std::string why = runtime::problem_of_rounds(rule, members); !why.empty()) return why;
    }
  } catch (const std::exception& wrong) {  // of the rule itself
    return wrong.what();
  }
  return "";
}

void check_gather(const Reader& top, const Scenario& scenario) {
  const runtime::ParallelPlan& plan = scenario.train.layout.parallel;
  if (plan.gather_rule == nullptr) return;
  constexpr const char* kAt = "/world/all_gather";
  const int ranks = scenario.world.ranks();
  if (ranks > kMembersOfRoundsMax)
    return top.findings().add(kAt, fmt::format("not supported: gathers in rounds on {} ranks", ranks),
                              fmt::format("At most {}, or \"direct\".", kMembersOfRoundsMax));
  if (scenario.world.collective_times != nullptr)
    top.findings().add(kAt, "not supported: gathers in rounds where measured times stand for collectives",
                       "Use \"direct\", or leave out what world.platform says of collectives.");
  if (scenario.train.numerics == runtime::Numerics::fast)
    top.findings().add(kAt, "not supported: gathers in rounds in a run of fast arithmetic", "Use \"direct\".");
  if (const std::string why = problem_of_gather(*plan.gather_rule, ranks); !why.empty())
    top.findings().add(kAt, fmt::format("{}: {}", plan.own_gather, why), "Mend the rule that was added by this name.");
}

std::string word_of(RecoveryPolicy policy) {
  for (const auto& [value, word] : kRecoveryPolicies)
    if (value == policy) return word;
  return "";
}

}  // namespace

Binding<Scenario> schedule_word() {
  return {
      read_schedule, [](const Scenario& s) { return Json(std::string(s.train.layout.parallel.schedule_name())); }, {}};
}

Binding<Scenario> placement_word() {
  return {read_placement, [](const Scenario& s) { return Json(s.train.layout.zero.own_placement); },
          [](const Scenario& s) { return !s.train.layout.zero.own_placement.empty(); }};
}

Binding<Scenario> gather_word() {
  return {read_gather, [](const Scenario& s) { return Json(s.train.layout.parallel.own_gather); },
          [](const Scenario& s) { return !s.train.layout.parallel.own_gather.empty(); }};
}

Binding<RecoveryPlan> policy_word() {
  return {read_policy,
          [](const RecoveryPlan& plan) { return Json(plan.rule != nullptr ? plan.own_policy : word_of(plan.policy)); },
          {}};
}

void check_rules(const Reader& top, const Scenario& scenario) {
  check_gather(top, scenario);
  const runtime::Layout& layout = scenario.train.layout;
  if (layout.zero.rule == nullptr) return;
  constexpr const char* kAt = "/world/placement";
  if (layout.zero.stage == 0)
    top.findings().add(kAt, "ZeRO stage 0 has no shards that could end somewhere", "Use stage 1, 2 or 3.");
  if (!layout.parallel.alone())
    top.findings().add(kAt,
                       "not supported: a placement of one's own where a model is cut into stages, ways or experts, or "
                       "a sample's tokens among ranks",
                       "Use 1 for world.pipeline, world.tensor, world.expert and world.context.");
  if (scenario.train.definition.compression.on())
    top.findings().add(kAt, "not supported: a placement of one's own with compressed gradients",
                       "Leave one of the two out.");
  if (scenario.train.recovery.memory_ladder)
    top.findings().add(kAt, "not supported: the memory ladder with a placement of one's own", "Turn one of them off.");
  check_placement(top, scenario);
}

}  // namespace seeksim::harness
