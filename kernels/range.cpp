#include "kernels/range.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

template <class T>
void range(Lane lane, InMat<T> x, Vec<TensorRange> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the range");
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().range(lane, x, out.data);
  out[0] = elements_in<T>().range(x);
}

template <class T>
void first_nonfinite(Lane lane, InMat<T> x, Vec<std::int64_t> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the index");
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().first_nonfinite(lane, x, out.data);
  out[0] = -1;
  for (Index r = 0; r < x.rows && out[0] < 0; ++r) {
    if (elements_in<T>().count_nonfinite(x.row(r), x.cols) == 0) continue;
    Index c = 0;
    while (elements_in<T>().count_nonfinite(x.row(r) + c, 1) == 0) ++c;
    out[0] = r * x.cols + c;
  }
}

template void range<float>(Lane, InMat<float>, Vec<TensorRange>);
template void range<bf16>(Lane, InMat<bf16>, Vec<TensorRange>);
template void range<fp16>(Lane, InMat<fp16>, Vec<TensorRange>);
template void first_nonfinite<float>(Lane, InMat<float>, Vec<std::int64_t>);
template void first_nonfinite<bf16>(Lane, InMat<bf16>, Vec<std::int64_t>);
template void first_nonfinite<fp16>(Lane, InMat<fp16>, Vec<std::int64_t>);

}  // namespace seeksim::kernels
