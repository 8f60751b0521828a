#include "runtime/plan/curriculum_plan.h"

#include <algorithm>

#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

// Of other roots than the first two, what is so near below a whole number is taken for it: their last bits are those of
// no library.
constexpr double kNearly = 1e-9;

// Steps are numbered from 1. Growth goes on past the last step of the schedule where the most is no multiple of
// difficulty_step, until the multiple below is beyond it.
std::int64_t by_root(const CurriculumPlan& plan, std::int64_t number) {
  const double degree = plan.schedule == CurriculumSchedule::fixed_linear ? 1 : plan.root_degree;
  const double share = double(number) / double(plan.total_step);
  const double root = degree == 1 ? share : degree == 2 ? host_sqrt(share) : host_exp(host_log(share) / degree);
  const double range = double(plan.max_difficulty - plan.min_difficulty);
  const double wanted = root * range + double(plan.min_difficulty) + (degree == 1 || degree == 2 ? 0 : kNearly);
  const std::int64_t each = plan.difficulty_step, least = (plan.min_difficulty + each - 1) / each * each;
  const auto tokens = static_cast<std::int64_t>(wanted);  // both terms are positive: rounded down
  return std::min(std::max(tokens - tokens % each, least), plan.max_difficulty);
}

}  // namespace

std::int64_t CurriculumPlan::difficulty(std::int64_t step) const {
  const std::int64_t number = step + 1;
  if (schedule != CurriculumSchedule::fixed_discrete) return by_root(*this, number);
  const auto at = std::lower_bound(max_steps.begin(), max_steps.end(), number);
  return difficulties[std::size_t(at - max_steps.begin())];
}

}  // namespace seeksim::runtime
