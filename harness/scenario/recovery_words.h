// The words of the built-in recovery policies.
#pragma once

#include <utility>

#include "runtime/plan/plan.h"

namespace seeksim::harness {

inline constexpr std::pair<runtime::RecoveryPolicy, const char*> kRecoveryPolicies[] = {
    {runtime::RecoveryPolicy::stop, "stop"},
    {runtime::RecoveryPolicy::retry_step, "retry_step"},
    {runtime::RecoveryPolicy::rebuild_and_redo, "rebuild_and_redo"},
    {runtime::RecoveryPolicy::restart_from_checkpoint, "restart_from_checkpoint"}};

}  // namespace seeksim::harness
