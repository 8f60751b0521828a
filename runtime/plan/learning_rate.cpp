// DeepSpeed steps its schedule after the optimizer: the first two steps run with iterations -1 and 0, both of which
// give the minimum. That is kept, because a user's configuration must mean here what it means there.
#include "runtime/plan/learning_rate.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

// Share of the way from the minimum to the maximum while warming up. DeepSpeed warms up over at least 2 steps.
double warmup_share(const SchedulerPlan& plan, std::int64_t iteration, std::int64_t warmup) {
  if (plan.warmup_type == "linear") return static_cast<double>(iteration) / static_cast<double>(warmup);
  SEEKSIM_CHECK(plan.warmup_type == "log", "warmup_type '%s': log or linear", plan.warmup_type.c_str());
  return 1.0 / host_log(static_cast<double>(warmup)) * host_log(static_cast<double>(iteration + 1));
}

double decay_share(const SchedulerPlan& plan, std::int64_t iteration, std::int64_t warmup) {
  const auto left = static_cast<double>(plan.total_num_steps - iteration);
  return std::max(0.0, left / static_cast<double>(std::max<std::int64_t>(1, plan.total_num_steps - warmup)));
}

double cosine_ratio(const SchedulerPlan& plan, std::int64_t iteration, std::int64_t warmup) {
  const std::int64_t length = std::max<std::int64_t>(1, plan.total_num_steps - warmup);
  const std::int64_t at = std::min(iteration - warmup + 1, length);
  const double half = (1.0 + host_cos_pi(static_cast<double>(at) / static_cast<double>(length))) / 2.0;
  return std::max(0.0, plan.cos_min_ratio + (1.0 - plan.cos_min_ratio) * half);
}

}  // namespace

double learning_rate(const SchedulerPlan& plan, double optimizer_lr, std::int64_t applied) {
  if (plan.type.empty()) return optimizer_lr;
  if (plan.type == "table") {
    SEEKSIM_CHECK(!plan.table.empty(), "a table of learning rates without a rate");
    return plan.table[static_cast<std::size_t>(std::min<std::int64_t>(applied, std::int64_t(plan.table.size()) - 1))];
  }
  const std::int64_t iteration = applied - 1;
  const std::int64_t warmup = std::max<std::int64_t>(2, plan.warmup_num_steps);
  const bool warming = iteration < warmup;
  if (plan.type == "WarmupCosineLR") {
    if (iteration < 0) return 0.0;
    if (!warming) return optimizer_lr * cosine_ratio(plan, iteration, warmup);
    const double share = warmup_share(plan, iteration, warmup);
    return optimizer_lr * (plan.warmup_min_ratio + share * (1.0 - plan.warmup_min_ratio));
  }
  SEEKSIM_CHECK(plan.type == "WarmupLR" || plan.type == "WarmupDecayLR", "no schedule '%s'", plan.type.c_str());
  if (iteration < 0) return plan.warmup_min_lr;
  double share = 1.0;
  if (warming) {
    share = warmup_share(plan, iteration, warmup);
  } else if (plan.type == "WarmupDecayLR") {
    share = decay_share(plan, iteration, warmup);
  }
  return plan.warmup_min_lr + (plan.warmup_max_lr - plan.warmup_min_lr) * share;
}

}  // namespace seeksim::runtime
