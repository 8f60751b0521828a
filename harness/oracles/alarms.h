// Alarms: which limits of the scenario's "alarms" a run passed, where and how far. To add one: a member of Alarms, a
// row in loading/features/alarms.cpp and one in alarms.cpp.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/oracles/evidence.h"
#include "harness/oracles/finding.h"

namespace seeksim::harness {

// One limit that was passed, at one place.
struct Passing {
  std::int64_t step = -1;  // -1: the whole run
  TimeNs at_ns = 0;
  double value = 0;
};
struct Alarm {
  const char* name;  // the key of "alarms"
  double limit;
  std::vector<Passing> passings;  // in order, one or more
};

// In the order of the keys. A run of shapes has no losses and norms: their limits are not passed.
std::vector<Alarm> raised_alarms(const Scenario& scenario, const RunRecord& run);

// "alarm loss_max: 11.2 in step 7, above 10; 3 steps in all"
std::string text_of(const Alarm& alarm);
// [{alarm, limit, step (null: the run), at_s, value (a word where it is no number), times}]
Json alarms_json(const std::vector<Alarm>& alarms);
// The alarms of one step, by name.
std::vector<std::string> alarms_in_step(const std::vector<Alarm>& alarms, std::int64_t step);

// The check: exactly these were raised, or none.
std::string want_alarms(const std::string& text, int ranks);
Finding alarms(const Evidence& evidence, const std::string& argument);

}  // namespace seeksim::harness
