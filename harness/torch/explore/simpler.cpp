#include "harness/torch/explore/simpler.h"

#include <utility>

namespace seeksim::harness::torch {
namespace {

using faults::Rule;
using Rules = std::vector<Rule>;

// The rule without one of its triggers, from the one that says least to people; unchanged where it has none of it.
std::vector<Rule> plainer(const Rule& rule) {
  std::vector<Rule> ways;
  const auto add = [&](auto member) {
    if (!(rule.when.*member)) return;
    Rule way = rule;
    (way.when.*member).reset();
    ways.push_back(std::move(way));
  };
  add(&faults::Trigger::call);
  add(&faults::Trigger::op);
  add(&faults::Trigger::phase);
  return ways;
}

}  // namespace

Rules simpler(Rules rules, int tries, const std::function<bool(const Rules&)>& fails, int& took) {
  const auto try_out = [&](Rules other) {
    if (took >= tries) return false;
    ++took;
    if (!fails(other)) return false;
    rules = std::move(other);
    return true;
  };
  for (std::size_t i = 0; i < rules.size() && rules.size() > 1;) {
    Rules fewer = rules;
    fewer.erase(fewer.begin() + std::ptrdiff_t(i));
    if (!try_out(std::move(fewer))) ++i;
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (bool shorter = true; shorter && took < tries;) {
      shorter = false;
      for (const Rule& way : plainer(rules[i])) {
        Rules other = rules;
        other[i] = way;
        shorter |= try_out(std::move(other));
        if (shorter) break;
      }
    }
  }
  return rules;
}

}  // namespace seeksim::harness::torch
