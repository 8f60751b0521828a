#include "harness/loading/features/fast.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/scenario/variants.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {
namespace {

using runtime::Bug;

constexpr const char* kNoExactBits = "there are no exact bits in a run of fast arithmetic";
constexpr const char* kInstead =
    "Remove it: within_bounds is judged in every such run; or use \"numerics\": \"exact\".";

bool is_fast_bug(const runtime::PlantedBug& bug) {
  return bug.is(Bug::fast_leaves_out_last_k) || bug.is(Bug::fast_accumulates_in_bf16) || bug.is(Bug::fast_ring_in_bf16);
}

void refuse_bug(const Reader& top, const Scenario& scenario) {
  const runtime::PlantedBug& bug = scenario.train.bug;
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    const std::string caught = info.caught;
    if (bug.is(info.bug) && (caught == "golden" || caught == "reference"))
      top.problem("bug", fmt::format("{} is caught by {}, and {}", info.name, info.caught, kNoExactBits),
                  "Use \"numerics\": \"exact\".");
  }
  if (bug.is(Bug::fast_ring_in_bf16) && data_size(scenario) < 2)
    top.problem("bug", "fast_ring_in_bf16 needs a ring of several ranks", "Use a world with several replicas.");
}

}  // namespace

void read_fast(const Reader& top, const std::string& numerics, Scenario& scenario) {
  const bool tf32 = top.flag("tf32", false);
  if (numerics != "fast") {
    const char* const next = "Use \"numerics\": \"fast\", or remove it.";
    if (tf32) top.problem("tf32", "only vendors' products take operands in TF32", next);
    if (is_fast_bug(scenario.train.bug))
      top.problem("bug", runtime::text(scenario.train.bug) + " is a mistake of fast arithmetic", next);
    for (const CheckSpec& check : scenario.checks)
      if (check.name == "within_bounds") top.problem("checks", "within_bounds judges fast arithmetic", next);
    return;
  }
  scenario.train.numerics = runtime::Numerics::fast;
  scenario.train.tf32 = tf32;
  if (tf32 && scenario.train.definition.precision.compute != runtime::ElementType::f32)
    top.problem("tf32", "it is for products of fp32 operands, and the model is in 16 bits", "Remove one of the two.");
  for (const CheckSpec& check : scenario.checks)
    if (check.name == "golden" || check.name == "reference")
      top.problem("checks", fmt::format("{}: {}", check.text(), kNoExactBits), kInstead);
  if (scenario.planned.any())
    top.problem("fault_plan", "its runs are judged by exact bits", "Use \"numerics\": \"exact\".");
  refuse_bug(top, scenario);
  scenario.notes.push_back(
      "a run of fast arithmetic: products and sums over ranks are bounded, not exact; all else is the contract's");
}

}  // namespace seeksim::harness
