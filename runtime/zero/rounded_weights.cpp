#include "runtime/zero/rounded_weights.h"

namespace seeksim::runtime {

RoundedWeights::RoundedWeights(Device& device, Launcher& compute, const Parameters& parameters, const TrainPlan& plan,
                               AnyVec flat)
    : compute_(compute),
      parameters_(parameters),
      form_(weights_form(plan)),
      flat_(flat),
      rounded_(device.allocate(flat.bytes(), MemoryTag::parameters, "rounded weights")) {}

AnyVec RoundedWeights::of(const ParameterInfo& p) { return {rounded_.get(), p.offset, p.size, flat_.type}; }

void RoundedWeights::fetch(int module) {
  for (const ParameterInfo* p : parameters_.module(module)) {
    with_float_type(flat_.type, [&](auto like) {
      using T = decltype(like);
      compute_(
          p->name, SEEKSIM_SITE, memory_cost(2 * p->size, 3),
          [form = form_, slab = p->slab](kernels::Lane lane, kernels::Vec<const T> x, kernels::Vec<T> y) {
            kernels::through_codes<T>(lane, form, slab, x, y);
          },
          flat_.part(p->offset, p->size).as<const T>(), of(*p).as<T>());
    });
  }
}

}  // namespace seeksim::runtime
