// The aligned binary tree over an integer leaf index (F3): the one way in which contributions of different samples,
// blocks, slabs or parameters are added. Node (level, index) covers leaves [index << level, (index + 1) << level);
// where a right child has no leaf below `leaves`, the left one passes through without an add.
#pragma once

#include <vector>

#include "kernels/view.h"

namespace seeksim::kernels {

// A node of the tree, without its value.
struct TreeNode {
  int level = 0;
  Index index = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

inline Index first_leaf(TreeNode n) { return n.index << n.level; }

// The fewest nodes that cover leaves [begin, end) of a tree with `leaves` leaves, ascending. A node may reach past
// `leaves` (its missing leaves pass through), never past `end` otherwise.
std::vector<TreeNode> cover(Index begin, Index end, Index leaves);

// F3 over scalars: values[i] is leaf i. n = 0 gives +0.
float tree_fold(Vec<const float> values);

// out[0] = tree_sum of values, times factor (applied once, skipped when it is 1). segment > 0: F3 inside each `segment`
// values, then over the segments.
void tree_fold(Lane lane, Vec<const float> values, Vec<float> out, float factor = 1.0f, Index segment = 0);

// out[i] = left[i] + right[i]: one merge of two sibling nodes. out may be left or right.
void tree_add(Lane lane, Vec<const float> left, Vec<const float> right, Vec<float> out);

// A subtree's value: `n` floats at data. Group: its contributor; it decides nothing here, but see Arithmetic::sum.
struct TreePart {
  TreeNode node;
  const float* data = nullptr;
  int group = 0;
};

// out[i] = root of the tree whose disjoint `parts` (any order) cover all of [0, leaves), times `factor` (applied once,
// skipped when it is 1). Throws std::invalid_argument naming the first leaf that is missing or covered twice.
// Runs at memory speed: all parts are folded chunk by chunk. owner: the group that wants the sum; library: a library's
// sum of the same parts (Arithmetic::sum).
void tree_sum(Lane lane, const TreePart* parts, Index count, Index leaves, Vec<float> out, float factor = 1.0f,
              int owner = 0, const float* library = nullptr);

// Edits in place what a member contributes to a library's sum; by the contract it does nothing (Arithmetic::addend).
void library_addend(Lane lane, Vec<float> values);

}  // namespace seeksim::kernels
