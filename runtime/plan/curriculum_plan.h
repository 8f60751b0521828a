// CurriculumPlan: how many tokens of each sample a step learns from, by DeepSpeed's schedules of curriculum_learning.
#pragma once

#include <cstdint>
#include <vector>

namespace seeksim::runtime {

enum class CurriculumSchedule : std::uint8_t { none, fixed_linear, fixed_root, fixed_discrete };

struct CurriculumPlan {
  CurriculumSchedule schedule = CurriculumSchedule::none;
  std::int64_t min_difficulty = 0;  // tokens of a sample
  std::int64_t max_difficulty = 0;
  // fixed_linear and fixed_root
  std::int64_t total_step = 0;       // from the least to the most
  std::int64_t difficulty_step = 1;  // difficulties are multiples of it
  double root_degree = 1;
  // fixed_discrete: each difficulty up to and with a step, counted from 1; the last one has none.
  std::vector<std::int64_t> difficulties, max_steps;

  bool on() const { return schedule != CurriculumSchedule::none; }
  // Tokens of each sample that step `step`, counted from 0, learns from. At least 1 where the plan has been checked.
  std::int64_t difficulty(std::int64_t step) const;
  friend bool operator==(const CurriculumPlan&, const CurriculumPlan&) = default;
};

}  // namespace seeksim::runtime
