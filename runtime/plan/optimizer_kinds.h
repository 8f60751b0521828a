// The optimizers that a plan can name: one row each.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/check.h"
#include "kernels/optimizer.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct OptimizerKind {
  std::string_view type;             // OptimizerPlan::type
  kernels::OptimizerRule rule;       // says how many moments there are
  bool decoupled;                    // false: decay enters the gradient
  std::array<const char*, 2> names;  // of the moments' buffers
  bool takes_matrices = false;       // Muon: the rule is for what is no matrix of a layer
  int moments() const { return kernels::moments_of(rule); }
};

inline constexpr std::array kOptimizerKinds = {
    OptimizerKind{"AdamW", kernels::OptimizerRule::adamw, true, {"adam m", "adam v"}},
    OptimizerKind{"Adam", kernels::OptimizerRule::adamw, false, {"adam m", "adam v"}},
    OptimizerKind{"Lion", kernels::OptimizerRule::lion, true, {"lion m", ""}},
    OptimizerKind{"Muon", kernels::OptimizerRule::adamw, true, {"muon m", "muon v"}, true},
};

inline const OptimizerKind& kind_of(const OptimizerPlan& plan) {
  const auto row = std::ranges::find(kOptimizerKinds, plan.type, &OptimizerKind::type);
  SEEKSIM_CHECK(row != kOptimizerKinds.end(), "no optimizer '%s'", plan.type.c_str());
  return *row;
}

}  // namespace seeksim::runtime
