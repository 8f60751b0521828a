#include "harness/loading/features/optimizer_state.h"

#include "harness/loading/features/refusals.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness {

using namespace shapes;
using runtime::OptimizerPlan;

const Keys<OptimizerPlan>& ema_keys() {
  static const Keys<OptimizerPlan> keys = {
      {"decay", at(&OptimizerPlan::ema_decay), number().above(0).below(1).required(), kBits,
       "What the mean keeps of itself in each step that is applied; it takes the rest from the weights after the "
       "step."},
      {"save", at(&OptimizerPlan::saves_mean), flag(), kNoBit,
       "true: --save-final writes the mean in place of the last weights."},
  };
  return keys;
}

namespace {

void read_ema(const Reader& top, Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  OptimizerPlan& plan = scenario.train.definition.optimizer;
  plan.ema_decay = 0;
  plan.saves_mean = false;
  if (!top.has("ema")) return;
  ema_keys().read(top.child("ema"), plan);
  if (!runtime::keeps_mean(plan)) return;  // the schema said so
  refuse(top, {
                  {d.local_sgd.on(), "/ema",
                   "not supported: a mean of weights with local SGD, whose workers have weights of their own",
                   "Leave one of the two out."},
                  {scenario.train.numerics == runtime::Numerics::fast, "/numerics",
                   "not supported: a mean of weights in a run of fast arithmetic, whose bounds say nothing of it",
                   "Use \"exact\" or \"shapes\"."},
              });
}

void read_stochastic_rounding(const Reader& top, Scenario& scenario) {
  runtime::Definition& d = scenario.train.definition;
  d.precision.stochastic_rounding = top.flag("stochastic_rounding", false);
  if (!d.precision.stochastic_rounding) return;
  const bool bf16 = d.precision.compute == runtime::ElementType::bf16;
  refuse(top, {
                  {!bf16 || d.precision.master_weights, "/stochastic_rounding",
                   "only bf16 weights without fp32 masters are rounded at random: masters lose nothing that would have "
                   "to be made good, and fp32 weights are not rounded",
                   "Set deepspeed.bf16.bf16_master_weights_and_grads, or leave it out."},
                  {scenario.train.numerics == runtime::Numerics::fast, "/numerics",
                   "not supported: stochastic rounding in a run of fast arithmetic: an update that is an ulp apart may "
                   "be rounded the other way, which no bound allows for",
                   "Use \"exact\" or \"shapes\"."},
              });
}

}  // namespace

void read_optimizer_state(const Reader& top, Scenario& scenario) {
  read_ema(top, scenario);
  read_stochastic_rounding(top, scenario);
}

}  // namespace seeksim::harness
