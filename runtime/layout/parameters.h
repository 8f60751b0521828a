// The parameters of a rank as one flat space: names, shapes, places, slabs. A family of models lists what a whole model
// has (`whole_model`). A rank holds the part of its pipeline stage, and its way's slabs of the parameters that tensor
// parallelism splits. Storage is canonical: a way's part is contiguous rows, so a local parameter is one range of the
// whole one. Trained parameters come first and frozen ones behind them, so gradients and optimizer state are the front
// of the same space. A parameter's number in the whole model names its random stream and its place in norms and
// digests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/view.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/parallel_plan.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

enum class Init : std::uint8_t { normal, residual, zeros, ones };

// How Hugging Face's tensor differs from ours.
enum class HfLayout : std::uint8_t {
  same,
  transposed,
  qkv_transposed,
  qkv,
  grouped_qkv,
  gate_up,
  experts_gate_up,
  experts_down
};

// Rows [first, first + count) of a parameter.
struct Rows {
  Index first = 0;
  Index count = 0;
};
// A matrix of a hidden layer, as Hugging Face's files have it (matrices.h): its rows here, which may lie apart.
struct Matrix {
  std::vector<Rows> rows = {};
  double outputs_per_input = 1;  // the layer's
  Index count() const {
    Index all = 0;
    for (const Rows& r : rows) all += r.count;
    return all;
  }
};

struct ParameterInfo {
  const char* name = "";     // Hugging Face's, without its model prefix; outlives every run
  std::vector<Index> shape;  // as stored here
  Index offset = 0;          // in the flat space
  Index size = 0;
  Index slab = 0;  // elements of a slab; the whole's size where tensor parallelism cannot split; an expert. Norm blocks
                   // restart at each slab
  bool decays = false;
  bool frozen = false;  // used, never changed: no gradient, no optimizer state
  Init init = Init::zeros;
  HfLayout layout = HfLayout::same;
  int module = 0;                // 0 the embeddings, 1..L the layers, L + 1 the last norm and the head
  int part = 0;                  // of the module: what the family calls it
  std::uint32_t number = 0;      // in the whole model, registration order
  bool splits = false;           // by tensor parallelism
  bool rows_are_inputs = false;  // a row is what an input of the layer does; else what makes an output
  std::vector<Matrix> matrices;  // where the optimizer takes matrices as wholes: those of this parameter
  bool undivided = false;        // no shard ends inside it, or inside one of its experts
  int experts = 0;               // of which it has one below the other; 0: it is no expert's
  Index first = 0;               // of the whole parameter's elements, the first that is here
  Index whole_size = 0;
  // Of experts: elements of one of them that are here, and all it has. Tensor ways have the same slabs of each.
  Index of_expert = 0, whole_expert = 0;

  Index rows() const { return shape[0]; }
  Index cols() const { return shape.size() > 1 ? shape[1] : 1; }
  Index slab_rows() const { return slab / cols(); }
  // What is here are several stretches of the whole parameter.
  bool scattered() const { return of_expert < whole_expert && size > of_expert; }
  // Elements here that lie one after the other in the whole parameter too, from each multiple of so many on.
  Index stretch() const { return scattered() ? of_expert : size; }
  // Where in the whole parameter an element is that is here.
  Index whole_place(Index here) const {
    return scattered() ? first + here / of_expert * whole_expert + here % of_expert : first + here;
  }
};

// The parts of module 0 and of module L + 1, in every family.
enum class EmbeddingPart : std::uint8_t { tokens, positions };
enum class HeadPart : std::uint8_t { norm_weight, norm_bias, head, logit_scale };

// All parameters of a model in registration order, which is part of the contract; offsets not set. decay_all: weight
// decay on every tensor, as DeepSpeed's groups do; else on matrices only.
std::vector<ParameterInfo> whole_model(const ModelPlan& plan, bool decay_all);

