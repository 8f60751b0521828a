#include "kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/row_checks.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

void check_tokens(Vec<const std::int32_t> tokens, Index vocabulary) {
  for (Index r = 0; r < tokens.n; ++r)
    SEEKSIM_CHECK(tokens[r] >= 0 && tokens[r] < vocabulary, "token %d at row %lld, vocabulary %lld", tokens[r],
                  static_cast<long long>(r), static_cast<long long>(vocabulary));
}

void check_slice(Index first, Index rows, Index vocabulary) {
  SEEKSIM_CHECK(first >= 0 && (rows == 0 || first + rows <= vocabulary), "rows [%lld, %lld) of a vocabulary of %lld",
                static_cast<long long>(first), static_cast<long long>(first + rows),
                static_cast<long long>(vocabulary));
}

// A NaN: stands for the row of a token that a slice of the table lacks.
template <class T>
T not_here(Lane lane) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  T stored{};
  narrow<T>(lane, {&nan, 1}, {&stored, 1});
  return stored;
}

// F3 over samples of which only some contribute. The other leaves would be +0, and so would subtrees without any
// contribution. A chain that starts from +0 never ends at -0, nor does a sum of two such values. So adding +0 changes
// nothing and is left out. Pushes come in ascending order of samples.
class SparseTree {
 public:
  SparseTree(float* memory, Index columns) : memory_(memory), columns_(columns) {}

  // A zeroed row for the next leaf. Merges first the nodes that lie wholly before it.
  float* begin_leaf(Index sample) {
    while (top_ >= 2 && height(samples_[top_ - 2], samples_[top_ - 1]) < height(samples_[top_ - 1], sample)) merge();
    samples_[top_++] = sample;
    float* const row = memory_ + (top_ - 1) * columns_;
    std::fill_n(row, columns_, 0.0F);
    return row;
  }
  // The root; +0 without leaves.
  void finish(float* out) {
    while (top_ >= 2) merge();
    if (top_ == 1) std::memcpy(out, memory_, static_cast<std::size_t>(columns_) * sizeof(float));
    if (top_ == 0) std::fill_n(out, columns_, 0.0F);
    top_ = 0;
  }
  static constexpr int kDepth = 64;

 private:
  // The level at which two samples meet.
  static int height(Index a, Index b) { return std::bit_width(static_cast<std::uint64_t>(a ^ b)); }
  void merge() {
    float* const left = memory_ + (top_ - 2) * columns_;
    elements_in<float>().add(left, left + columns_, left, columns_);
    --top_;
  }

  float* memory_;
  Index columns_;
  Index samples_[kDepth] = {};
  int top_ = 0;
};

}  // namespace

template <class T>
void embedding_forward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, InMat<T> wte, InMat<T> wpe,
                       OutMat<T> x) {
  embedding_forward_slice<T>(lane, tokens, tokens_per_sample, wte.rows, 0, wte, wpe, x);
}

template <class T>
void embedding_forward_slice(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                             Index first, InMat<T> wte, InMat<T> wpe, OutMat<T> x) {
  check_slice(first, wte.rows, vocabulary);
  check_samples(tokens.n, tokens_per_sample);
  SEEKSIM_CHECK_EQ(x.rows, tokens.n);
  SEEKSIM_CHECK_EQ(x.cols, wte.cols);
  const bool positions = wpe.data != nullptr;
  SEEKSIM_CHECK(!positions || x.cols == wpe.cols, "%lld columns, positions have %lld", static_cast<long long>(x.cols),
                static_cast<long long>(wpe.cols));
  SEEKSIM_CHECK(!positions || tokens_per_sample <= wpe.rows, "%lld tokens a sample, %lld positions",
                static_cast<long long>(tokens_per_sample), static_cast<long long>(wpe.rows));
  if (const DeviceTable* device = device_of(lane))
    return device->elements<T>().embedding_forward(lane, tokens, tokens_per_sample, vocabulary, first, wte, wpe, x);
  check_tokens(tokens, vocabulary);
  for (Index r = 0; r < x.rows; ++r) {
    const Index row = tokens[r] - first;
    if (row < 0 || row >= wte.rows) {
      std::fill_n(x.row(r), x.cols, not_here<T>(lane));
    } else if (positions) {
      elements_in<T>().add(wte.row(row), wpe.row(r % tokens_per_sample), x.row(r), x.cols);
    } else {
      std::copy_n(wte.row(row), x.cols, x.row(r));
    }
  }
}

template <class T>
void embedding_backward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, InMat<T> dx,
                        Mat<float> dwte) {
  embedding_backward_slice<T>(lane, tokens, tokens_per_sample, dwte.rows, 0, dx, dwte);
}

