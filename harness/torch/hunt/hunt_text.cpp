// A hunt for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/torch/hunt/hunt.h"

namespace seeksim::harness::torch {
namespace {

int cases_of(const HuntState& state) {
  int cases = 0;
  for (const auto& [end, count] : state.ends) cases += count;
  return cases;
}

}  // namespace

std::string head_text(const HuntOf& of) {
  std::string text = "hunt  torch " + of.torch;
  for (const auto& [name, version] : of.frameworks) text += fmt::format(", {} {}", name, version);
  return text + fmt::format(", seed {}\n", of.seed);
}

std::string verdict_text(const Case& drawn, const TrialVerdict& verdict, const Style& style) {
  const bool red = verdict.end == TrialEnd::red;
  std::string text = fmt::format("  {}  {}: ", red ? style.bad("RED ") : style.good("ok  "), case_text(drawn));
  if (red) return text + fmt::format("{}: {}\n", verdict.check, verdict.text);
  if (verdict.end == TrialEnd::refused) return text + fmt::format("refused: {}\n", verdict.text);
  if (!verdict.found) return text + "stopped\n";
  text += fmt::format("{} of {} weights and {} of {} losses differ", verdict.found->weights_differ,
                      verdict.found->weights, verdict.found->losses_differ, verdict.found->losses);
  if (verdict.found->of_allowed) text += fmt::format(", {:.2g} of what is allowed", *verdict.found->of_allowed);
  text += fmt::format("; expected {}", torch::name(verdict.expected.grade));
  return text + (verdict.text.empty() ? "\n" : "; " + verdict.text + '\n');
}

std::string finding_text(const HuntFinding& found, const Style& style) {
  std::string text = fmt::format("  {}  case {}: {}: {}\n        {}\n", style.bad("RED "), found.number, found.check,
                                 found.text, case_text(found.drawn));
  if (!found.shown) text += "        it was not red again as it is told\n";
  return text + style.faint(fmt::format("        {}\n", found.script));
}

std::string counts_text(const HuntState& state, const Coverage& coverage) {
  std::vector<std::string> ends;
  for (const auto& [end, count] : state.ends) ends.push_back(fmt::format("{} {}", end, count));
  std::string text = fmt::format("  cases     {} in {:.0f} s ({} runs): {}\n", cases_of(state), state.wall_s,
                                 state.runs, fmt::join(ends, ", "));
  std::vector<std::string> known;
  for (const auto& [name, times] : state.known) known.push_back(fmt::format("{} {}", name, times));
  if (!known.empty()) text += fmt::format("  known     {}\n", fmt::join(known, ", "));
  const double part =
      coverage.possible() == 0 ? 0 : 100.0 * double(coverage.covered().size()) / double(coverage.possible());
  return text + fmt::format("  pairs     {} of {} pairs of features, {:.0f} %\n", coverage.covered().size(),
                            coverage.possible(), part);
}

std::string hunt_sentence(const HuntState& state, bool interrupted) {
  return fmt::format("{}{} finding{} in {} cases", interrupted ? "interrupted: " : "", state.found.size(),
                     state.found.size() == 1 ? "" : "s", cases_of(state));
}

}  // namespace seeksim::harness::torch
