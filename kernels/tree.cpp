#include "kernels/tree.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>

#include "kernels/arithmetic.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

// The root's level is the first at which one node covers every leaf.
int root_level(Index leaves) { return leaves <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(leaves - 1)); }

std::invalid_argument bad_parts(const char* what, Index leaf, Index leaves) {
  return std::invalid_argument(std::string("tree_sum: leaf ") + std::to_string(leaf) + " of " + std::to_string(leaves) +
                               " is " + what);
}

// Throws unless the parts, in ascending order, tile [0, leaves).
void check_tiling(const TreePart* parts, const std::vector<Index>& order, Index leaves) {
  Index next = 0;
  for (Index p : order) {
    const TreeNode n = parts[p].node;
    if (n.level < 0 || n.level > 62 || n.index < 0 || first_leaf(n) >= leaves)
      throw std::invalid_argument("tree_sum: node (" + std::to_string(n.level) + ", " + std::to_string(n.index) +
                                  ") lies outside of " + std::to_string(leaves) + " leaves");
    if (first_leaf(n) > next) throw bad_parts("missing", next, leaves);
    if (first_leaf(n) < next) throw bad_parts("covered twice", first_leaf(n), leaves);
    next = std::min(first_leaf({n.level, n.index + 1}), leaves);
  }
  if (next < leaves) throw bad_parts("missing", next, leaves);
}

// How often the two topmost operands are added after each part: a right child meets its left sibling; where a right
// sibling has no leaf, the node is lifted instead, without an add.
std::vector<int> schedule(const TreePart* parts, const std::vector<Index>& order, Index leaves) {
  const int root = root_level(leaves);
  std::vector<int> adds;
  for (Index p : order) {
    TreeNode n = parts[p].node;
    int count = 0;
    for (; n.level < root; ++n.level, n.index >>= 1) {
      if (n.index & 1) {
        ++count;
      } else if (first_leaf({n.level, n.index + 1}) < leaves) {
        break;
      }
    }
    adds.push_back(count);
  }
  return adds;
}

}  // namespace

std::vector<TreeNode> cover(Index begin, Index end, Index leaves) {
  SEEKSIM_CHECK(0 <= begin && begin <= end && end <= leaves, "[%lld, %lld) of %lld leaves",
                static_cast<long long>(begin), static_cast<long long>(end), static_cast<long long>(leaves));
  std::vector<TreeNode> nodes;
  const int root = root_level(leaves);
  while (begin < end) {
    TreeNode n{0, begin};
    // Grow while the parent starts at the same leaf and holds no leaf at or after `end`.
    while (n.level < root && (n.index & 1) == 0 && std::min(first_leaf({n.level, n.index + 2}), leaves) <= end) {
      ++n.level;
      n.index >>= 1;
    }
    nodes.push_back(n);
    begin = std::min(first_leaf({n.level, n.index + 1}), leaves);
  }
  return nodes;
}

float tree_fold(Vec<const float> values) {
  if (values.n == 0) return 0.0F;
  float stack[64];
  int top = 0;
  for (Index i = 0; i < values.n; ++i) {
    float v = values[i];
    for (Index c = i; c & 1; c >>= 1) v = stack[--top] + v;
    stack[top++] = v;
  }
  float v = stack[--top];
  while (top > 0) v = stack[--top] + v;
  return v;
}

void tree_fold(Lane lane, Vec<const float> values, Vec<float> out, float factor, Index segment) {
  SEEKSIM_CHECK(out.n >= 1 && segment >= 0, "nowhere to put the sum, or segments of %lld",
                static_cast<long long>(segment));
  const Index each = segment > 0 ? segment : std::max<Index>(values.n, 1);
  if (const DeviceTable* device = device_of(lane))
    return device->common.tree_fold(lane, {values.data, 1, values.n, values.n}, each, factor, out.data);
  std::vector<float> sums;
  for (Index at = 0; at < values.n; at += each)
    sums.push_back(tree_fold({values.data + at, std::min(each, values.n - at)}));
  const float sum = tree_fold({sums.data(), static_cast<Index>(sums.size())});
  out[0] = factor == 1.0F ? sum : sum * factor;
}

void tree_add(Lane lane, Vec<const float> left, Vec<const float> right, Vec<float> out) {
  SEEKSIM_CHECK_EQ(left.n, out.n);
  SEEKSIM_CHECK_EQ(right.n, out.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.tree_add(lane, left, right, out);
  elements_in<float>().add(left.data, right.data, out.data, out.n);
}

void tree_sum(Lane lane, const TreePart* parts, Index count, Index leaves, Vec<float> out, float factor, int owner,
              const float* library) {
  SEEKSIM_CHECK(leaves > 0, "a tree without leaves");
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return first_leaf(parts[a].node) < first_leaf(parts[b].node); });
  check_tiling(parts, order, leaves);
  if (lane.arithmetic != nullptr && count > 1)
    return lane.arithmetic->sum(lane, {parts, count, leaves, factor, owner, library}, out);
  const std::vector<int> adds = schedule(parts, order, leaves);
  std::vector<const float*> data;
  for (Index p : order) data.push_back(parts[p].data);
  if (const DeviceTable* device = device_of(lane))
    return device->common.tree_parts(lane, data.data(), adds.data(), count, out.data, out.n, factor);
  elements().tree_parts(data.data(), adds.data(), count, out.data, out.n, factor);
}

void library_addend(Lane lane, Vec<float> values) {
  if (lane.arithmetic != nullptr) lane.arithmetic->addend(lane, values);
}

}  // namespace seeksim::kernels
