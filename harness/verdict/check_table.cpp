// The built-in checks, one row each. A row without `.wrong` takes no argument, one without `.form` no object form.
#include <deque>

#include "harness/input/shape.h"
#include "harness/oracles/alarms.h"
#include "harness/oracles/arguments.h"
#include "harness/oracles/checkpoints.h"
#include "harness/oracles/compression.h"
#include "harness/oracles/fast_bounds.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/oracles/numbers.h"
#include "harness/oracles/quirk_difference.h"
#include "harness/oracles/reference_steps.h"
#include "harness/oracles/reruns.h"
#include "harness/oracles/whole_run.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

Shape share() { return number().least(0).most(1); }
// Ranks or steps: [3, 5], 3 or "none".
Shape integers_or_word() { return either(either(list(integer(0)), text()), integer()); }

}  // namespace

std::deque<CheckInfo> built_in_checks() {
  return {
      // Judged where the scenario asks for them.
      {.name = "golden",
       .argument = "bitwise | gradients",
       .form = choice({"bitwise", "gradients"}),
       .needs = Needs::golden,
       .wrong = want_bitwise,
       .judge = golden,
       .of_values = true,
       .description = "weights, optimizer state, data position, loss scale and every loss equal the golden's, bit for "
                      "bit; gradients: each step's, before clipping"},
      {.name = "ranks_agree",
       .judge = ranks_agree,
       .of_values = true,
       .description = "all ranks that finished hold the same state and reported the same losses"},
      {.name = "culprit",
       .argument = "5 | link:1->0",
       .form = either(integer(), text()),
       .wrong = want_culprits,
       .judge = culprit,
       .description = "the first diagnosis names exactly these ranks or links, on every rank"},
      {.name = "finishes_within_virtual_s",
       .argument = "SECONDS",
       .form = number().least(0),
       .wrong = want_number,
       .judge = finishes_within,
       .description = "virtual time of the whole run"},
      {.name = "no_recovery", .judge = no_recovery, .description = "no recovery was needed"},
      {.name = "recoveries",
       .argument = "N",
       .form = integer(0),
       .wrong = want_natural,
       .judge = recoveries,
       .description = "exactly this many recoveries"},
      {.name = "evicted",
       .argument = "2,5 | none",
       .form = list(integer(0)),
       .wrong = want_ranks,
       .judge = evicted,
       .description = "exactly these ranks died or were evicted"},
      {.name = "joined",
       .argument = "2,5 | none",
       .form = list(integer(0)),
       .wrong = want_ranks,
       .judge = joined,
       .description = "exactly these ranks joined during the run: spares, or ranks that returned"},
      {.name = "steps_lost_at_most",
       .argument = "N",
       .form = integer(0),
       .wrong = want_natural,
       .judge = steps_lost,
       .description = "committed steps that had to be trained again"},
      {.name = "restarts",
       .argument = "N",
       .form = integer(0),
       .wrong = want_natural,
       .judge = restarts,
       .description = "the job was restarted exactly this many times"},
      {.name = "checkpoints_valid",
       .judge = checkpoints_valid,
       .of_values = true,
       .description = "whatever has a manifest after the run is a whole checkpoint, and there is at least one"},
      {.name = "straggler",
       .argument = "2,5 | none",
       .form = integers_or_word(),
       .wrong = want_ranks,
       .judge = straggler,
       .description = "exactly these ranks were found too slow by their score (recovery.straggler)"},
      {.name = "diverged",
       .argument = "18 | none",
       .form = integers_or_word(),
       .wrong = want_steps,
       .judge = diverged,
       .of_values = true,
       .description =
           "exactly in these steps loss or gradient norm were beyond the limit (recovery.divergence), each time"},
      {.name = "loss_falls",
       .judge = loss_falls,
       .of_values = true,
       .description =
           "mean loss of the last quarter of the steps is below that of the first, and something was trained"},
      {.name = "alarms",
       .argument = "NAME,NAME | none",
       .form = either(list(text()), text()),
       .wrong = want_alarms,
       .judge = alarms,
       .description = "exactly these limits of the scenario's \"alarms\" were passed"},
      {.name = "slowdown_at_least",
       .argument = "FACTOR",
       .form = number().least(0),
       .needs = Needs::undisturbed,
       .wrong = want_number,
       .judge = slowdown,
       .description = "virtual time, as a multiple of the same world's without faults"},
      {.name = "goodput_at_least",
       .argument = "SHARE",
       .form = share(),
       .needs = Needs::step,
       .wrong = want_number,
       .judge = goodput,
       .description =
           "of the virtual time that is steps which lasted: steps x undisturbed step time / whole time (ETTR)"},
      {.name = "young_daly",
       .argument = "PERCENT",
       .form = number().least(0),
       .needs = Needs::step,
       .wrong = want_number,
       .judge = young_daly,
       .description = "what is lost to checkpoints and failures is Young's and Daly's C/tau + tau/2M + R/M, to so many "
                      "percent of it"},
      {.name = "overlap_at_least",
       .argument = "SHARE",
       .form = share(),
       .wrong = want_number,
       .judge = overlap,
       .description = "of the virtual time in which a step's communication was in flight, hidden under compute"},
      {.name = "bubble_formula",
       .argument = "PERCENT",
       .wrong = want_number,
       .judge = bubble_formula,
       .description = "the share of the stages' time in which they wait is (p-1)/(v*m+p-1), to so many percent of it"},
      {.name = "live_activations",
       .judge = live_activations,
       .description = "stages hold the activations of min(p - s, m) micro-batches (1F1B) or of m (GPipe)"},
      {.name = "skipped",
       .argument = "3,5 | none",
       .form = integers_or_word(),
       .wrong = want_steps,
       .judge = skipped,
       .of_values = true,
       .description = "exactly these steps were skipped"},
      {.name = "loss_scale",
       .argument = "65536,32768,...",
       .form = list(number()),
       .wrong = want_numbers,
       .judge = loss_scale,
       .of_values = true,
       .description = "the scale of each step"},
      {.name = "born",
       .argument = R"({"rank": 2, "layer": 1})",
       .form = object(),
       .wrong = want_birth,
       .judge = born,
       .of_values = true,
       .description = "the first value that is not finite was written there (\"provenance\": true): rank, step, "
                      "micro_batch, layer, tensor, phase"},
      {.name = "rerun_found",
       .argument = R"({"rank": 1, "step": 2} | none)",
       .form = either(object(), text()),
       .wrong = want_rerun,
       .judge = rerun_found,
       .of_values = true,
       .description = "micro-batches that were run twice had other bits there and nowhere else "
                      "(recovery.rerun_and_compare): rank, step, micro_batch, parameter"},
      {.name = "rerun_genuine",
       .argument = "0,3 | none",
       .form = integers_or_word(),
       .wrong = want_steps,
       .judge = rerun_genuine,
       .of_values = true,
       .description = "exactly in these steps values that are not finite came out twice, bit for bit "
                      "(recovery.rerun_and_compare)"},
      {.name = "stagnates_at_least",
       .argument = "SHARE",
       .form = share(),
       .wrong = want_number,
       .judge = stagnates,
       .of_values = true,
       .description = "of the updates are lost in rounding, where there are no fp32 masters"},
      {.name = "tracks_fp32",
       .argument = "TOLERANCE",
       .form = number().least(0),
       .needs = Needs::fp32,
       .wrong = want_number,
       .judge = tracks_fp32,
       .of_values = true,
       .description = "each loss is so close to the same training's in fp32, relatively"},
      {.name = "spikes",
       .argument = "5 | none",
       .form = integers_or_word(),
       .wrong = want_steps,
       .judge = spikes,
       .of_values = true,
       .description = "exactly in these steps the loss leaps: a quarter above the mean of the five before"},
      {.name = "layout",
       .argument = "stage 3, micro-batch 1",
       .form = text(),
       .wrong = want_layout,
       .judge = layout,
       .description = "what the run ended with, on every rank: micro-batch N, stage N, no checkpointing or "
                      "checkpointing every layer, no offload or optimizer on cpu; any of them"},
      {.name = "model_state_gb",
       .argument = "120,31.4,16.6,1.9",
       .form = either(number().least(0), list(number().least(0)).entries(4, 4)),
       .wrong = want_gigabytes,
       .judge = model_state,
       .description = "10^9 bytes of parameters, gradients and optimizer state on the rank that needs most, to the "
                      "digits as written; one number, or one for each of stages 0 to 3"},
      {.name = "conservation",
       .needs = Needs::tagged,
       .judge = conservation,
       .of_values = true,
       .description = "in a run with tagged gradients, each sample enters each element of the reduced gradient once, "
                      "with one weight"},

      // Judged unasked as well, in this order, where there is something to judge.
      {.name = "reference",
       .argument = "ends",
       .needs = Needs::reference,
       .wrong = want_ends,
       .judge = reference_steps,
       .unasked = golden_was_judged,
       .of_values = true,
       .description =
           "each step of the training on one rank is what a second implementation of it has, within the "
           "bounds of the arithmetic, and the run has its bits; ends: the first two steps and the last alone (made "
           "wherever a golden is, of its ends)"},
      {.name = "no_races",
       .judge = no_races,
       .unasked = [](const Evidence& e) { return e.run.races.watched; },
       .description = "no two accesses to device memory are unordered (made wherever the race detector is on)"},
      {.name = "quirk_differs",
       .argument = "STEP",
       .form = integer(0),
       .wrong = want_step,
       .judge = quirk_differs,
       .unasked = [](const Evidence& e) { return e.scenario.train.definition.quirks.any(); },
       .of_values = true,
       .description = "the quirks make a difference to the same run without them, in that step first if one is given "
                      "(made in every run that has quirks)"},
      {.name = "within_bounds",
       .judge = within_bounds,
       .unasked = [](const Evidence& e) { return is_fast(e.scenario); },
       .of_values = true,
       .description = "each product and each sum over ranks of fast arithmetic is as close to the contract's, from the "
                      "same operands, as fp32 sums in any order are (made in every run of \"numerics\": \"fast\")"},
      {.name = "no_poison",
       .judge = no_poison,
       .unasked = has_poison_to_judge,
       .of_values = true,
       .description =
           "no operation reads memory that nothing has written, and none reached a result (made in every run)"},
      {.name = "collectives_match",
       .judge = collectives_match,
       .unasked = collectives_to_match,
       .description = "all members called each collective with the same operation, tensor, step, type and count (made "
                      "in every run)"},
      {.name = "replicas_equal",
       .judge = replicas_equal,
       .unasked = replicas_to_compare,
       .of_values = true,
       .description = "after each step all ranks, and owners and their copies, hold the same bits (made in every run "
                      "of several ranks)"},
      {.name = "evaluations",
       .judge = evaluations,
       .unasked = evaluations_to_judge,
       .description = "each evaluation was made when it was due, and all ranks have the same held-out loss (made in "
                      "every run with \"evaluation\")"},
      {.name = "samples_once",
       .judge = samples_once,
       .unasked = samples_to_judge,
       .of_values = true,
       .description = "each sample of the data set was used once in each epoch, in the step in which it was due (made "
                      "in every run with data.sampler)"},
      {.name = "compression_conserves",
       .judge = compression_conserves,
       .unasked = [](const Evidence& e) { return e.run.has_values && e.run.numbers.compressed.elements > 0; },
       .of_values = true,
       .description = "of each element of each compressed gradient, what was sent and what is kept add up, exactly, to "
                      "what was owed (made in every run with compression)"},
      {.name = "partition",
       .judge = partition,
       .unasked = shards_to_judge,
       .description = "shards are disjoint, leave nothing out and lie on norm blocks; copies are their owners' (made "
                      "where sharded)"},
      {.name = "one_history",
       .judge = one_history,
       .unasked = commits_to_compare,
       .description = "each step is committed once, by all members of one epoch or by none, with the same data "
                      "position, Adam's step, learning rate and loss scale (made in every run of several ranks)"},
      {.name = "memory_formula",
       .judge = memory_formula,
       .unasked = formulas_apply,
       .description = "peaks of parameters, gradients, optimizer, copies and gathered space are ZeRO's (made in every "
                      "undisturbed run of whole models)"},
      {.name = "traffic_formula",
       .judge = traffic_formula,
       // A vendor's library sums on ways of its own.
       .unasked =
           [](const Evidence& e) {
             return formulas_apply(e) && e.scenario.world.ranks() > 1 && !is_fast(e.scenario) &&
                    e.scenario.train.layout.parallel.context == 1;
           },
       .description = "bytes sent per rank, by operation, are ZeRO's, in no more collectives than buckets and modules "
                      "need (likewise)"},
      {.name = "saved_at_end",
       .judge = saved_at_end,
       .unasked = last_checkpoint_to_judge,
       .of_values = true,
       .description = "a run that finishes has the checkpoint after its last step (made in every run with \"at_end\")"},
      {.name = "faults_fired",
       .judge = faults_fired,
       .unasked = [](const Evidence& e) { return !e.scenario.faults.empty() || !e.scenario.own_faults.empty(); },
       .description = "every fault rule fired (made in every run that has faults)"},
  };
}

}  // namespace seeksim::harness
