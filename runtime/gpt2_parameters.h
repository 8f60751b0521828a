// The parameters of a GPT-2 as one flat fp32 space: names, shapes, places, slabs. Storage is canonical, so that
// whatever tensor parallelism may split lies in contiguous rows: a column-parallel weight is stored (out, in), a
// row-parallel one (in, out), and the rows of c_attn go head by head, [q | k | v] each. Hugging Face's layouts are made
// in weights.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/view.h"
#include "runtime/buffer.h"
#include "runtime/plan.h"

namespace seeksim::runtime {

enum class Init : std::uint8_t { normal, residual, zeros, ones };

// How Hugging Face's tensor differs from ours.
enum class HfLayout : std::uint8_t { same, transposed, qkv_transposed, qkv };

struct ParameterInfo {
  const char* name = "";     // Hugging Face's, without "transformer."; outlives every run
  std::vector<Index> shape;  // as stored here
  Index offset = 0;          // in the flat space
  Index size = 0;
  Index slab = 0;  // elements of a slab; `size` where tensor parallelism cannot split. Norm blocks restart at each slab
  bool decays = false;
  Init init = Init::zeros;
  HfLayout layout = HfLayout::same;

  Index rows() const { return shape[0]; }
  Index cols() const { return shape.size() > 1 ? shape[1] : 1; }
  Index slab_rows() const { return slab / cols(); }
};

// The parts of a layer in registration order.
enum class LayerPart : std::uint8_t {
  ln_1_weight,
  ln_1_bias,
  c_attn_weight,
  c_attn_bias,
  c_proj_weight,
  c_proj_bias,
  ln_2_weight,
  ln_2_bias,
  c_fc_weight,
  c_fc_bias,
  mlp_proj_weight,
  mlp_proj_bias,
  count_
};

// Sizes of a model, in the letters that shapes use: V vocabulary, T context, C width, H heads, D head size, F = 4C.
struct Gpt2Shape {
  explicit Gpt2Shape(const ModelPlan& plan);
  Index V, T, C, H, D, F;
  int L;
  // K-segments of sums over a dimension that tensor parallelism splits: the rows of one slab.
  Index vocab_segment() const { return kernels::slab_size(V); }
  Index heads_segment() const { return kernels::slab_size(H) * D; }
  Index qkv_segment() const { return kernels::slab_size(H) * 3 * D; }
  Index mlp_segment() const { return kernels::slab_size(F); }
};

class Gpt2Parameters {
 public:
  // decay_all: weight decay on every tensor, as DeepSpeed's groups do; else on matrices only.
  Gpt2Parameters(const ModelPlan& plan, bool decay_all);

  const std::vector<ParameterInfo>& all() const { return all_; }
  const ParameterInfo& wte() const { return all_[0]; }
  const ParameterInfo& wpe() const { return all_[1]; }
  const ParameterInfo& layer(int l, LayerPart part) const { return all_[2 + l * int(LayerPart::count_) + int(part)]; }
  const ParameterInfo& ln_f_weight() const { return all_[2 + layers_ * int(LayerPart::count_)]; }
  const ParameterInfo& ln_f_bias() const { return all_[3 + layers_ * int(LayerPart::count_)]; }
  const ParameterInfo& head() const { return tied_ ? wte() : all_.back(); }  // (V, C)
  bool tied() const { return tied_; }
  Index size() const { return size_; }  // elements of the flat space

  // Gradients take the same space, then, where wte has two uses, the head's share of its gradient; last the loss, which
  // is summed over samples exactly as gradients are and so travels with them.
  Index head_gradient_offset() const { return tied_ ? size_ : all_.back().offset; }
  Index loss_offset() const { return size_ + (tied_ ? wte().size : 0); }
  Index gradient_size() const { return loss_offset() + 1; }

 private:
  void add(const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout, bool decay_all);

  std::vector<ParameterInfo> all_;
  int layers_ = 0;
  bool tied_ = true;
  Index size_ = 0;
};

// Draws a parameter's initial value, elements from `first` on: a pure function of (seed, number in registration order,
// element).
void draw_parameter(const ModelPlan& plan, std::uint64_t seed, Init init, std::uint32_t number, kernels::Vec<float> out,
                    Index first = 0);

template <class T>
VecView<T> vector_of(Buffer& flat, const ParameterInfo& p) {
  return {&flat, p.offset, p.size};
}
template <class T>
MatView<T> matrix_of(Buffer& flat, const ParameterInfo& p) {
  return {&flat, p.offset, p.rows(), p.cols(), p.cols()};
}

}  // namespace seeksim::runtime
