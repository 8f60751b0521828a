#include "faults/pace.h"

#include <algorithm>

namespace seeksim::faults {

double pace_after(const Rule& rule, TimeNs elapsed) {
  if (rule.mode == Mode::periodic) {
    return double(elapsed % rule.period_ns) < rule.duty * double(rule.period_ns) ? rule.factor : 1.0;
  }
  if (rule.mode == Mode::ramp) {
    if (rule.cool_ns > 0) elapsed %= rule.ramp_ns + rule.cool_ns;
    if (rule.cool_ns > 0 && elapsed > rule.ramp_ns)
      return 1.0 + (rule.factor - 1.0) * (1.0 - double(elapsed - rule.ramp_ns) / double(rule.cool_ns));
    return 1.0 + (rule.factor - 1.0) * std::min(1.0, double(elapsed) / double(rule.ramp_ns));
  }
  return rule.factor;
}

}  // namespace seeksim::faults
