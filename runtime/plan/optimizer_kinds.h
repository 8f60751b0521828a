// The optimizers that a plan can name: one row each.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "kernels/check.h"
#include "kernels/optimizer.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct OptimizerKind {
  std::string_view type;             // OptimizerPlan::type
  kernels::OptimizerRule rule;       // of a plan's: rule_of()
  bool decoupled;                    // false: decay enters the gradient
  std::array<const char*, 2> names;  // of the moments' buffers
  bool takes_matrices = false;       // Muon: the rule is for what is no matrix of a layer
};

inline constexpr std::array kOptimizerKinds = {
    OptimizerKind{"AdamW", kernels::OptimizerRule::adamw, true, {"adam m", "adam v"}},
    OptimizerKind{"Adam", kernels::OptimizerRule::adamw, false, {"adam m", "adam v"}},
    OptimizerKind{"Lion", kernels::OptimizerRule::lion, true, {"lion m", ""}},
    OptimizerKind{"Muon", kernels::OptimizerRule::adamw, true, {"muon m", "muon v"}, true},
    OptimizerKind{"SGD", kernels::OptimizerRule::sgd, false, {"sgd momentum", ""}},
};

inline const OptimizerKind& kind_of(const OptimizerPlan& plan) {
  const auto row = std::ranges::find(kOptimizerKinds, plan.type, &OptimizerKind::type);
  SEEKSIM_CHECK(row != kOptimizerKinds.end(), "no optimizer '%s'", plan.type.c_str());
  return *row;
}

inline kernels::OptimizerRule rule_of(const OptimizerPlan& plan) {
  const kernels::OptimizerRule rule = kind_of(plan).rule;
  if (rule != kernels::OptimizerRule::sgd || plan.momentum == 0) return rule;
  return plan.nesterov ? kernels::OptimizerRule::nesterov : kernels::OptimizerRule::momentum;
}
// Moments that it keeps of each element.
inline int moments_of(const OptimizerPlan& plan) { return kernels::moments_of(rule_of(plan)); }
inline bool keeps_mean(const OptimizerPlan& plan) { return plan.ema_decay > 0; }
// Numbers that it keeps of each element: moments, and the mean of weights.
inline int states_of(const OptimizerPlan& plan) { return moments_of(plan) + (keeps_mean(plan) ? 1 : 0); }
// Their names, in that order.
inline std::vector<const char*> state_names(const OptimizerPlan& plan) {
  const auto& moments = kind_of(plan).names;
  std::vector<const char*> names(moments.begin(), moments.begin() + moments_of(plan));
  if (keeps_mean(plan)) names.push_back("mean of weights");
  return names;
}

}  // namespace seeksim::runtime
