#include "harness/loading/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

// Checks whose argument is more than a word. What it means, read_check() knows.
const Keys<Scenario>& object_forms() {
  static const Keys<Scenario> keys = {
      {"golden", by_hand, choice({"bitwise", "gradients"}), kNoBit,
       "bitwise: state, data position and every loss equal the golden's, bit for bit. gradients: so do the gradients "
       "of each step, before clipping."},
      {"culprit", by_hand, either(integer(), text()), kNoBit,
       "The first diagnosis names exactly this: 5, or \"link:1->0\"."},
      {"finishes_within_virtual_s", by_hand, number().least(0), kNoBit, "Virtual time of the whole run, in seconds."},
      {"recoveries", by_hand, integer(0), kNoBit, "The exact number of recoveries."},
      {"joined", by_hand, list(integer(0)), kNoBit,
       "Exactly these ranks came into the run while it was under way: spares, or ranks that returned."},
      {"evicted", by_hand, list(integer(0)), kNoBit, "Exactly these ranks were evicted or died."},
      {"quirk_differs", by_hand, integer(0), kNoBit,
       "The step in which a run with quirks first differs from the one without."},
      {"steps_lost_at_most", by_hand, integer(0), kNoBit, "Committed steps that had to be trained again."},
      {"restarts", by_hand, integer(0), kNoBit, "The job was started again exactly so often."},
      {"slowdown_at_least", by_hand, number().least(0), kNoBit,
       "Virtual time, as a multiple of the same run without faults."},
      {"skipped", by_hand, either(either(list(integer(0)), text()), integer()), kNoBit,
       "Exactly these steps were skipped."},
      {"loss_scale", by_hand, list(number()), kNoBit, "The loss scale of each step."},
      {"born", by_hand, object(), kNoBit,
       "Where the first value that is not finite was written: rank, step, micro_batch, layer, tensor, phase, any of "
       "them. Needs \"provenance\": true."},
      {"rerun_found", by_hand, either(object(), text()), kNoBit,
       "Where micro-batches that were run twice had other bits, each time: rank, step, micro_batch, parameter, any of "
       "them; or \"none\". Needs \"recovery\": {\"rerun_and_compare\": true}."},
      {"rerun_genuine", by_hand, either(either(list(integer(0)), text()), integer()), kNoBit,
       "Exactly in these steps values that are not finite came out twice, bit for bit."},
      {"layout", by_hand, text(), kNoBit,
       "With what the run ended, on every rank; any of: micro-batch N, stage N, no checkpointing or checkpointing "
       "every layer, no offload or optimizer on cpu."},
      {"stagnates_at_least", by_hand, number().least(0).most(1), kNoBit,
       "The share of updates that is lost in rounding, without fp32 masters."},
      {"tracks_fp32", by_hand, number().least(0), kNoBit,
       "How far each loss may be from the same training's in fp32, relatively."},
      {"straggler", by_hand, either(either(list(integer(0)), text()), integer()), kNoBit,
       "Exactly these ranks were found too slow by their score. Needs \"recovery\": {\"straggler\": {}}."},
      {"diverged", by_hand, either(either(list(integer(0)), text()), integer()), kNoBit,
       "Exactly in these steps loss or gradient norm were beyond the limit. Needs \"recovery\": {\"divergence\": {}}."},
      {"spikes", by_hand, either(either(list(integer(0)), text()), integer()), kNoBit,
       "Exactly in these steps the loss is a quarter above the mean of the five steps before."},
      {"model_state_gb", by_hand, either(number().least(0), list(number().least(0)).entries(4, 4)), kNoBit,
       "Parameters, gradients and optimizer state of the rank that needs most, in 10^9 bytes, rounded to the digits as "
       "written; four numbers are those of stages 0 to 3."},
      {"goodput_at_least", by_hand, number().least(0).most(1), kNoBit,
       "Of the virtual time that is steps which lasted: steps x undisturbed step time / whole time (ETTR)."},
      {"young_daly", by_hand, number().least(0), kNoBit,
       "What is lost to checkpoints and failures is Young's and Daly's C/tau + tau/2M + R/M, to so many percent of "
       "it."},
      {"overlap_at_least", by_hand, number().least(0).most(1), kNoBit,
       "Of the virtual time in which a step's communication was in flight: the share hidden under compute."},
  };
  return keys;
}

}  // namespace

Shape check_shape() { return object_forms().shape().keys(1, 1); }

const Keys<Expect>& expect_keys() {
  static const Keys<Expect> keys = {
      {"check_fails", by_hand, either(text().length(1), list(text()).entries(1)), kNoBit,
       "The check or checks that must fail. No other may."},
      {"stops", by_hand, text().length(1), kNoBit,
       "Training stops: \"deadlock\", \"out_of_time\", or words of the reason that the recovery gives."},
  };
  return keys;
}

void read_checks(const Reader& top, int ranks, Scenario& scenario) {
  const Json* list = top.find("checks");
  if (list == nullptr || !list->is_array()) return;
  for (std::size_t i = 0; i < list->size() && !top.findings().full(); ++i) {
    const Json& one = (*list)[i];
    if (!one.is_string() && !(one.is_object() && one.size() == 1)) continue;  // the schema said so
    CheckSpec spec;
    const CheckProblem wrong = read_check(one, ranks, spec);
    if (!wrong.what.empty()) top.findings().add(fmt::format("/checks/{}", i), wrong.what, wrong.next);
    if (wrong.what.empty()) scenario.checks.push_back(spec);
  }
  if (top.findings().full()) top.findings().add("/checks", "further checks were not read", "");
}

void read_expect(const Reader& top, Scenario& scenario) {
  const Json* expect = top.find("expect");
  if (expect == nullptr) return;
  if (expect->is_string()) {
    if (*expect != "pass") {
      top.problem("expect", fmt::format("{} is not known", in_quotes(expect->get<std::string>())),
                  "Use \"pass\", {\"check_fails\": NAME} or {\"stops\": REASON}.");
    }
    return;
  }
  const Reader inner = top.child("expect");
  if (inner.has("stops")) scenario.expect = {Expect::What::stops, inner.text("stops")};
  if (!inner.has("check_fails")) return;
  const Json* wanted = inner.find("check_fails");
  std::vector<std::string> all;
  if (wanted->is_string()) all.push_back(wanted->get<std::string>());
  if (wanted->is_array()) {
    for (const Json& name : *wanted) all.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  scenario.expect = {Expect::What::check_fails, fmt::format("{}", fmt::join(all, " "))};
  std::vector<std::string> named = {"finished",  "faults_fired",      "no_races",
                                    "no_poison", "collectives_match", "replicas_equal",
                                    "partition", "quirk_differs",     "one_history"};  // always judged
  if (top.text("numerics", "exact") == "fast") named.emplace_back("within_bounds");
  for (const CheckSpec& check : scenario.checks) named.insert(named.end(), {check.text(), check.name});
  for (const std::string& name : all) {
    if (std::find(named.begin(), named.end(), name) != named.end()) continue;
    inner.problem("check_fails", fmt::format("no check {} is made here", in_quotes(name)), did_you_mean(name, named));
  }
}

}  // namespace seeksim::harness
