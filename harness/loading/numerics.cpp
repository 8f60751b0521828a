#include "harness/loading/numerics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/loading/extensions.h"
#include "harness/loading/fast.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

constexpr const char* kNoValues = "a shapes-only run has no values";

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void refuse_checks(const Reader& top, const Scenario& scenario) {
  for (const CheckSpec& check : scenario.checks) {
    const OwnCheck* const own = own_check(check.name);
    if (own != nullptr ? own->of_shapes : !is_in(checks_of_values(), check.name)) continue;
    top.problem("checks", fmt::format("{}: {}", check.text(), kNoValues),
                fmt::format("Remove it, or use \"numerics\": \"exact\". What can be judged: {}.",
                            fmt::join(checks_of_shapes(), ", ")));
  }
}

void refuse_faults(const Reader& top, const Scenario& scenario) {
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    const faults::Rule& rule = scenario.faults[i];
    using faults::FaultKind;
    const bool silent = rule.kind == FaultKind::message_corrupt && !rule.checksum;
    const bool of_values = rule.kind == FaultKind::nan_inject || rule.kind == FaultKind::inf_inject ||
                           rule.kind == FaultKind::overflow || rule.kind == FaultKind::bit_flip ||
                           rule.kind == FaultKind::zero_tile || rule.kind == FaultKind::loss_spike;
    if (!of_values && !silent) continue;
    top.findings().add(fmt::format("/faults/{}/{}", i, silent ? "checksum" : "kind"),
                       fmt::format("{} spoils values, and {}", name(rule.kind), kNoValues),
                       silent ? "Set it to true: then the receiver notices." : "Use \"numerics\": \"exact\".");
  }
}

// A planted bug that only values would tell of would go unseen.
void refuse_bug(const Reader& top, const Scenario& scenario) {
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    if (!scenario.train.bug.is(info.bug) || is_in(checks_of_shapes(), info.caught)) continue;
    top.problem("bug", fmt::format("{} is caught by {}, and {}", info.name, info.caught, kNoValues),
                "Use \"numerics\": \"exact\".");
  }
}

void refuse_keys(const Reader& top, const Scenario& scenario) {
  const auto refuse = [&](bool asked, const char* key, const char* next) {
    if (asked) top.problem(key, kNoValues, next);
  };
  refuse(scenario.train.definition.quirks.any(), "quirks", "Remove them: what they do is seen in values only.");
  refuse(scenario.train.recovery.divergence.on, "recovery", "Remove \"divergence\".");
  refuse(scenario.train.provenance.on, "provenance", "Set it to false.");
  refuse(scenario.train.provenance.log_step >= 0, "range_log", "Remove it.");
  refuse(scenario.golden.any(), "golden", "Remove it.");
  refuse(!top.child("model").text("init").empty(), "model", "Remove \"init\".");
}

}  // namespace

void read_numerics(const Reader& top, Scenario& scenario) {
  const std::string word = top.text("numerics", "exact");
  read_fast(top, word, scenario);
  if (word != "shapes") return;
  scenario.train.numerics = runtime::Numerics::shapes;
  refuse_checks(top, scenario);
  refuse_faults(top, scenario);
  refuse_bug(top, scenario);
  refuse_keys(top, scenario);
  scenario.notes.push_back("shapes only: memory, messages and time are counted, nothing is computed");
  if (scenario.train.definition.precision.compute == runtime::ElementType::f16)
    scenario.notes.push_back(
        "nothing overflows in a shapes-only run: every step is applied, and the loss scale only grows");
}

const std::vector<std::string>& checks_of_values() {
  static const std::vector<std::string> names = {"golden",
                                                 "ranks_agree",
                                                 "loss_falls",
                                                 "no_poison",
                                                 "replicas_equal",
                                                 "skipped",
                                                 "loss_scale",
                                                 "born",
                                                 "stagnates_at_least",
                                                 "tracks_fp32",
                                                 "spikes",
                                                 "conservation",
                                                 "quirk_differs",
                                                 "rerun_found",
                                                 "rerun_genuine",
                                                 "checkpoints_valid",
                                                 "diverged",
                                                 "within_bounds",
                                                 "reference",
                                                 "compression_conserves"};
  return names;
}

const std::vector<std::string>& checks_of_shapes() {
  static const std::vector<std::string> names = {"faults_fired",       "culprit",        "finishes_within_virtual_s",
                                                 "no_recovery",        "recoveries",     "evicted",
                                                 "steps_lost_at_most", "no_races",       "slowdown_at_least",
                                                 "overlap_at_least",   "bubble_formula", "live_activations",
                                                 "collectives_match",  "partition",      "layout",
                                                 "memory_formula",     "model_state_gb", "traffic_formula",
                                                 "restarts",           "one_history",    "goodput_at_least",
                                                 "young_daly",         "straggler",      "joined"};
  return names;
}

}  // namespace seeksim::harness
