#include "harness/loading/numerics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/loading/features/fast.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

constexpr const char* kNoValues = "a shapes-only run has no values";

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void refuse_checks(const Reader& top, const Scenario& scenario) {
  const std::vector<std::string> judged = checks_of_shapes();
  for (const CheckSpec& check : scenario.checks) {
    if (is_in(judged, check.name)) continue;
    top.problem(
        "checks", fmt::format("{}: {}", check.text(), kNoValues),
        fmt::format("Remove it, or use \"numerics\": \"exact\". What can be judged: {}.", fmt::join(judged, ", ")));
  }
}

void refuse_faults(const Reader& top, const Scenario& scenario) {
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    const faults::Rule& rule = scenario.faults[i];
    using faults::FaultKind;
    const bool silent = rule.kind == FaultKind::message_corrupt && !rule.checksum;
    const bool of_values = rule.kind == FaultKind::nan_inject || rule.kind == FaultKind::inf_inject ||
                           rule.kind == FaultKind::overflow || rule.kind == FaultKind::bit_flip ||
                           rule.kind == FaultKind::zero_tile || rule.kind == FaultKind::loss_spike ||
                           rule.kind == FaultKind::token_imbalance;
    if (!of_values && !silent) continue;
    top.findings().add(fmt::format("/faults/{}/{}", i, silent ? "checksum" : "kind"),
                       fmt::format("{} spoils values, and {}", name(rule.kind), kNoValues),
                       silent ? "Set it to true: then the receiver notices." : "Use \"numerics\": \"exact\".");
  }
}

// A planted bug that only values would tell of would go unseen.
void refuse_bug(const Reader& top, const Scenario& scenario) {
  const std::vector<std::string> judged = checks_of_shapes();
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    if (!scenario.train.bug.is(info.bug) || is_in(judged, info.caught)) continue;
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

std::vector<std::string> checks_of_shapes() {
  std::vector<std::string> names;
  for (const CheckInfo& row : check_catalogue()) {
    if (!row.of_values) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace seeksim::harness
