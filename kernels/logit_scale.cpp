// Products are rounded before they are added, and there is no fma here. So one plain loop gives the same bits on every
// instruction set, and its time is negligible next to the products of the head.
#include "kernels/logit_scale.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/row_checks.h"
#include "kernels/tree.h"

namespace seeksim::kernels {
namespace {

constexpr Index kLanes = 128;

// F4 over a[i] * b[i].
float lane_dot(const float* a, const float* b, Index n) {
  float lanes[kLanes] = {};
  for (Index begin = 0; begin < n; begin += kLanes) {
    const Index here = std::min(kLanes, n - begin);
    for (Index l = 0; l < here; ++l) lanes[l] += a[begin + l] * b[begin + l];
  }
  for (Index width = kLanes / 2; width > 0; width /= 2) {
    for (Index l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

}  // namespace

void logit_scale_forward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> logits) {
  check_same<float>(raw, logits);
  SEEKSIM_CHECK_EQ(scale.n, 1);
  if (const DeviceTable* device = device_of(lane)) return device->common.logit_scale_forward(lane, raw, scale, logits);
  for (Index r = 0; r < raw.rows; ++r) {
    for (Index v = 0; v < raw.cols; ++v) logits(r, v) = raw(r, v) * scale[0];
  }
}

void logit_scale_backward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> dlogits, Vec<float> dots,
                          Index segment) {
  check_same<float>(raw, dlogits);
  SEEKSIM_CHECK_EQ(scale.n, 1);
  SEEKSIM_CHECK_EQ(dots.n, raw.rows);
  const Index slab = segment > 0 ? segment : slab_size(raw.cols);
  SEEKSIM_CHECK(raw.cols <= kSlabs * slab, "%lld columns in segments of %lld", static_cast<long long>(raw.cols),
                static_cast<long long>(slab));
  if (const DeviceTable* device = device_of(lane))
    return device->common.logit_scale_backward(lane, raw, scale, dlogits, dots, slab);
  for (Index r = 0; r < raw.rows; ++r) {
    float slabs[kSlabs];
    Index n = 0;
    for (Index begin = 0; begin < raw.cols; begin += slab) {
      slabs[n++] = lane_dot(dlogits.row(r) + begin, raw.row(r) + begin, std::min(slab, raw.cols - begin));
    }
    dots[r] = tree_fold({slabs, n});
    for (Index v = 0; v < raw.cols; ++v) dlogits(r, v) = dlogits(r, v) * scale[0];
  }
}

}  // namespace seeksim::kernels
