#include "kernels/norms.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/tree.h"

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
void norm2_of_slabs(Lane lane, InVec<T> x, Index slab, Vec<float> blocks, Vec<float> out) {
  SEEKSIM_CHECK(slab > 0 && blocks.n * kBlock >= std::min(slab, x.n) && out.n >= 1,
                "%lld elements in slabs of %lld, %lld blocks", static_cast<long long>(x.n),
                static_cast<long long>(slab), static_cast<long long>(blocks.n));
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().norm2_of_slabs(lane, x, slab, blocks, out.data);
  std::vector<float> slabs;
  for (Index at = 0; at < x.n; at += slab) {
    const Index size = std::min(slab, x.n - at);
    const Vec<float> of_slab{blocks.data, (size + kBlock - 1) / kBlock};
    norm2_blocks<T>(lane, {x.data + at, size}, of_slab);
    slabs.push_back(tree_fold(of_slab));
  }
  out[0] = tree_fold({slabs.data(), static_cast<Index>(slabs.size())});
}

template <class T>
void count_nonfinite(Lane lane, InVec<T> x, Vec<std::int64_t> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the count");
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().count_nonfinite(lane, x, out.data);
  out[0] += elements_in<T>().count_nonfinite(x.data, x.n);
}

template void norm2_of_slabs<float>(Lane, InVec<float>, Index, Vec<float>, Vec<float>);
template void norm2_of_slabs<bf16>(Lane, InVec<bf16>, Index, Vec<float>, Vec<float>);
template void norm2_of_slabs<fp16>(Lane, InVec<fp16>, Index, Vec<float>, Vec<float>);
template void norm2_blocks<float>(Lane, InVec<float>, Vec<float>);
template void norm2_blocks<bf16>(Lane, InVec<bf16>, Vec<float>);
template void norm2_blocks<fp16>(Lane, InVec<fp16>, Vec<float>);
template void count_nonfinite<float>(Lane, InVec<float>, Vec<std::int64_t>);
template void count_nonfinite<bf16>(Lane, InVec<bf16>, Vec<std::int64_t>);
template void count_nonfinite<fp16>(Lane, InVec<fp16>, Vec<std::int64_t>);

namespace {

float dot(const float* a, const float* b, Index n) {
  float sum = 0;
  for (Index i = 0; i < n; ++i) sum = sum + a[i] * b[i];
  return sum;
}

}  // namespace

void orthogonalise(Lane lane, Mat<float> rows) {
  check_on_cpu(lane, "makes rows orthogonal");
  for (Index i = 0; i < rows.rows; ++i) {
    float* const row = rows.data + i * rows.stride;
    const float length = std::sqrt(dot(row, row, rows.cols));
    if (length == 0.0F) continue;
    for (Index k = 0; k < rows.cols; ++k) row[k] = row[k] / length;
    for (Index j = i + 1; j < rows.rows; ++j) {
      float* const later = rows.data + j * rows.stride;
      const float along = dot(row, later, rows.cols);
      for (Index k = 0; k < rows.cols; ++k) later[k] = later[k] - along * row[k];
    }
  }
}

}  // namespace seeksim::kernels