// Consecutive layers [first, end) of a model, with what stands before the first and behind the last one.
struct ModelPiece {
  int first = 0;
  int end = 0;
  bool embeds = true;
  bool heads = true;
  int layers() const { return end - first; }
  bool has(int module, int layers_of_model) const {
    return module == 0 ? embeds : module > layers_of_model ? heads : module > first && module <= end;
  }
  friend bool operator==(const ModelPiece&, const ModelPiece&) = default;
};

// What a rank has of a model.
struct ModelPart {
  std::vector<ModelPiece> pieces = {};  // in the order of the model; empty: one, the whole model
  int way = 0;
  int ways = 1;
  bool by_experts = false;  // the ways are the ranks of an expert group, not of tensor parallelism
  bool by_tokens = false;   // they are those of a context group: each has all parameters, and tokens of its own
  int tensor_in_group = 1;  // tensor ways of each rank of an expert group, which vary fastest
  int tensor_ways() const { return by_tokens ? 1 : by_experts ? tensor_in_group : ways; }
  int tensor_way() const { return way % tensor_ways(); }
  int expert_ranks() const { return by_experts ? ways / tensor_in_group : 1; }
  int expert_rank() const { return by_experts ? way / tensor_in_group : 0; }
  bool cuts_slabs(const ParameterInfo& p) const { return tensor_ways() > 1 && p.splits; }
  bool cuts_experts(const ParameterInfo& p) const { return by_experts && p.experts > 0; }
  // The ways have parts of their own of such a parameter; else each has all of it.
  bool cuts(const ParameterInfo& p) const { return cuts_slabs(p) || cuts_experts(p); }
  // Of the ways that have the same part of it, this is the first.
  bool is_first_with(const ParameterInfo& p) const {
    return by_tokens ? way == 0 : (cuts_slabs(p) || tensor_way() == 0) && (cuts_experts(p) || expert_rank() == 0);
  }
  // norm^2 of how many parts of it a way measures apart: of each expert, where its slabs are on several ways.
  Index norm_parts(const ParameterInfo& p) const { return cuts_slabs(p) && p.experts > 0 ? p.size / p.of_expert : 1; }
};
// The part of a stage and a way. Throws std::invalid_argument where the plan's layers are not the model's.
ModelPart model_part(const ModelPlan& model, const ParallelPlan& parallel, int stage, int way);
// Why this model cannot be cut like that; empty: it can.
std::string problem(const ModelPlan& model, const ParallelPlan& parallel);

// Elements of a whole parameter that a way has: its slabs, its experts, or all.
ShardInfo range_of_way(const ParameterInfo& whole, const ModelPart& part);
// Of each expert, where it has some: the way's slabs, or all.
ShardInfo range_in_expert(const ParameterInfo& whole, const ModelPart& part);

class PlacementRule;  // placement_rule.h

class Parameters {
 public:
  Parameters(const ModelPlan& plan, bool decay_all, ModelPart part = {});
  // With what the optimizer asks of the layout: matrices, and that no shard ends inside them.
  Parameters(const ModelPlan& plan, const OptimizerPlan& optimizer, ModelPart part = {});
  Parameters(const Parameters&) = delete;  // others point into it
  Parameters& operator=(const Parameters&) = delete;

  const std::vector<ParameterInfo>& all() const { return all_; }  // of the pieces in turn, else registration order
  // In the same order, and so as they lie in the flat space: these, then those.
  const std::vector<const ParameterInfo*>& trainable() const { return trainable_; }
  const std::vector<const ParameterInfo*>& frozen() const { return frozen_; }
  int layers() const { return layers_; }       // of the whole model
  int modules() const { return layers_ + 2; }  // likewise
  const std::vector<const ParameterInfo*>& module(int m) const { return modules_[std::size_t(m)]; }  // those here
  const std::vector<ModelPiece>& pieces() const { return part_.pieces; }
  const ModelPart& part() const { return part_; }
  bool whole() const { return part_.pieces.size() == 1 && part_.ways == 1 && embeds() && heads(); }
  bool embeds() const { return part_.pieces.front().embeds; }
  bool heads() const { return part_.pieces.back().heads; }

