#include "harness/loading/features/local_sgd.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/features/refusals.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::LocalSgdPlan;
using runtime::OuterPlan;
using runtime::OuterRule;

const Words<OuterRule> kRules = {
    {OuterRule::average, "average"}, {OuterRule::sgd, "sgd"}, {OuterRule::nesterov, "nesterov"}};

bool takes_a_rate(const OuterPlan& plan) { return plan.type != OuterRule::average; }

const Keys<OuterPlan>& outer_keys() {
  static const Keys<OuterPlan> keys = {
      {"type", in_words(kRules, &OuterPlan::type), choice(words_of(kRules)), kBits,
       "average: the mean of the workers' weights (local SGD, FedAvg). sgd and nesterov: a step of SGD against the "
       "mean of how far the workers went, with momentum (FedAvgM) or Nesterov's (DiLoCo)."},
      {"lr", at(&OuterPlan::lr).when(takes_a_rate), number().least(0), kBits, "Of sgd and nesterov."},
      {"momentum", at(&OuterPlan::momentum).when(takes_a_rate), number().least(0).below(1), kBits,
       "Of sgd and nesterov; 0: none."},
  };
  return keys;
}

void check_workers(const Reader& own, const Scenario& scenario) {
  const LocalSgdPlan& plan = scenario.train.definition.local_sgd;
  const int batch = scenario.train.definition.global_batch, ranks = data_size(scenario);
  if (check_workers_of(own, batch, plan.workers) && ranks > plan.workers)
    own.problem("workers",
                fmt::format("{} ranks for {} workers: a worker is one rank or less, which holds all of its weights and "
                            "moments",
                            ranks, plan.workers),
                fmt::format("Use {} workers, or fewer ranks.", ranks));
}

void check_evaluations(const Reader& top, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  if (!d.evaluation.on() || d.local_sgd.every < 1) return;
  if (d.evaluation.every_steps % d.local_sgd.every != 0)
    top.findings().add(
        "/evaluation/every_steps",
        "between two outer steps workers have weights of their own, and there is no one model to evaluate",
        fmt::format("Use a multiple of local_sgd.every, {}.", d.local_sgd.every));
  if (d.steps % d.local_sgd.every != 0)
    top.findings().add("/steps", "the evaluation after the last step needs an outer step there",
                       fmt::format("Use a multiple of local_sgd.every, {}.", d.local_sgd.every));
}

// What workers with weights of their own cannot be together with.
void refuse_with_local_sgd(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Definition& d = train.definition;
  const auto checks_conservation = [](const CheckSpec& check) { return check.name == "conservation"; };
  refuse(
      top,
      {
          {train.layout.zero.stage >= 1, "/deepspeed/zero_optimization/stage",
           "not supported: local SGD with ZeRO 1 to 3, for a worker is one rank or less and holds all of its state",
           "Use stage 0."},
          {!train.layout.parallel.alone(), "/world",
           "not supported: local SGD with a model or samples that are cut among ranks: a worker is one rank or less",
           "Use 1 for pipeline, tensor, expert and context."},
          {d.compression.on(), "/compression", "not supported: compressed gradients with local SGD, which sends none",
           "Leave one of the two out."},
          {runtime::is_16_bit(d.precision.compute) && !d.precision.master_weights, "/deepspeed",
           "not supported: local SGD without fp32 masters, of which an outer step is made",
           "Use master weights, or fp32."},
          {d.data.packing.on(), "/data/packing",
           "not supported: local SGD with packed samples, of which workers have other numbers of tokens",
           "Leave one of the two out."},
          {d.curriculum.on(), "/curriculum", "not supported: local SGD with a curriculum", "Leave one of the two out."},
          {d.quirks.any(), "/quirks", "not supported: local SGD with quirks", "Leave one of the two out."},
          {train.numerics == runtime::Numerics::fast, "/numerics",
           "not supported: local SGD in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
          {train.recovery.memory_ladder, "/recovery/memory_ladder",
           "not supported: local SGD with the memory ladder, which changes the ZeRO stage", "Turn one of them off."},
          {train.recovery.spares > 0, "/recovery/spares",
           "not supported: local SGD with spares, which hold no worker's state",
           "Use restart_from_checkpoint, or no spares."},
          {train.recovery.grow, "/recovery/grow",
           "not supported: local SGD in a run that admits ranks, which hold no worker's state",
           "Turn one of them off."},
          {std::any_of(scenario.checks.begin(), scenario.checks.end(), checks_conservation), "/checks",
           "conservation counts the samples in one gradient, and here each worker has its own",
           "Remove it: workers_meet is judged in every run with local SGD."},
      });
}

}  // namespace

const Keys<LocalSgdPlan>& local_sgd_keys() {
  static const Keys<LocalSgdPlan> keys = {
      {"workers", at(&LocalSgdPlan::workers), integer(1, 1'000'000).required(), kBits,
       "Into how many workers the samples of a step are cut. Each has weights and moments of its own. The number of "
       "ranks is what frameworks have; here it decides no bit, and a rank serves one worker or several."},
      {"every", at(&LocalSgdPlan::every), integer(1, 1'000'000'000), kBits,
       "Inner steps from one outer step to the next (H). Only then do workers' weights travel."},
      {"outer", inside(outer_keys(), &LocalSgdPlan::outer), outer_keys().shape(), kBits,
       "How one set of weights is made of the workers'."},
  };
  return keys;
}

void read_local_sgd(const Reader& top, Scenario& scenario) {
  LocalSgdPlan& plan = scenario.train.definition.local_sgd;
  plan = {};
  if (!top.has("local_sgd")) return;
  const Reader own = top.child("local_sgd");
  local_sgd_keys().read(own, plan);
  if (plan.workers < 1 || plan.every < 1) {  // the schema said so
    plan = {};
    return;
  }
  check_workers(own, scenario);
  check_evaluations(top, scenario);
  refuse_with_local_sgd(top, scenario);
}

}  // namespace seeksim::harness
