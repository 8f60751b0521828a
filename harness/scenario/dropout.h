// "dropout" of a scenario's model: one rate for all places, or one for each.
#pragma once

#include "harness/input/reader.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

inline runtime::DropoutPlan read_dropout(const Reader& model) {
  const double everywhere = model.number("dropout", 0);
  const Reader rates = model.child("dropout");
  return {rates.number("embedding", everywhere), rates.number("attention", everywhere),
          rates.number("residual", everywhere)};
}

// What gives these values; also a part of a golden's key.
inline Json dropout_json(const runtime::DropoutPlan& plan) {
  if (plan.embedding == plan.attention && plan.attention == plan.residual) return plan.embedding;
  return {{"embedding", plan.embedding}, {"attention", plan.attention}, {"residual", plan.residual}};
}

}  // namespace seeksim::harness
