#include "kernels/optimizer.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

void optimize(Lane lane, const OptimizerStep& step, Vec<const float> grad, Vec<float> param, Vec<float> m,
              Vec<float> v) {
  SEEKSIM_CHECK_EQ(grad.n, param.n);
  SEEKSIM_CHECK_EQ(m.n, moments_of(step.rule) >= 1 ? param.n : 0);
  SEEKSIM_CHECK_EQ(v.n, moments_of(step.rule) == 2 ? param.n : 0);
  if (const DeviceTable* device = device_of(lane))
    return device->elements<float>().optimize(lane, step, grad.data, param.data, m.data, v.data, nullptr, param.n);
  elements().optimize(step, grad.data, param.data, m.data, v.data, param.n);
}

template <class T, class G>
void optimize_copying(Lane lane, const OptimizerStep& step, InVec<G> grad, Vec<float> master, Vec<float> m,
                      Vec<float> v, OutVec<T> copy) {
  SEEKSIM_CHECK_EQ(grad.n, master.n);
  SEEKSIM_CHECK_EQ(m.n, moments_of(step.rule) >= 1 ? master.n : 0);
  SEEKSIM_CHECK_EQ(v.n, moments_of(step.rule) == 2 ? master.n : 0);
  SEEKSIM_CHECK_EQ(copy.n, master.n);
  if constexpr (std::is_same_v<G, float>) {
    if (const DeviceTable* device = device_of(lane))
      return device->elements<T>().optimize(lane, step, grad.data, master.data, m.data, v.data, copy.data, copy.n);
    half_elements<T>().optimize_copying(step, grad.data, master.data, m.data, v.data, copy.data, copy.n);
  } else {
    if (const DeviceTable* device = device_of(lane))
      return device->elements<T>().optimize_of_stored(lane, step, grad.data, master.data, m.data, v.data, copy.data,
                                                      copy.n);
    half_elements<T>().optimize_of_half_copying(step, grad.data, master.data, m.data, v.data, copy.data, copy.n);
  }
}

template <class T, class G>
void optimize_rounding(Lane lane, const OptimizerStep& step, InVec<G> grad, OutVec<T> param, Vec<float> m, Vec<float> v,
                       Vec<Stagnation> out) {
  SEEKSIM_CHECK_EQ(grad.n, param.n);
  SEEKSIM_CHECK_EQ(m.n, moments_of(step.rule) >= 1 ? param.n : 0);
  SEEKSIM_CHECK_EQ(v.n, moments_of(step.rule) == 2 ? param.n : 0);
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the counts");
  SEEKSIM_CHECK(!step.rounding.on || (std::is_same_v<T, bf16>), "only bf16 is rounded at random");
  Stagnation s;
  if constexpr (std::is_same_v<G, float>) {
    if (const DeviceTable* device = device_of(lane))
      return device->elements<T>().optimize_rounding(lane, step, grad.data, param.data, m.data, v.data, param.n,
                                                     out.data);
    s = half_elements<T>().optimize_rounding(step, grad.data, param.data, m.data, v.data, param.n);
  } else {
    if (const DeviceTable* device = device_of(lane))
      return device->elements<T>().optimize_rounding_of_stored(lane, step, grad.data, param.data, m.data, v.data,
                                                               param.n, out.data);
    s = half_elements<T>().optimize_of_half_rounding(step, grad.data, param.data, m.data, v.data, param.n);
  }
  out[0].changes += s.changes;
  out[0].lost += s.lost;
}

template <class T>
void move_mean(Lane lane, float weight, InVec<T> x, Vec<float> mean) {
  SEEKSIM_CHECK_EQ(x.n, mean.n);
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().move_mean(lane, weight, x, mean);
  elements_in<T>().move_mean(weight, x.data, mean.data, mean.n);
}

void muon_direction(Lane lane, const MuonStep& step, Vec<float> m, Vec<float> x) {
  SEEKSIM_CHECK_EQ(m.n, x.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.muon_direction(lane, step, m, x);
  elements().muon_direction(step, m.data, x.data, x.n);
}

void scale_to_norm(Lane lane, Vec<const float> norm2, float least, Vec<float> x) {
  SEEKSIM_CHECK(norm2.n >= 1, "no norm is given");
  if (const DeviceTable* device = device_of(lane)) return device->common.scale_to_norm(lane, norm2, least, x);
  elements().scale_to_norm(norm2.data, least, x.data, x.n);
}

void weighted_sum(Lane lane, float a, Vec<const float> x, float b, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.weighted_sum(lane, a, x, b, y);
  elements().weighted_sum(a, x.data, b, y.data, y.n);
}

template void move_mean<float>(Lane, float, InVec<float>, Vec<float>);
template void move_mean<bf16>(Lane, float, InVec<bf16>, Vec<float>);
template void move_mean<fp16>(Lane, float, InVec<fp16>, Vec<float>);
template void optimize_copying<bf16, float>(Lane, const OptimizerStep&, InVec<float>, Vec<float>, Vec<float>,
                                            Vec<float>, OutVec<bf16>);
template void optimize_rounding<bf16, float>(Lane, const OptimizerStep&, InVec<float>, OutVec<bf16>, Vec<float>,
                                             Vec<float>, Vec<Stagnation>);
template void optimize_copying<bf16, bf16>(Lane, const OptimizerStep&, InVec<bf16>, Vec<float>, Vec<float>, Vec<float>,
                                           OutVec<bf16>);
template void optimize_rounding<bf16, bf16>(Lane, const OptimizerStep&, InVec<bf16>, OutVec<bf16>, Vec<float>,
                                            Vec<float>, Vec<Stagnation>);
template void optimize_copying<fp16, float>(Lane, const OptimizerStep&, InVec<float>, Vec<float>, Vec<float>,
                                            Vec<float>, OutVec<fp16>);
template void optimize_rounding<fp16, float>(Lane, const OptimizerStep&, InVec<float>, OutVec<fp16>, Vec<float>,
                                             Vec<float>, Vec<Stagnation>);
template void optimize_copying<fp16, fp16>(Lane, const OptimizerStep&, InVec<fp16>, Vec<float>, Vec<float>, Vec<float>,
                                           OutVec<fp16>);
template void optimize_rounding<fp16, fp16>(Lane, const OptimizerStep&, InVec<fp16>, OutVec<fp16>, Vec<float>,
                                            Vec<float>, Vec<Stagnation>);

}  // namespace seeksim::kernels
