#include "kernels/norms.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

template <class T>
void norm2_blocks(Lane lane, InVec<T> x, Vec<float> out) {
  SEEKSIM_CHECK_EQ(out.n, (x.n + kBlock - 1) / kBlock);
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().norm2_blocks(lane, x, out);
  for (Index b = 0; b < out.n; ++b) {
    const Index begin = b * kBlock, left = x.n - begin;
    out[b] = elements_in<T>().norm2(x.data + begin, left < kBlock ? left : kBlock);
  }
}

template <class T>
void count_nonfinite(Lane lane, InVec<T> x, Vec<std::int64_t> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the count");
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().count_nonfinite(lane, x, out.data);
  out[0] += elements_in<T>().count_nonfinite(x.data, x.n);
}

template void norm2_blocks<float>(Lane, InVec<float>, Vec<float>);
template void norm2_blocks<bf16>(Lane, InVec<bf16>, Vec<float>);
template void norm2_blocks<fp16>(Lane, InVec<fp16>, Vec<float>);
template void count_nonfinite<float>(Lane, InVec<float>, Vec<std::int64_t>);
template void count_nonfinite<bf16>(Lane, InVec<bf16>, Vec<std::int64_t>);
template void count_nonfinite<fp16>(Lane, InVec<fp16>, Vec<std::int64_t>);

}  // namespace seeksim::kernels
