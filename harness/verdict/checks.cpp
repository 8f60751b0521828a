#include "harness/verdict/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/loading/fast.h"
#include "harness/loading/quirks.h"
#include "harness/oracles/arguments.h"
#include "harness/oracles/checkpoints.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/oracles/numbers.h"
#include "harness/oracles/pipelines.h"
#include "harness/oracles/reruns.h"
#include "harness/oracles/whole_run.h"

namespace seeksim::harness {
namespace {

struct Row {
  CheckInfo info;
  std::function<std::string(const std::string& argument, int ranks)> wrong;
  std::function<Finding(const Evidence&, const std::string& argument)> look;
};

std::deque<Row>& rows() {
  static std::deque<Row> table = {
      {{"golden", "bitwise | gradients",
        "weights, optimizer state, data position, loss scale and every loss equal the one-rank run's, bit for bit; "
        "gradients: each step's, before clipping",
        true},
       want_bitwise,
       golden},
      {{"ranks_agree", "", "all ranks that finished hold the same state and reported the same losses"},
       want_none,
       ranks_agree},
      {{"faults_fired", "", "every fault rule fired (made in every run that has faults)"}, want_none, faults_fired},
      {{"culprit", "5 | link:1->0", "the first diagnosis names exactly these ranks or links, on every rank"},
       want_culprits,
       culprit},
      {{"finishes_within_virtual_s", "SECONDS", "virtual time of the whole run"}, want_number, finishes_within},
      {{"no_recovery", "", "nothing had to be recovered from"}, want_none, no_recovery},
      {{"recoveries", "N", "exactly so many recoveries"}, want_natural, recoveries},
      {{"evicted", "2,5 | none", "exactly these ranks died or were evicted"}, want_ranks, evicted},
      {{"joined", "2,5 | none",
        "exactly these ranks came in while the run was under way: spares, or ranks that returned"},
       want_ranks,
       joined},
      {{"steps_lost_at_most", "N", "committed steps that had to be trained again"}, want_natural, steps_lost},
      {{"restarts", "N", "the job was started again exactly so often"}, want_natural, restarts},
      {{"checkpoints_valid", "",
        "whatever has a manifest after the run is a whole checkpoint, and there is at least one"},
       want_none,
       checkpoints_valid},
      {{"straggler", "2,5 | none", "exactly these ranks were found too slow by their score (recovery.straggler)"},
       want_ranks,
       straggler},
      {{"diverged", "18 | none",
        "exactly in these steps loss or gradient norm were beyond the limit (recovery.divergence), each time"},
       want_steps,
       diverged},
      {{"loss_falls", "", "mean loss of the last quarter of the steps is below that of the first"},
       want_none,
       loss_falls},
      {{"no_races", "", "no two accesses to device memory are unordered (made wherever the race detector is on)"},
       want_none,
       no_races},
      {{"no_poison", "", "no memory that nobody wrote reached a result (made in every run that got so far)"},
       want_none,
       no_poison},
      {{"slowdown_at_least", "FACTOR", "virtual time, as a multiple of the same world's without faults", false, true},
       want_number,
       slowdown},
      {{"goodput_at_least", "SHARE",
        "of the virtual time that is steps which lasted: steps x undisturbed step time / whole time (ETTR)", false,
        false, false, false, true},
       want_number,
       goodput},
      {{"young_daly", "PERCENT",
        "what is lost to checkpoints and failures is Young's and Daly's C/tau + tau/2M + R/M, to so many percent of it",
        false, false, false, false, true},
       want_number,
       young_daly},
      {{"overlap_at_least", "SHARE",
        "of the virtual time in which a step's communication was in flight, hidden under compute"},
       want_number,
       overlap},
      {{"bubble_formula", "PERCENT",
        "the share of the stages' time in which they wait is (p-1)/(v*m+p-1), to so many percent of it"},
       want_number,
       bubble_formula},
      {{"live_activations", "", "stages hold the activations of min(p - s, m) micro-batches (1F1B) or of m (GPipe)"},
       want_none,
       live_activations},
      {{"collectives_match", "",
        "all members brought the same operation, tensor, step, type and count to each collective (made in every run)"},
       want_none,
       collectives_match},
      {{"replicas_equal", "",
        "after each step all ranks, and owners and their copies, hold the same bits (made in every run of several "
        "ranks)"},
       want_none,
       replicas_equal},
      {{"partition", "",
        "shards are disjoint, leave nothing out and lie on norm blocks; copies are their owners' (made where sharded)"},
       want_none,
       partition},
      {{"skipped", "3,5 | none", "exactly these steps were skipped"}, want_steps, skipped},
      {{"loss_scale", "65536,32768,...", "the scale of each step"}, want_numbers, loss_scale},
      {{"born", R"({"rank": 2, "layer": 1})",
        "the first value that is not finite was written there (\"provenance\": true): rank, step, micro_batch, layer, "
        "tensor, phase"},
       want_birth,
       born},
      {{"rerun_found", R"({"rank": 1, "step": 2} | none)",
        "micro-batches that were run twice had other bits there and nowhere else (recovery.rerun_and_compare): rank, "
        "step, micro_batch, parameter"},
       want_rerun,
       rerun_found},
      {{"rerun_genuine", "0,3 | none",
        "exactly in these steps values that are not finite came out twice, bit for bit (recovery.rerun_and_compare)"},
       want_steps,
       rerun_genuine},
      {{"stagnates_at_least", "SHARE", "of the updates are lost in rounding, where there are no fp32 masters"},
       want_number,
       stagnates},
      {{"tracks_fp32", "TOLERANCE", "each loss is so close to the same training's in fp32, relatively", false, false,
        false, true},
       want_number,
       tracks_fp32},
      {{"spikes", "5 | none", "exactly in these steps the loss leaps: a quarter above the mean of the five before"},
       want_steps,
       spikes},
      {{"layout", "stage 3, micro-batch 1",
        "what the run ended with, on every rank: micro-batch N, stage N, no checkpointing or checkpointing every "
        "layer, no offload or optimizer on cpu; any of them"},
       want_layout,
       layout},
      {{"memory_formula", "", "peaks of parameters, gradients, optimizer, copies and gathered space are ZeRO's"},
       want_none,
       memory_formula},
      {{"model_state_gb", "120,31.4,16.6,1.9",
        "10^9 bytes of parameters, gradients and optimizer state on the rank that needs most, to the digits as "
        "written; "
        "one number, or one for each of stages 0 to 3"},
       want_gigabytes,
       model_state},
      {{"traffic_formula", "", "bytes sent per rank, by operation, are ZeRO's"}, want_none, traffic_formula},
      {{"conservation", "",
        "in a run with tagged gradients, each sample enters each element of the reduced gradient once, with one weight",
        false, false, true},
       want_none,
       conservation},
      {{"one_history", "",
        "each step is committed once, by all members of one epoch or by none, with the same data position, Adam's "
        "step, learning rate and loss scale (made in every run of several ranks)"},
       want_none,
       one_history},
      {{"within_bounds", "",
        "each product and each sum over ranks of fast arithmetic is as close to the contract's, from the same "
        "operands, "
        "as fp32 sums in any order are (made in every run of \"numerics\": \"fast\")"},
       want_none,
       within_bounds},
      {{"quirk_differs", "STEP",
        "the quirks make a difference to the same run without them, in that step first if one is given (made in every "
        "run that has quirks)"},
       want_step,
       quirk_differs},
  };
  return table;
}

const Row* find(const std::string& name) {
  for (const Row& row : rows()) {
    if (name == row.info.name) return &row;
  }
  return nullptr;
}

// The argument of {name: argument} in canonical form.
std::string canonical(const Json& argument) {
  if (argument.is_string()) return argument.get<std::string>();
  if (!argument.is_array()) return argument.dump();
  if (argument.empty()) return "none";
  std::string text;
  for (const Json& one : argument) text += (text.empty() ? "" : ",") + one.dump();
  return text;
}

}  // namespace

const std::vector<CheckInfo>& check_catalogue() {
  static std::vector<CheckInfo> infos;
  for (std::size_t i = infos.size(); i < rows().size(); ++i) infos.push_back(rows()[i].info);
  return infos;
}

void add_to_catalogue(const CheckInfo& info, std::function<std::string(const std::string&, int)> wrong,
                      std::function<Finding(const Evidence&, const std::string&)> look) {
  rows().push_back({info, std::move(wrong), std::move(look)});
}

CheckProblem read_check(const Json& written, int ranks, CheckSpec& spec) {
  if (written.is_string()) {
    const std::string text = written.get<std::string>();
    const std::size_t colon = text.find(':');
    spec.name = text.substr(0, colon);
    spec.argument = colon == std::string::npos ? "" : text.substr(colon + 1);
  } else {
    spec.name = written.begin().key();
    spec.argument = canonical(written.begin().value());
  }
  const Row* row = find(spec.name);
  if (row == nullptr) {
    std::vector<std::string> known;
    for (const Row& one : rows()) known.emplace_back(one.info.name);
    return {fmt::format("there is no check {}", in_quotes(spec.name)), did_you_mean(spec.name, known)};
  }
  const std::string wrong = row->wrong(spec.argument, ranks);
  if (wrong.empty()) return {};
  return {fmt::format("{} {}", spec.name, wrong),
          row->info.argument[0] ? fmt::format("For example {}:{}.", spec.name, row->info.argument) : ""};
}

CheckResult judge(const CheckSpec& check, const Evidence& evidence) {
  const Row* row = find(check.name);
  if (row == nullptr) return {check.text(), false, "there is no such check"};
  Finding finding = row->look(evidence, check.argument);
  if (!finding.looked) finding.detail = "looked at nothing: " + finding.detail;
  return {check.text(), finding.ok && finding.looked, std::move(finding.detail), finding.looked};
}

namespace {
bool any_check(const Scenario& scenario, bool CheckInfo::*needs) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(), [&](const CheckSpec& check) {
    const Row* row = find(check.name);
    return row != nullptr && row->info.*needs;
  });
}
}  // namespace

bool needs_gradients(const Scenario& scenario) {
  return std::any_of(scenario.checks.begin(), scenario.checks.end(),
                     [](const CheckSpec& check) { return check.text() == "golden:gradients"; });
}

bool needs_golden(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_golden); }
bool needs_undisturbed(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_undisturbed); }
bool needs_fp32(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_fp32); }
bool needs_step(const Scenario& scenario) {
  return scenario.drawn_faults > 0 || any_check(scenario, &CheckInfo::needs_step);
}
bool needs_tagged(const Scenario& scenario) { return any_check(scenario, &CheckInfo::needs_tagged); }

}  // namespace seeksim::harness
