// What a verdict of the reference comes to, in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/oracles/evidence.h"
#include "harness/oracles/reference_steps.h"
#include "harness/oracles/whole_run.h"

namespace seeksim::harness {

std::string ReferenceDifference::text() const {
  const std::string where = parameter.empty() ? ""
                            : element < 0     ? " of " + parameter
                                              : fmt::format(" of {}[{}]", parameter, element);
  return fmt::format("step {}: {}{} is {:.9g}, the reference has {:.9g} +- {:.2g}{}", step, quantity, where, found,
                     expected, bound, more > 0 ? fmt::format(", and {} more of it", more) : "");
}

std::string contradiction(const ReferenceVerdict& verdict) {
  if (verdict.differences.empty()) return "";
  const auto first = std::min_element(verdict.differences.begin(), verdict.differences.end(),
                                      [](const auto& a, const auto& b) { return a.step < b.step; });
  return fmt::format("{} ({} quantities differ in all)", first->text(), verdict.differences.size());
}

bool golden_was_judged(const Evidence& e) {
  return e.golden != nullptr && e.golden->judged != nullptr && !e.golden->judged->steps.empty();
}

namespace {

std::string settled(const ReferenceVerdict& verdict) {
  if (verdict.unsettled == 0) return "";
  return fmt::format("; losses and gradients of {} were not judged, since rounding may have chosen an expert there",
                     verdict.unsettled);
}

// Of a golden that was made for this run. That the run equals it is golden:bitwise's to say.
Finding of_golden(const ReferenceVerdict& verdict) {
  if (const std::string wrong = contradiction(verdict); !wrong.empty()) return bad("the golden is wrong: " + wrong);
  const auto counted = [](const std::vector<std::int64_t>& steps) {
    return fmt::format("step{} {}", steps.size() == 1 ? "" : "s", fmt::join(steps, ", "));
  };
  const std::string passes = verdict.passes.empty() ? "losses and gradients of none: it is too short to pay for them"
                                                    : "losses and gradients of " + counted(verdict.passes);
  return good(
      fmt::format("the golden's {} as the reference has them, {}: {} values, {:.2f} % of their bounds are tight{}",
                  counted(verdict.steps), passes, verdict.values, 100 * verdict.share(), settled(verdict)));
}

}  // namespace

Finding reference_steps(const Evidence& e, const std::string&) {
  if (e.reference == nullptr && golden_was_judged(e)) return of_golden(*e.golden->judged);
  if (e.reference == nullptr) return blind("the training was not made again on one rank");
  const ReferenceVerdict& verdict = *e.reference;
  if (!verdict.unknown.empty()) return blind(verdict.unknown);
  if (verdict.steps.empty()) return blind("no step of the run on one rank could be judged");
  if (const std::string wrong = contradiction(verdict); !wrong.empty()) return bad(wrong);
  if (verdict.golden) {
    const Evidence own{e.scenario, e.run, &*verdict.golden, std::nullopt, {}};
    const Finding same = golden(own, "");
    if (!same.ok) return {false, same.looked, "the run on one rank is as the reference has it, but " + same.detail};
  }
  if (std::size_t(verdict.unsettled) == verdict.steps.size())
    return blind("in each step two logits of a router are so near that rounding may have chosen the expert");
  if (verdict.share() < 0.99)
    return blind(fmt::format("only {:.1f} % of {} bounds say something", 100 * verdict.share(), verdict.values));
  return good(fmt::format("{} steps as the reference has them: {} values, {:.2f} % of their bounds are tight{}",
                          verdict.steps.size(), verdict.values, 100 * verdict.share(), settled(verdict)));
}

void judge_held_out(const RunRecord& run, const reference::Training& training, const reference::FreeRun& clean,
                    const std::vector<reference::FreeRun>& noisy, ReferenceVerdict& verdict) {
  const std::vector<runtime::EvaluationRecord>& told = run.training.evaluations;
  if (training.held_out.samples == 0 || told.empty() || told.back().steps != training.steps) return;
  double apart = 0;
  for (const reference::FreeRun& other : noisy) {
    if (clean.held_out_unsettled || other.routing.back() != clean.routing.back()) return;
    apart = std::max(apart, std::abs(other.held_out - clean.held_out));
  }
  const double found = double(told.back().loss), bound = ReferenceVerdict::kRoom * apart + clean.held_out_bound;
  ++verdict.values;
  verdict.tight += bound <= ReferenceVerdict::kTight * std::abs(clean.held_out) ? 1 : 0;
  if (!(std::abs(found - clean.held_out) <= bound))
    verdict.differences.push_back(
        {training.steps - 1, "held-out loss of the whole run", "", -1, found, clean.held_out, bound, 0});
}

}  // namespace seeksim::harness
