#include "pytorch/backend/memory_layout.h"

#include <algorithm>

#include "pytorch/core/expectation.h"

namespace seeksim::pytorch {
namespace {

constexpr int kDimensions = 15;  // that a layout tells

bool carries_memory(OpName op) { return op == OpName::all_reduce || op == OpName::reduce || op == OpName::broadcast; }
bool wants_contiguous(OpName op) {
  return op == OpName::send || op == OpName::recv || op == OpName::scatter || op == OpName::all_to_all;
}

void ask(OpName op, const at::Tensor& t) {
  if (t.layout() != c10::kStrided) return;  // told elsewhere
  const bool right = carries_memory(op) ? t.is_non_overlapping_and_dense() : t.is_contiguous();
  TORCH_CHECK_VALUE(right, "seeksim: ", name(op), " of a tensor with sizes ", t.sizes(), " and strides ", t.strides(),
                    ": Gloo and NCCL carry memory as it lies, and this one ",
                    carries_memory(op) ? "has gaps. Some of their operations refuse it, others change what lies between"
                                       : "is not contiguous. Some of them refuse it, others mix up its numbers",
                    ". Pass tensor.contiguous(), and copy the result back where it has to change.");
}

std::uint64_t layout_of_one(const at::Tensor& t) {
  if (t.layout() != c10::kStrided || t.is_contiguous() || t.dim() > kDimensions) return 0;
  std::vector<int> dimensions;
  for (int d = 0; d < int(t.dim()); ++d)
    if (t.size(d) > 1) dimensions.push_back(d);
  std::stable_sort(dimensions.begin(), dimensions.end(), [&](int a, int b) { return t.stride(a) > t.stride(b); });
  return memory_order(dimensions);
}

}  // namespace

void ask_for_whole_memory(OpName op, const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out) {
  if (!carries_memory(op) && !wants_contiguous(op)) return;
  for (const std::vector<at::Tensor>* const all : {&in, &out})
    for (const at::Tensor& t : *all) ask(op, t);
}

std::uint64_t layout_of(OpName op, const std::vector<at::Tensor>& tensors) {
  if (!carries_memory(op)) return 0;
  if (tensors.size() == 1) return layout_of_one(tensors[0]);
  std::uint64_t all = 0;
  bool any = false;
  for (const at::Tensor& t : tensors) {
    const std::uint64_t one = layout_of_one(t);
    any = any || one != 0;
    all = all * 0x9e3779b97f4a7c15U + one + 1;
  }
  return any ? all : 0;
}

}  // namespace seeksim::pytorch
