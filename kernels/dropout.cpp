#include "kernels/dropout.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

Dropout dropout_of(double rate) {
  SEEKSIM_CHECK(rate >= 0 && rate < 1, "a dropout rate of %g is not in [0, 1)", rate);
  Dropout drop;
  const double scaled = rate * 0x1p24;
  drop.threshold = static_cast<std::uint32_t>(scaled);
  if (drop.threshold < scaled) ++drop.threshold;
  if (drop.on()) drop.factor = static_cast<float>(1 / (1 - rate));
  return drop;
}

template <class T>
void dropout(Lane lane, const Dropout& drop, Index tokens, InMat<T> x, OutMat<T> y, Index first_token) {
  SEEKSIM_CHECK_EQ(x.rows, y.rows);
  SEEKSIM_CHECK_EQ(x.cols, y.cols);
  SEEKSIM_CHECK(tokens > 0 && x.rows % tokens == 0, "%lld rows of samples of %lld tokens",
                static_cast<long long>(x.rows), static_cast<long long>(tokens));
  const Index elements = (first_token + tokens) * x.cols;
  SEEKSIM_CHECK(first_token >= 0 && elements < Index{1} << 34, "a sample of %lld elements",
                static_cast<long long>(elements));
  if (const DeviceTable* device = device_of(lane))
    return device->elements<T>().dropout(lane, drop, tokens, x, y, first_token);
  for (Index r = 0; r < x.rows; ++r) {
    const auto sample = drop.first_sample + static_cast<std::uint32_t>(r / tokens);
    elements_in<T>().dropout(drop, sample, (first_token + r % tokens) * x.cols, x.row(r), y.row(r), x.cols);
  }
}

template void dropout<float>(Lane, const Dropout&, Index, InMat<float>, OutMat<float>, Index);
template void dropout<bf16>(Lane, const Dropout&, Index, InMat<bf16>, OutMat<bf16>, Index);
template void dropout<fp16>(Lane, const Dropout&, Index, InMat<fp16>, OutMat<fp16>, Index);

}  // namespace seeksim::kernels