  // null: not here, or not in a model of this family.
  const ParameterInfo* find(int module, int part) const;
  template <class Part>
  const ParameterInfo& at(int module, Part part) const {
    return checked(find(module, int(part)), module, int(part));
  }
  template <class Part>
  const ParameterInfo& layer(int l, Part part) const {
    return at(l + 1, part);
  }
  const ParameterInfo& wte() const { return at(0, EmbeddingPart::tokens); }
  const ParameterInfo& head() const { return at(layers_ + 1, HeadPart::head); }  // (V, C); of a tied model: wte
  const ParameterInfo* logit_scale() const { return find(layers_ + 1, int(HeadPart::logit_scale)); }
  bool tied() const { return tied_; }
  Index size() const { return size_; }                      // elements of the flat space
  Index trainable_size() const { return trainable_size_; }  // of its front

  // Gradients take the trainable front of the space, then, where a trainable wte has two uses here, the head's share of
  // its gradient; last the loss, which is summed over samples exactly as gradients are and so travels with them (0
  // where the head is not here).
  bool shares_head() const { return tied_ && embeds() && heads() && !wte().frozen; }  // wte is then the first of all
  // A trainable wte has its other use on another stage.
  bool shares_across_stages() const { return tied_ && embeds() != heads() && !tied_here().frozen; }
  const ParameterInfo& tied_here() const { return embeds() ? wte() : head(); }
  Index head_gradient_offset() const { return tied_ && embeds() ? trainable_size_ : head().offset; }
  Index loss_offset() const { return trainable_size_ + (shares_head() ? wte().size : 0); }
  Index gradient_size() const { return loss_offset() + 1; }
  std::size_t piece_of(Index gradient) const {  // of an element of the gradient space
    std::size_t piece = 0;
    while (piece + 1 < gradient_begins_.size() && gradient >= gradient_begins_[piece + 1]) ++piece;
    return piece;
  }
  // Where a rule of somebody's has shards end; null: they are as even as can be.
  void place_by(std::shared_ptr<const PlacementRule> rule) { placement_ = std::move(rule); }
  const PlacementRule* placement() const { return placement_.get(); }
  const ParameterInfo* numbered(std::uint32_t number) const;  // null: not here
  // Where a piece's gradients begin. They end where the next piece's begin, those of the last piece with the
  // loss.
  Index gradient_begin(std::size_t piece) const { return gradient_begins_[piece]; }
  Index gradient_end(std::size_t piece) const {
    return piece + 1 < gradient_begins_.size() ? gradient_begins_[piece + 1] : gradient_size();
  }

 private:
  const ParameterInfo& checked(const ParameterInfo* found, int module, int part) const;
  void take(const std::vector<ParameterInfo>& whole, const ModelPiece& piece);
  void cut_to_way(ParameterInfo& p) const;
  void place();
  void keep_matrices(const ModelPlan& plan);

  ModelPart part_;
  std::shared_ptr<const PlacementRule> placement_;
  std::vector<ParameterInfo> all_;
  std::vector<const ParameterInfo*> trainable_, frozen_;
  std::vector<std::vector<const ParameterInfo*>> modules_;
  std::vector<Index> gradient_begins_;
  std::vector<std::size_t> piece_of_;  // of each of all_
  int layers_ = 0;
  bool tied_ = true;
  Index size_ = 0;
  Index trainable_size_ = 0;
};

// Is `name` what `pattern` asks for? '*' stands for any characters, none included.
bool matches(std::string_view pattern, std::string_view name);
// Names of a model's parameters, whatever its sizes: all, and those that the plan freezes. Registration order.
std::vector<std::string> parameter_names(const ModelPlan& plan);
std::vector<std::string> frozen_names(const ModelPlan& plan);

// Draws a parameter's initial value, elements from `first` of the whole parameter on: a pure function of (seed, number
// in registration order, element).
void draw_parameter(kernels::Lane lane, const ModelPlan& plan, std::uint64_t seed, Init init, std::uint32_t number,
                    kernels::Vec<float> out, Index first = 0);

template <class T>
VecView<T> vector_of(Buffer& flat, const ParameterInfo& p) {
  return {&flat, p.offset, p.size};
}

}  // namespace seeksim::runtime
