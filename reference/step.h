// What a step does with its gradient: rate, loss scale, norm, clipping, AdamW, Lion and SGD. Pure functions of plain
// values.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/number.h"
#include "reference/training.h"

namespace seeksim::reference {

// The rate of the optimizer's step number `applied`, counted from 0 (DeepSpeed's schedules, one step late as they are).
// step: of the training, since changes begin there.
double learning_rate(const Training& t, std::int64_t applied, std::int64_t step);
// The limit of a step's norm; 0: there is none.
double clipping(const Training& t, std::int64_t step);

// The loss scale's machine.
struct ScalerState {
  double scale = 1;
  std::int64_t updates = 0, last_overflow = -1, tolerates = 1, good_steps = 0;
};
ScalerState first_state(const Scaler& scaler);
ScalerState next_state(const Scaler& scaler, ScalerState state, bool skipped);

// The norm of all gradients together, as fp32 adds up its squares.
Bounded norm_of(const std::vector<const std::vector<float>*>& gradients);
// min(1, limit / (norm + 1e-6)); 1 where limit is 0.
Bounded clip_factor(double limit, double norm);

// One element before or after an update.
struct Element {
  double weight = 0, first = 0, second = 0;
};
struct BoundedElement {
  Bounded weight, first, second;
};
// What both moments are multiplied by in step number `t` (from 1), since they began at 0; and that number.
struct Corrections {
  Bounded first, second;
  std::int64_t t = 1;
};
Corrections corrections(const Optimizer& optimizer, std::int64_t t);
// A step of the optimizer on an element; Lion and SGD leave `second` alone. gradient: as it is held, unscaled; factor:
// the clipping factor; decay: 0 where the parameter does not decay.
BoundedElement updated(const Optimizer& optimizer, const Element& before, double gradient, const Bounded& factor,
                       double decay, double rate, const Corrections& bias);

}  // namespace seeksim::reference
