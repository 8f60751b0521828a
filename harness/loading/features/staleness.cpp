#include "harness/loading/features/staleness.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/features/refusals.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Delays;
using runtime::StalenessPlan;

const Words<Delays> kDelays = {
    {Delays::most, "most"}, {Delays::drawn, "drawn"}, {Delays::listed, "listed"}, {Delays::skewed, "skewed"}};

bool draws(const StalenessPlan& plan) { return plan.delays == Delays::drawn; }
bool lists(const StalenessPlan& plan) { return plan.delays == Delays::listed; }

void check_delays(const Reader& own, const StalenessPlan& plan) {
  const std::vector<int>& each = plan.of_workers;
  if (!lists(plan)) {
    if (!each.empty())
      own.problem("of_workers", "delays are not \"listed\"", "Set delays to \"listed\", or remove it.");
    return;
  }
  if (each.size() != std::size_t(plan.workers))
    return own.problem("of_workers", fmt::format("{} delays for {} workers", each.size(), plan.workers),
                       "Give each worker one.");
  if (const int most = *std::max_element(each.begin(), each.end()); most > plan.bound)
    own.problem("of_workers", fmt::format("a delay of {} steps is above the bound of {}", most, plan.bound),
                "Raise the bound, or lower the delay.");
}

// What late gradients cannot be together with.
void refuse_with_staleness(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Definition& d = train.definition;
  const auto checks_conservation = [](const CheckSpec& check) { return check.name == "conservation"; };
  refuse(
      top,
      {
          {train.layout.zero.stage >= 2, "/deepspeed/zero_optimization/stage",
           "not supported: late gradients with ZeRO 2 and 3, whose ranks hold no worker's whole gradient",
           "Use stage 0 or 1."},
          {!train.layout.parallel.alone(), "/world",
           "not supported: late gradients in a model or of samples that are cut among ranks",
           "Use 1 for pipeline, tensor, expert and context."},
          {train.layout.parallel.shard_group > 0, "/world/shard_group",
           "not supported: late gradients with shard groups", "Leave one of the two out."},
          {d.compression.on(), "/compression", "not supported: late gradients that are compressed",
           "Leave one of the two out."},
          {d.local_sgd.on(), "/local_sgd", "not supported: late gradients with local SGD, which sends none",
           "Leave one of the two out."},
          {d.data.packing.on(), "/data/packing",
           "not supported: late gradients of packed samples, since each step has another number of tokens",
           "Leave one of the two out."},
          {d.curriculum.on(), "/curriculum",
           "not supported: late gradients with a curriculum, since steps have other numbers of tokens",
           "Leave one of the two out."},
          {d.quirks.any(), "/quirks", "not supported: late gradients with quirks", "Leave one of the two out."},
          {train.numerics == runtime::Numerics::fast, "/numerics",
           "not supported: late gradients in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
          {train.recovery.memory_ladder, "/recovery/memory_ladder",
           "not supported: late gradients with the memory ladder, which changes the ZeRO stage",
           "Turn one of them off."},
          {train.recovery.spares > 0, "/recovery/spares", "not supported: late gradients with spares, which hold none",
           "Use restart_from_checkpoint, or no spares."},
          {train.recovery.grow, "/recovery/grow",
           "not supported: late gradients in a run that admits ranks, which hold none", "Turn one of them off."},
          {std::any_of(scenario.checks.begin(), scenario.checks.end(), checks_conservation), "/checks",
           "conservation counts the samples of one step, and here a step applies those of others",
           "Remove it: staleness_bounded is judged in every run with staleness."},
      });
}

}  // namespace

const Keys<StalenessPlan>& staleness_keys() {
  static const Keys<StalenessPlan> keys = {
      {"workers", at(&StalenessPlan::workers), integer(1, 1'000'000).required(), kBits,
       "Into how many workers the samples of a step are cut. A worker's gradients come late as one. The number of "
       "ranks "
       "is what frameworks have; here it decides no bit, and a rank does the work of one worker or several."},
      {"bound", at(&StalenessPlan::bound), integer(0, 1000), kBits,
       "Applied steps that a gradient may be late, at most; 0: none is, and the training is the ordinary one."},
      {"delays", in_words(kDelays, &StalenessPlan::delays), choice(words_of(kDelays)), kBits,
       "most: every gradient is `bound` steps late. drawn: each by 0 to `bound`, at random. listed: each worker has "
       "its "
       "own delay. skewed: each worker adds up bound + 1 gradients and sends them together, in another step than the "
       "next."},
      {"of_workers", at(&StalenessPlan::of_workers).when(lists), list(integer(0, 1000)).unset(), kBits,
       "listed: the delay of each worker, in steps."},
      {"seed", at(&StalenessPlan::seed).when(draws), integer(0, kExact), kBits,
       "drawn: of the delays; 0: training_seed."},
  };
  return keys;
}

void read_staleness(const Reader& top, Scenario& scenario) {
  StalenessPlan& plan = scenario.train.definition.staleness;
  plan = {};
  if (!top.has("staleness")) return;
  const Reader own = top.child("staleness");
  staleness_keys().read(own, plan);
  if (plan.workers < 1 || plan.bound < 0) {  // the schema said so
    plan = {};
    return;
  }
  check_workers_of(own, scenario.train.definition.global_batch, plan.workers);
  check_delays(own, plan);
  refuse_with_staleness(top, scenario);
}

}  // namespace seeksim::harness