template <class T>
void embedding_backward_slice(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                              Index first, InMat<T> dx, Mat<float> dwte) {
  check_slice(first, dwte.rows, vocabulary);
  check_samples(tokens.n, tokens_per_sample);
  SEEKSIM_CHECK_EQ(dx.rows, tokens.n);
  SEEKSIM_CHECK_EQ(dx.cols, dwte.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().embedding_backward(lane, tokens, tokens_per_sample, vocabulary, first, dx, dwte);
  check_tokens(tokens, vocabulary);
  // The rows of each token in ascending order, as linked lists: head of a token, next of a row.
  const Index columns = dx.cols;
  const Index list_floats = dwte.rows + tokens.n;
  float* const memory = scratch(Scratch::rows, list_floats + SparseTree::kDepth * columns);
  auto* const head = reinterpret_cast<std::int32_t*>(memory);
  std::int32_t* const next = head + dwte.rows;
  std::fill_n(head, dwte.rows, -1);
  for (Index r = tokens.n - 1; r >= 0; --r) {
    const Index row = tokens[r] - first;
    if (row < 0 || row >= dwte.rows) continue;
    next[r] = head[row];
    head[row] = static_cast<std::int32_t>(r);
  }
  SparseTree tree(memory + list_floats, columns);
  for (Index row = 0; row < dwte.rows; ++row) {
    Index sample = -1;
    float* leaf = nullptr;
    for (Index r = head[row]; r >= 0; r = next[r]) {
      if (r / tokens_per_sample != sample) {
        sample = r / tokens_per_sample;
        leaf = tree.begin_leaf(sample);
      }
      elements_in<T>().accumulate(leaf, dx.row(r), columns);
    }
    tree.finish(dwte.row(row));
  }
}

template <class T>
void position_backward(Lane lane, InMat<T> dx, Index tokens_per_sample, Mat<float> dwpe) {
  check_samples(dx.rows, tokens_per_sample);
  SEEKSIM_CHECK_EQ(dx.cols, dwpe.cols);
  SEEKSIM_CHECK(tokens_per_sample <= dwpe.rows, "%lld tokens a sample, %lld positions",
                static_cast<long long>(tokens_per_sample), static_cast<long long>(dwpe.rows));
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().position_backward(lane, dx, tokens_per_sample, dwpe);
  SparseTree tree(scratch(Scratch::rows, SparseTree::kDepth * dx.cols), dx.cols);
  for (Index t = 0; t < dwpe.rows; ++t) {
    for (Index r = t; t < tokens_per_sample && r < dx.rows; r += tokens_per_sample) {
      float* const leaf = tree.begin_leaf(r / tokens_per_sample);
      elements_in<T>().accumulate(leaf, dx.row(r), dx.cols);
    }
    tree.finish(dwpe.row(t));
  }
}

template void embedding_forward<float>(Lane, Vec<const std::int32_t>, Index, InMat<float>, InMat<float>, OutMat<float>);
template void embedding_forward<bf16>(Lane, Vec<const std::int32_t>, Index, InMat<bf16>, InMat<bf16>, OutMat<bf16>);
template void embedding_forward<fp16>(Lane, Vec<const std::int32_t>, Index, InMat<fp16>, InMat<fp16>, OutMat<fp16>);
template void embedding_forward_slice<float>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<float>,
                                             InMat<float>, OutMat<float>);
template void embedding_backward_slice<float>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<float>,
                                              Mat<float>);
template void embedding_backward<float>(Lane, Vec<const std::int32_t>, Index, InMat<float>, Mat<float>);
template void embedding_forward_slice<bf16>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<bf16>,
                                            InMat<bf16>, OutMat<bf16>);
template void embedding_backward_slice<bf16>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<bf16>,
                                             Mat<float>);
template void embedding_backward<bf16>(Lane, Vec<const std::int32_t>, Index, InMat<bf16>, Mat<float>);
template void embedding_forward_slice<fp16>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<fp16>,
                                            InMat<fp16>, OutMat<fp16>);
template void embedding_backward_slice<fp16>(Lane, Vec<const std::int32_t>, Index, Index, Index, InMat<fp16>,
                                             Mat<float>);
template void embedding_backward<fp16>(Lane, Vec<const std::int32_t>, Index, InMat<fp16>, Mat<float>);
template void position_backward<float>(Lane, InMat<float>, Index, Mat<float>);
template void position_backward<bf16>(Lane, InMat<bf16>, Index, Mat<float>);
template void position_backward<fp16>(Lane, InMat<fp16>, Index, Mat<float>);

}  // namespace seeksim::kernels
