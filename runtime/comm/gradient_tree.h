// GradientTree: a step's gradients as nodes of the tree over the step's global sample index (docs/numerics.md#f3). A
// backward pass fills a buffer for each aligned block of samples; siblings are merged as soon as both are there, older
// on the left. What is left are the subtree roots of this rank's samples, the same whatever the micro-batches were.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "kernels/compression.h"
#include "kernels/tree.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/compression_plan.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// The step's scale in two exact parts: 2^-ceil(log2 tokens) at the loss, and what is missing to 1/tokens once at the
// root (R2: no factor inside a leaf may depend on a split).
struct LossScale {
  explicit LossScale(Index tokens);
  float at_loss = 1;
  float at_root = 1;
};

// What nodes of one level are rounded to: their elements are those of the runs from `first` on.
struct NodeRounding {
  int level = 0;
  kernels::CodeForm form;
  std::span<const kernels::WireRun> runs;
  Index first = 0;
};

class GradientTree {
 public:
  // elements: of one node; 0 of a member that owns none, which merges nothing. Buffers are made when first needed and
  // kept.
  GradientTree(Device& device, Index elements, Space space = Space::device)
      : device_(device), elements_(elements), space_(space) {}

  // Serves as the first node's buffer. Outlives the tree.
  void adopt(Buffer& buffer) { free_.push_back(&buffer); }

  // From now on nodes of these levels are rounded as soon as they are complete, before they are merged (quantised
  // gradients).
  void round_nodes(std::vector<NodeRounding> rounding) { rounding_ = std::move(rounding); }
  // A new step of `leaves` samples; forgets what an interrupted one left. top_level: nodes of this level stay apart,
  // although they have siblings (compressed groups).
  void begin(Index leaves, int top_level = CompressionPlan::kNoLevel);
  // Between steps: gives back the memory of all nodes. Nothing may be pending.
  void give_back();
  // A buffer for `node`, to be filled entirely by launches on one queue.
  VecView<float> open(kernels::TreeNode node);
  // All launches that fill `node` are enqueued: merges it with its sibling, and the result with its own, on that queue.
  void close(Launcher& launch, kernels::TreeNode node);

  // All nodes that stayed apart are filled: they meet as if there had been no top level.
  void join(Launcher& launch);

  // Multiplies all nodes; 1 does nothing.
  void scale(Launcher& launch, float factor);

  // Rounds the front `elements` of all nodes to what `type` can hold; fp32 does nothing. For a quirk: the contract
  // keeps sums in fp32 (docs/numerics.md#r4).
  void round(Launcher& launch, ElementType type, Index elements);

  // This rank's subtree roots, ascending.
  std::vector<kernels::TreeNode> nodes() const;
  std::vector<VecView<const float>> parts() const;
  std::vector<VecView<float>> values() const;  // the same, to be changed
  Index leaves() const { return leaves_; }

 private:
  struct Held {
    kernels::TreeNode node;
    Buffer* buffer = nullptr;
    bool closed = false;
  };
  std::vector<Held>::iterator find(kernels::TreeNode node, bool closed);
  Buffer* take_buffer();
  void round_complete(Launcher& launch, int level, Buffer& node);
  Index held_elements() const { return elements_ > 0 ? elements_ : 1; }  // of a buffer: none is empty

  Device& device_;
  Index elements_;
  Space space_;
  Index leaves_ = 0;
  int top_level_ = CompressionPlan::kNoLevel;
  std::vector<NodeRounding> rounding_;
  std::vector<BufferPtr> buffers_;  // made here
  std::vector<Buffer*> free_;
  std::vector<Held> held_;
};

// The highest node with the same leaves, up to top_level: a left child without a right sibling stands for its parent.
kernels::TreeNode lifted(kernels::TreeNode node, Index leaves, int top_level = CompressionPlan::kNoLevel);

// The aligned nodes of the tree over `leaves` samples that these fill, none of them above top_level.
std::vector<kernels::TreeNode> nodes_of(const SampleRange& samples, Index leaves,
                                        int top_level = CompressionPlan::kNoLevel);

// A node as seen from an ancestor `root`, as if that were the whole tree; whether that is one.
kernels::TreeNode inside(kernels::TreeNode node, kernels::TreeNode root);
bool lies_under(kernels::TreeNode node, kernels::TreeNode root);

}  // namespace seeksim::runtime
