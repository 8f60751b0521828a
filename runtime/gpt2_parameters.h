// The parameters of a GPT-2 as one flat fp32 space: names, shapes, places, slabs. Storage is canonical, so that
// whatever tensor parallelism may split lies in contiguous rows: a column-parallel weight is stored (out, in), a
// row-parallel one (in, out), and the rows of c_attn go head by head, [q | k | v] each. Hugging Face's layouts are made
// in weights.cpp. What is trained lies first, what is frozen behind it, so that gradients and optimizer state are the
// front of the same space; registration order, which names random streams and orders digests, does not see that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  bool frozen = false;  // used, never changed: no gradient, no optimizer state
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
  Gpt2Parameters(const Gpt2Parameters&) = delete;  // others point into it
  Gpt2Parameters& operator=(const Gpt2Parameters&) = delete;

  const std::vector<ParameterInfo>& all() const { return all_; }  // registration order
  // In registration order too, and so as they lie in the flat space: these, then those.
  const std::vector<const ParameterInfo*>& trainable() const { return trainable_; }
  const std::vector<const ParameterInfo*>& frozen() const { return frozen_; }
  const ParameterInfo& wte() const { return all_[0]; }
  const ParameterInfo& wpe() const { return all_[1]; }
  const ParameterInfo& layer(int l, LayerPart part) const { return all_[2 + l * int(LayerPart::count_) + int(part)]; }
  const ParameterInfo& ln_f_weight() const { return all_[2 + layers_ * int(LayerPart::count_)]; }
  const ParameterInfo& ln_f_bias() const { return all_[3 + layers_ * int(LayerPart::count_)]; }
  const ParameterInfo& head() const { return tied_ ? wte() : all_[4 + layers_ * int(LayerPart::count_)]; }  // (V, C)
  const ParameterInfo* logit_scale() const { return scaled_ ? &all_.back() : nullptr; }                     // (1)
  bool tied() const { return tied_; }
  Index size() const { return size_; }                      // elements of the flat space
  Index trainable_size() const { return trainable_size_; }  // of its front

  // Gradients take the trainable front of the space, then, where a trainable wte has two uses, the head's share of its
  // gradient; last the loss, which is summed over samples exactly as gradients are and so travels with them.
  bool shares_head() const { return tied_ && !wte().frozen; }  // wte is then the first of the space
  Index head_gradient_offset() const { return tied_ ? trainable_size_ : head().offset; }
  Index loss_offset() const { return trainable_size_ + (shares_head() ? wte().size : 0); }
  Index gradient_size() const { return loss_offset() + 1; }

 private:
  void add(const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout, bool decay_all);
  void place();

  std::vector<ParameterInfo> all_;
  std::vector<const ParameterInfo*> trainable_, frozen_;
  int layers_ = 0;
  bool tied_ = true;
  bool scaled_ = false;
  Index size_ = 0;
  Index trainable_size_ = 0;
};

// Is `name` what `pattern` asks for? '*' stands for any characters, none included.
bool matches(std::string_view pattern, std::string_view name);
// Of a model's parameters, whatever its sizes: all, and those that the plan freezes. Registration order.
std::vector<std::string> parameter_names(const ModelPlan& plan);
std::vector<std::string> frozen_names(const ModelPlan& plan);

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
