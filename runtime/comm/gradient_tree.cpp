// Merging as early as possible keeps few buffers alive: about log2 of the rank's samples.
#include "runtime/comm/gradient_tree.h"

#include <algorithm>
#include <bit>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "runtime/launch/any_vec.h"

namespace seeksim::runtime {

using kernels::TreeNode;

LossScale::LossScale(Index tokens) {
  SEEKSIM_CHECK(tokens > 0, "a step of %lld tokens", static_cast<long long>(tokens));
  const int power = std::bit_width(static_cast<std::uint64_t>(tokens - 1));  // ceil(log2(tokens))
  SEEKSIM_CHECK(power < 120, "2^%d tokens", power);
  at_loss = std::bit_cast<float>(static_cast<std::uint32_t>(127 - power) << 23);
  at_root = static_cast<float>(static_cast<double>(std::uint64_t(1) << power) / static_cast<double>(tokens));
}

TreeNode lifted(TreeNode node, Index leaves, int top_level) {
  while (node.level < top_level && node.index % 2 == 0 && (Index(1) << node.level) < leaves &&
         ((node.index + 1) << node.level) >= leaves) {
    node = {node.level + 1, node.index / 2};
  }
  return node;
}

std::vector<TreeNode> nodes_of(const SampleRange& samples, Index leaves, int top_level) {
  std::vector<TreeNode> nodes;
  for (const TreeNode node : kernels::cover(samples.begin, samples.end, leaves)) {
    const int level = std::min(node.level, top_level);
    const Index first = node.index << (node.level - level), end = (node.index + 1) << (node.level - level);
    for (Index index = first; index < end && (index << level) < samples.end; ++index) nodes.push_back({level, index});
  }
  return nodes;
}

TreeNode inside(TreeNode node, TreeNode root) {
  SEEKSIM_CHECK(node.level <= root.level, "node of level %d under level %d", node.level, root.level);
  return {node.level, node.index - (root.index << (root.level - node.level))};
}

bool lies_under(TreeNode node, TreeNode root) {
  return node.level <= root.level && node.index >> (root.level - node.level) == root.index;
}

void GradientTree::begin(Index leaves, int top_level) {
  leaves_ = leaves;
  top_level_ = top_level;
  for (const Held& held : held_) free_.push_back(held.buffer);
  held_.clear();
}

void GradientTree::give_back() {
  begin(leaves_, top_level_);
  std::erase_if(free_, [this](const Buffer* free) {
    return std::any_of(buffers_.begin(), buffers_.end(), [free](const BufferPtr& own) { return own.get() == free; });
  });
  buffers_.clear();
}

Buffer* GradientTree::take_buffer() {
  if (free_.empty()) {
    buffers_.push_back(device_.allocate_in(space_, static_cast<std::size_t>(held_elements()) * sizeof(float),
                                           MemoryTag::partial_sums, "gradient node"));
    return buffers_.back().get();
  }
  Buffer* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

std::vector<GradientTree::Held>::iterator GradientTree::find(TreeNode node, bool closed) {
  return std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.node == node && h.closed == closed; });
}

VecView<float> GradientTree::open(TreeNode node) {
  SEEKSIM_CHECK(first_leaf(node) < leaves_, "node (%d, %lld) has no leaf", node.level,
                static_cast<long long>(node.index));
  held_.push_back({lifted(node, leaves_, top_level_), take_buffer(), false});
  return {held_.back().buffer, 0, elements_};
}

void GradientTree::close(Launcher& launch, TreeNode node) {
  auto self = find(lifted(node, leaves_, top_level_), false);
  SEEKSIM_CHECK(self != held_.end(), "node (%d, %lld) is not open", node.level, static_cast<long long>(node.index));
  self->closed = true;
  for (int level = node.level;;) {  // that it has samples of: one without a sibling stands higher
    round_complete(launch, level, *self->buffer);
    const TreeNode at = self->node;
    if (at.level >= top_level_) return;
    const auto sibling = find({at.level, at.index ^ 1}, true);
    if (sibling == held_.end()) return;
    const bool is_left = at.index % 2 == 0;
    Buffer* left = is_left ? self->buffer : sibling->buffer;
    Buffer* right = is_left ? sibling->buffer : self->buffer;
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(3 * held_elements(), 1.0 / 3),
        [](kernels::Lane lane, kernels::Vec<const float> older, kernels::Vec<float> younger_to_sum) {
          kernels::tree_add(lane, older, younger_to_sum, younger_to_sum);
        },
        VecView<const float>{left, 0, elements_}, VecView<float>{right, 0, elements_});
    free_.push_back(left);
    level = at.level + 1;
    const Held merged{lifted({at.level + 1, at.index / 2}, leaves_, top_level_), right, true};
    held_.erase(std::max(self, sibling));
    held_.erase(std::min(self, sibling));
    held_.push_back(merged);
    self = held_.end() - 1;
  }
}

void GradientTree::join(Launcher& launch) {
  const std::vector<TreeNode> apart = nodes();
  top_level_ = CompressionPlan::kNoLevel;
  for (Held& held : held_) held = {lifted(held.node, leaves_, top_level_), held.buffer, false};
  for (const TreeNode node : apart) close(launch, node);
}

void GradientTree::round_complete(Launcher& launch, int level, Buffer& node) {
  for (const NodeRounding& rounding : rounding_) {
    if (rounding.level != level || elements_ == 0) continue;
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(2 * elements_, 3),
        [form = rounding.form, part = kernels::CodePart{rounding.runs, rounding.first, 0}](
            kernels::Lane lane, kernels::Vec<float> x) { kernels::through_codes(lane, form, part, x); },
        VecView<float>{&node, 0, elements_});
  }
}

void GradientTree::scale(Launcher& launch, float factor) {
  if (factor == 1.0f) return;
  for (const Held& held : held_) {
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(2 * held_elements()),
        [factor](kernels::Lane lane, kernels::Vec<float> x) { kernels::scale(lane, x, factor); },
        VecView<float>{held.buffer, 0, elements_});
  }
}

void GradientTree::round(Launcher& launch, ElementType type, Index elements) {
  if (type == ElementType::f32 || elements == 0) return;
  with_float_type(type, [&](auto like) {
    using T = decltype(like);
    for (const Held& held : held_) {
      launch(
          "gradients", SEEKSIM_SITE, memory_cost(2 * elements),
          [](kernels::Lane lane, kernels::Vec<float> x) { kernels::round_through<T>(lane, x); },
          VecView<float>{held.buffer, 0, elements});
    }
  });
}

std::vector<TreeNode> GradientTree::nodes() const {
  std::vector<TreeNode> nodes;
  for (const Held& held : held_) {
    SEEKSIM_CHECK(held.closed, "node (%d, %lld) is still open", held.node.level,
                  static_cast<long long>(held.node.index));
    nodes.push_back(held.node);
  }
  std::sort(nodes.begin(), nodes.end(), [](TreeNode a, TreeNode b) { return first_leaf(a) < first_leaf(b); });
  return nodes;
}

std::vector<VecView<float>> GradientTree::values() const {
  std::vector<VecView<float>> values;
  for (const TreeNode node : nodes()) {
    const auto held = std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.node == node; });
    values.push_back({held->buffer, 0, elements_});
  }
  return values;
}

std::vector<VecView<const float>> GradientTree::parts() const {
  const std::vector<VecView<float>> all = values();
  return {all.begin(), all.end()};
}

}  // namespace seeksim::runtime
