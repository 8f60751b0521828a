#include "kernels/slabs.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/pointwise.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

Index slabs_of_each(int ways) {
  SEEKSIM_CHECK(ways == 1 || ways == 2 || ways == 4 || ways == 8, "%d ways", ways);
  return kSlabs / ways;
}

// How often the two topmost operands of a binary counter are added after leaf i of n. A leaf is merged with what is
// complete to its left, the last leaf with all that remains (an operand without a right sibling is passed through).
int adds_after(Index i, Index n) {
  const auto before = static_cast<std::uint64_t>(i);
  return i + 1 == n ? std::popcount(before) : std::countr_one(before);
}

}  // namespace

Stretch stretch_of_way(Index n, int ways, int way) {
  SEEKSIM_CHECK(way >= 0 && way < ways, "way %d of %d", way, ways);
  const Index each = slabs_of_each(ways) * slab_size(n);
  const Index first = std::min(n, way * each);
  return {first, std::min(n, first + each) - first};
}

int filled_ways(Index n, int ways) { return n == 0 ? 0 : way_of(n - 1, n, ways) + 1; }

int way_of(Index element, Index n, int ways) {
  SEEKSIM_CHECK(element >= 0 && element < n, "element %lld of %lld", static_cast<long long>(element),
                static_cast<long long>(n));
  return static_cast<int>(element / (slabs_of_each(ways) * slab_size(n)));
}

template <class T>
void add_ways(Lane lane, Mat<const float> nodes, InVec<T> bias, OutMat<T> y) {
  SEEKSIM_CHECK(nodes.rows > 0 && nodes.rows <= kSlabs, "%lld ways", static_cast<long long>(nodes.rows));
  SEEKSIM_CHECK_EQ(nodes.cols, y.rows * y.cols);
  SEEKSIM_CHECK(bias.n == 0 || bias.n == y.cols, "a bias of %lld for %lld columns", static_cast<long long>(bias.n),
                static_cast<long long>(y.cols));
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().add_ways(lane, nodes, bias, y);
  int adds[kSlabs];
  const float* parts[kSlabs];
  for (Index w = 0; w < nodes.rows; ++w) adds[w] = adds_after(w, nodes.rows);
  float* const sum = scratch(Scratch::rows, y.cols);
  for (Index r = 0; r < y.rows; ++r) {
    for (Index w = 0; w < nodes.rows; ++w) parts[w] = nodes.row(w) + r * y.cols;
    elements().tree_parts(parts, adds, nodes.rows, sum, y.cols, 1.0F);
    if (bias.n > 0) elements_in<T>().accumulate(sum, bias.data, y.cols);
    narrow<T>(lane, {sum, y.cols}, {y.row(r), y.cols});
  }
}

void add_samples(Lane lane, Mat<const float> nodes, Vec<float> out) {
  SEEKSIM_CHECK(out.n > 0 && nodes.cols > 0 && nodes.cols % out.n == 0, "%lld values of samples of %lld",
                static_cast<long long>(nodes.cols), static_cast<long long>(out.n));
  if (const DeviceTable* device = device_of(lane)) return device->common.add_samples(lane, nodes, out);
  const Index samples = nodes.cols / out.n;
  std::vector<const float*> parts;
  std::vector<int> adds;
  for (Index s = 0; s < samples; ++s) {
    for (Index w = 0; w < nodes.rows; ++w) {
      parts.push_back(nodes.row(w) + s * out.n);
      adds.push_back(adds_after(w, nodes.rows));
    }
    adds.back() += adds_after(s, samples);
  }
  elements().tree_parts(parts.data(), adds.data(), Index(parts.size()), out.data, out.n, 1.0F);
}

void max_over_ways(Lane lane, Mat<const float> values, Vec<float> out) {
  SEEKSIM_CHECK(values.rows > 0, "no ways");
  SEEKSIM_CHECK_EQ(values.cols, out.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.max_over_ways(lane, values, out);
  for (Index r = 0; r < out.n; ++r) {
    float max = values(0, r);
    for (Index w = 1; w < values.rows; ++w) max = values(w, r) > max ? values(w, r) : max;
    out[r] = max;
  }
}

template <class T>
void select_rows(Lane lane, Vec<const std::int32_t> tokens, Index vocabulary, int ways, InMat<T> rows, OutMat<T> out) {
  SEEKSIM_CHECK_EQ(tokens.n, out.rows);
  SEEKSIM_CHECK_EQ(rows.rows, filled_ways(vocabulary, ways));
  SEEKSIM_CHECK_EQ(rows.cols, out.rows * out.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->elements<T>().select_rows(lane, tokens, vocabulary, slabs_of_each(ways) * slab_size(vocabulary),
                                             rows, out);
  for (Index r = 0; r < out.rows; ++r) {
    const Index from = way_of(tokens[r], vocabulary, ways);
    copy<T>(lane, {rows.row(from) + r * out.cols, out.cols}, {out.row(r), out.cols});
  }
}

template void add_ways<float>(Lane, Mat<const float>, InVec<float>, OutMat<float>);
template void add_ways<bf16>(Lane, Mat<const float>, InVec<bf16>, OutMat<bf16>);
template void add_ways<fp16>(Lane, Mat<const float>, InVec<fp16>, OutMat<fp16>);
template void select_rows<float>(Lane, Vec<const std::int32_t>, Index, int, InMat<float>, OutMat<float>);
template void select_rows<bf16>(Lane, Vec<const std::int32_t>, Index, int, InMat<bf16>, OutMat<bf16>);
template void select_rows<fp16>(Lane, Vec<const std::int32_t>, Index, int, InMat<fp16>, OutMat<fp16>);

}  // namespace seeksim::kernels
