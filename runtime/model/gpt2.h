// GPT-2 and Llama, forward and backward, over one micro-batch: pre-norm blocks, tied or untied head. It enqueues
// kernels and decides nothing: which samples, which weights and where the gradients go come from the caller.
//
// The families differ in few places. GPT-2: layer norms, biases, learned positions, gelu. Llama: RMS norms, rotary
// positions, SwiGLU, key heads shared by groups of query heads. What a family lacks it has no parameter for. A Llama
// may have several experts in place of an mlp, of which a token goes to k (gpt2_experts.cpp); there the mlp's rows are
// slots, k of them a token. Beside them may be a shared expert, an mlp of its own. Where the experts are divided among
// ranks, they are the rows that arrive at this rank's (gpt2_expert_group.cpp). Where ranks share a sample's tokens,
// each has rows of its own, but while it attends (gpt2_context.cpp).
//
// Activations lie in slots. A layer whose activations are kept has one of its own; the layers of recomputed segments
// (segments.h) share theirs with all micro-batches in flight, and only the residual stream into a recomputed segment is
// kept (activation_store.h).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/check.h"
#include "kernels/experts.h"
#include "kernels/gemm.h"
#include "runtime/comm/expert_group.h"
#include "runtime/layout/segments.h"
#include "runtime/model/activation_store.h"
#include "runtime/model/dropout.h"
#include "runtime/model/gpt2_stores.h"
#include "runtime/model/model.h"
#include "runtime/model/packing.h"
#include "runtime/numbers/fp8_products.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"

namespace seeksim::runtime {

// S: the type in which parameters and activations are held.
template <class S>
class Gpt2 final : public Model {
 public:
  // Allocates the activations of `samples_max` samples; smaller micro-batches use their front. workspace: made by the
  // first of those that share it. tensor: null where the parameters are those of one way. group: null where every
  // expert is here.
  Gpt2(Device& device, const TrainPlan& plan, const Parameters& parameters, std::size_t piece, Index samples_max,
       std::shared_ptr<Gpt2Workspace> workspace, TensorAxis* tensor, ExpertGroup* group, ContextGroup* context);

  VecView<std::int32_t> inputs(Index samples) const override {
    return {ids_.inputs.get(), 0, piece_.embeds ? samples * s_.T : 0};
  }
  VecView<std::int32_t> targets(Index samples) const override {
    return {ids_.targets.get(), 0, piece_.heads ? samples * s_.T : 0};
  }

  VecView<const float> sample_losses(Index samples) const override {
    return vec<const float>(*head_.sample_losses, 0, samples);
  }
  AnyVec arriving(Index samples) override { return flat(residual(samples, piece_.first)); }
  AnyVec leaving(Index samples) override { return flat(residual(samples, piece_.end)); }
  VecView<float> arriving_losses(Index samples) override { return router_losses(samples, piece_.first); }
  VecView<float> leaving_losses(Index samples) override {
    return router_losses(samples, piece_.heads ? 0 : piece_.end);
  }
  AnyVec gradient_in(Index samples) override { return flat(dx(samples, piece_.end)); }
  AnyVec gradient_out(Index samples) override { return flat(dx(samples, piece_.first)); }

  void forward(Launcher& launch, Weights& weights, const Batch& batch) override;
  void loss(Launcher& launch, Index samples, float scale) override;
  void backward(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                std::span<const GradientBlock> blocks, GradientSink& sink) override;
  void backward_input(Launcher& launch, Weights& weights, const Batch& batch) override;
  void backward_weight(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                       std::span<const GradientBlock> blocks, GradientSink& sink) override;

 private:
  // One stretch of a pass: what every line of it needs.
  struct Pass {
    Launcher& launch;
    Weights& weights;
    const Batch& batch;
    std::span<const GradientBlock> blocks;
    GradientSink* sink;  // null: gradients of parameters come later
  };

  MatView<S> act(const BufferPtr& buffer, Index samples, Index cols, int slot = 0) const {
    SEEKSIM_CHECK(samples <= samples_max_, "%lld samples", static_cast<long long>(samples));
    return mat<S>(*buffer, slot * samples_max_ * way_.rows * cols, samples * way_.rows, cols);
  }
  // Rows of all tokens while this rank attends.
  MatView<S> attended(const BufferPtr& buffer, Index samples, Index cols, int slot = 0) const {
    return mat<S>(*buffer, slot * samples_max_ * s_.T * cols, samples * s_.T, cols);
  }
  // Rows of the mlp.
  Index inside_rows(Index samples) const { return group_ != nullptr ? group_->arrived() : samples * way_.rows * s_.k; }
  Index inside_rows_max() const { return group_ != nullptr ? group_->rows_max() : samples_max_ * way_.rows * s_.k; }
  MatView<S> inside(const BufferPtr& buffer, Index samples, Index cols, int slot = 0) const {
    return mat<S>(*buffer, slot * inside_rows_max() * cols, inside_rows(samples), cols);
  }
  VecView<float> row_values(const BufferPtr& buffer, Index samples) const {
    return vec<float>(*buffer, 0, samples * way_.rows);
  }
  // Rows of the residual stream.
  MatView<S> stream(const BufferPtr& buffer, Index samples, int slot = 0) const {
    SEEKSIM_CHECK(samples <= samples_max_, "%lld samples", static_cast<long long>(samples));
    return mat<S>(*buffer, slot * samples_max_ * way_.tokens * s_.C, samples * way_.tokens, s_.C);
  }
  VecView<float> stream_values(const BufferPtr& buffer, Index samples, int slot) const {
    if (buffer == nullptr) return {};  // a family without it
    return vec<float>(*buffer, slot * samples_max_ * way_.tokens, samples * way_.tokens);
  }
  MatView<S> attention_probs(const LayerStore& kept, Index samples, int slot) const {
    const Index each = way_.H * s_.T;
    return mat<S>(*kept.probs, slot * samples_max_ * each * s_.T, samples * each, s_.T);
  }
  MatView<float> attention_stats(const LayerStore& kept, Index samples, int slot) const {
    const Index each = way_.H * way_.attending_rows(s_.T);
    return mat<float>(*kept.stats, slot * samples_max_ * each * 2, samples * each, 2);
  }
  kernels::AttentionShape attention_shape(Index samples) const {
    return {samples, s_.T, way_.H, s_.D, bug_.is(Bug::local_head_dropout) ? 0 : way_.first_head, s_.G};
  }
  // Of a batch; null: each sample is one document, or a bug takes it for one.
  const std::vector<PackedDocument>* documents(const Batch& batch, Bug bug) const {
    return bug_.is(bug) ? nullptr : batch.documents;
  }
  // Whether a product of the layer with this weight is one of casts to 8 bits; and all that such a product needs.
  bool is_fp8(const Pass& p, const ParameterInfo& w) const {
    return p.batch.fp8.plan != nullptr && fp8_linear(w, s_.L) >= 0;
  }
  Fp8Product fp8(const Pass& p, const char* site, const ParameterInfo& w) const {
    return {p.batch.fp8, work_->fp8, w, site, s_.L, s_.T, bug_};
  }
  bool splits_tokens() const { return tensor_ != nullptr && tensor_->splits_tokens(); }
  // The residual stream into layer l; out of the last one: l = L.
  MatView<S> residual(Index samples, int l) {
    const LayerSlots& slots = slots_of(l);
    if (slots.checkpoint < 0) return stream(slots.residual_shared ? work_->residual : x_, samples, slots.residual);
    return mat<S>(checkpoints_->place(slots.checkpoint), 0, samples * way_.tokens, s_.C);
  }
  static AnyVec flat(MatView<S> x) { return {x.buffer, x.offset, x.rows * x.cols, element_type<S>()}; }
  const LayerSlots& slots_of(int l) const { return slots_[std::size_t(l - piece_.first)]; }
  const LayerStore& store(int l) const { return slots_of(l).shared ? work_->layers : kept_; }
  int slot(int l) const { return slots_of(l).activations; }
  int inner_slot(int l) const { return slots_of(l).inner; }

  // Gradients of activations. Where backward is in two parts, of each layer its own; else in the workspace, one after
  // the other, and dx of all layers in one place.
  int deferred_slot(int l) const { return deferred_ ? l - piece_.first : 0; }
  MatView<S> dx(Index n, int l) const { return stream(dx_, n, deferred_slot(l)); }  // into layer l
  MatView<S> dmid(Index n, int l) const {
    return stream(deferred_ ? deferred_->dmid : work_->dmid, n, deferred_slot(l));
  }
  MatView<S> dln1(Index n, int l) const {
    return stream(deferred_ ? deferred_->dln1 : work_->branch, n, deferred_slot(l));
  }
  MatView<S> dln2(Index n, int l) const {
    return stream(deferred_ ? deferred_->dln2 : work_->branch, n, deferred_slot(l));
  }
  MatView<S> dqkv(Index n, int l) const {
    return act(deferred_ ? deferred_->dqkv : work_->dqkv, n, way_.Q, deferred_slot(l));
  }
  MatView<S> dfc(Index n, int l) const {
    return inside(deferred_ ? deferred_->dfc : work_->dfc, n, way_.U, deferred_slot(l));
  }
  MatView<S> dmlp(Index n, int l) const {  // the same of a layer without experts
    return act(deferred_ ? deferred_->dfc : work_->dfc, n, way_.dense.U, deferred_slot(l));
  }
  // Of layers with experts: of what comes out of each slot's expert; of the router's logits.
  MatView<S> dslots(Index n, int l) const {
    return inside(deferred_ ? deferred_->dslots : work_->experts.rows, n, s_.C, deferred_slot(l));
  }
  MatView<S> dlogits(Index n, int l) const {
    return act(deferred_ ? deferred_->dlogits : work_->experts.dlogits, n, s_.E, deferred_slot(l));
  }
  MatView<S> dlnf(Index n) const { return stream(deferred_ ? deferred_->dlnf : work_->branch, n); }
  // Where the gradient of a branch is when values of it were dropped: in a buffer whose time is yet to come; or over:
  // norm_backward has read dx, and writes it again at the end.
  MatView<S> dropped_mlp(Index n, int l) const {
    return deferred_ ? stream(deferred_->dropped_mlp, n, deferred_slot(l)) : dln2(n, l);
  }
  MatView<S> dropped_att(Index n, int l) const {
    return deferred_ ? stream(deferred_->dropped_att, n, deferred_slot(l)) : dx(n, l);
  }
  // The gradient of what a branch adds to the residual stream, after dropout's backward.
  MatView<S> dmlp_branch(Index n, int l) const { return drop_.residual.on() ? dropped_mlp(n, l) : dx(n, l + 1); }
  MatView<S> datt_branch(Index n, int l) const { return drop_.residual.on() ? dropped_att(n, l) : dmid(n, l); }
  Index checkpoint_elements(Index samples) const { return samples * way_.tokens * s_.C; }
  MatView<const S> weight(const Pass& p, const ParameterInfo& info) const {
    const VecView<const S> w = vector(p, info);
    return {w.buffer, w.offset, info.rows(), info.cols(), info.cols()};
  }
  VecView<const S> vector(const Pass& p, const ParameterInfo& info) const {
    return p.weights.of(info).template as<const S>();
  }

  // One mlp that every token passes: of a layer without experts, or beside experts.
  struct Mlp {
    const ParameterInfo &up, &down;
    MatView<S> fc, active;  // (R, U), (R, F)
    MlpShape whole;         // of all ways
  };
  Mlp mlp(Index samples, int l) const;
  Mlp shared_mlp(Index samples, int l) const;
  MatView<S> d_active(Index samples, const Mlp& m) const { return act(work_->dgelu, samples, m.active.cols); }
  // Layers with experts of this piece.
  int first_routed() const { return std::max(piece_.first, s_.first_routed); }

  void lay_out_slots(Device& device, const TrainPlan& plan);
  void make_ids(Device& device);
  LayerStore make_layers(Device& device, const StoreSlots& slots) const;
  void make_workspace(Device& device, bool defers) const;
  Gpt2Deferred make_deferred(Device& device) const;
  BufferPtr stored(Device& device, const char* name, Index n) const;  // n elements of S
  BufferPtr floats(Device& device, const char* name, Index n) const;
  // Around the launches that write the residual stream into layer l.
  void residual_begins(const Pass& p, int l);
  void residual_ends(const Pass& p, int l);
  void keep_angles(Device& device, double theta) const;
  void set_angles(const Pass& p);
  void embed(const Pass& p);
  void head_forward(const Pass& p);
  void layer_forward(const Pass& p, int l);  // all that backward looks at
  void layer_output(const Pass& p, int l);   // what the next layer needs
  void recompute(const Pass& p, const Segment& segment);
  // y = norm of x, with what its backward needs.
  void norm(const Pass& p, const char* site, const ParameterInfo& gamma, const ParameterInfo* beta, MatView<const S> x,
            MatView<S> y, VecView<float> mean, VecView<float> rstd);
  // dx = gradient of norm's x; + residual where it has one.
  void norm_backward(const Pass& p, const char* site, const ParameterInfo& gamma, MatView<const S> dy,
                     MatView<const S> x, VecView<const float> mean, VecView<const float> rstd,
                     MatView<const S> residual, MatView<S> dx);
  // y (R, N) = x (R, K) w^T + bias where there is one.
  void column_product(const Pass& p, const char* site, const ParameterInfo& w, const ParameterInfo* bias,
                      MatView<const S> x, MatView<S> y);
  void rotate(const Pass& p, bool backward, MatView<S> qkv);
  void activate(const Pass& p, MatView<const S> fc, MatView<S> y, Index slab);
  void activate_backward(const Pass& p, MatView<const S> dy, MatView<const S> fc, MatView<S> dfc, Index slab);

  MatView<S> raw_logits(Index samples) const {
    return act(parameters_.logit_scale() != nullptr ? head_.raw_logits : head_.logits, samples, way_.V);
  }
  void scale_logits(const Pass& p);
  MatView<const S> all_rows(const Pass& p, const char* tensor, const char* site, MatView<const S> rows);
  void row_product(const Pass& p, const char* site, const ParameterInfo& w, MatView<const S> a,
                   const ParameterInfo* bias, Index segment, MatView<S> out);
  // out (R, in) = d w^T, of a layer whose rows are split: d (R, C) is the gradient of its output.
  void row_product_backward(const Pass& p, const char* site, const ParameterInfo& w, MatView<const S> d,
                            MatView<S> out);
  MatView<S> dropped_rows(const Pass& p, const char* site, const kernels::Dropout& rate, DropoutSite place, int layer,
                          MatView<S> x, MatView<S> y);
  void input_backward(const Pass& p);
  void parameter_grads(const Pass& p);  // all of the piece, later
  void head_backward(const Pass& p);
  void segment_backward(const Pass& p, const Segment& segment);
  void segment_grads(const Pass& p, const Segment& segment);
  // Gradients of parameters, from what the passes above left: at once, or later.
  void head_grads(const Pass& p);
  void head_norm_grad(const Pass& p);
  void mlp_proj_grads(const Pass& p, int l, MatView<const S> dbranch);
  void mlp_up_grads(const Pass& p, int l);
  void mlp_norm_grad(const Pass& p, int l);
  void attention_proj_grads(const Pass& p, int l, MatView<const S> dbranch);
  void attention_qkv_grads(const Pass& p, int l);
  void attention_norm_grad(const Pass& p, int l);
  void embedding_grads(const Pass& p);
  void position_grads(const Pass& p, const ParameterInfo& wpe, MatView<const S> d);
  void packed_position_grads(const Pass& p, const ParameterInfo& wpe, std::int32_t separator,
                             const GradientBlock& block, MatView<const S> rows, MatView<float> sums);
  void logit_scale_dots(const Pass& p);
  void logit_scale_grad(const Pass& p);
  void mlp_backward(const Pass& p, int l);
  void inside_mlp_backward(const Pass& p, int l, MatView<const S> dbranch, MatView<S> dln);
  // What comes out of the heads, and the gradient of what goes into them, of all tokens; of documents apart.
  void attend(const Pass& p, int l, MatView<S> att);
  void attend(const Pass& p, int l, MatView<S> all, const AttentionPart& part);
  void attend_backward(const Pass& p, int l, MatView<const S> datt, MatView<S> din);
  void attend_backward(const Pass& p, int l, MatView<const S> all, MatView<S> all_in, const AttentionPart& part);
  void attention_backward(const Pass& p, int l);
  // In place of the mlp.
  RouteStore make_routes(Device& device, Index slots) const;
  ExpertWork make_expert_work(Device& device, bool defers) const;
  ArrivalStore make_arrivals(Device& device, Index slots) const;
  GroupWork make_group_work(Device& device) const;
  kernels::Router router_of(Index samples) const;
  RouteViews routes(Index samples, int l) const;
  // x (R, C): rows of all tokens.
  void route(const Pass& p, int l, MatView<const S> x);
  void experts_up(const Pass& p, int l, MatView<const S> x);
  void experts_down(const Pass& p, int l, MatView<S> branch);
  void expert_product(const Pass& p, const char* site, const ParameterInfo& w, VecView<const std::int32_t> slots,
                      MatView<const S> x, kernels::RowOf of, kernels::Trans tw, Index segment, MatView<S> y);
  // y = x (rows of slots) times w, whose rows ways have split: each has a node of the sum. of_token: slots of a token,
  // of whose sums y has those of this way's tokens; 0: rows are no tokens', and y has all. gates: of a planted bug.
  void row_expert_product(const Pass& p, const char* site, const ParameterInfo& w, VecView<const std::int32_t> slots,
                          MatView<const S> x, Index segment, Index of_token, MatView<S> y,
                          VecView<const float> gates = {});
  OwnSlots own_slots(Index samples) const;
  // Rows of all slots, or the front where those of own ones lie one after the other.
  MatView<S> own_rows(MatView<S> all, Index samples) const {
    const OwnSlots own = own_slots(samples);
    return own.apart ? all.row_range(0, own.count * own.size) : all;
  }
  void shift_experts(const Pass& p, const ParameterInfo& w, VecView<float> dw);
  // Gradients of gates go here, of this way's slabs; then they are added up over ways.
  VecView<float> gate_nodes(VecView<float> dgates) const {
    return tensor_ != nullptr ? tensor_->own_values(dgates.n) : dgates;
  }
  void sum_gate_nodes(const Pass& p, VecView<float> dgates);
  Index gate_segment() const { return experts_.plan.slabs ? s_.mlp_segment() : 0; }
  void expert_grad(const Pass& p, const ParameterInfo& w, VecView<const std::int32_t> slots, MatView<const S> a,
                   MatView<const S> b, kernels::RowOf b_of);
  void experts_down_grad(const Pass& p, int l);
  void experts_up_grad(const Pass& p, int l, MatView<const S> x);  // x: rows of tokens, all of them; also below
  void router_grad(const Pass& p, int l, MatView<const S> x);
  VecView<float> router_losses(Index samples, int end) const;  // of the layers before it, where they travel
  float router_loss_scale(const Pass& p) const;
  void route_backward(const Pass& p, int l);
  MatView<const S> all_experts_backward(const Pass& p, int l, MatView<const S> dbranch);  // rows of all tokens
  void experts_backward(const Pass& p, int l, MatView<const S> dbranch, MatView<S> dln);
  // Beside the experts.
  void shared_up(const Pass& p, int l, MatView<const S> x);
  void shared_down(const Pass& p, int l, MatView<S> branch);
  void shared_backward(const Pass& p, int l, MatView<const S> dbranch);
  void add_shared(const Pass& p, const char* site, MatView<S> sum);
  // Where the experts are divided among ranks: all between the router and the sum of a token's experts.
  struct ArrivalViews {
    VecView<std::int32_t> sources, experts;
    MatView<S> rows;
  };
  ArrivalViews arrivals(int l) const;
  MatView<S> packed() const { return mat<S>(*work_->group.packed, 0, group_->packed(), s_.C); }
  MatView<S> slot_rows(Index samples) const { return mat<S>(*work_->group.slots, 0, samples * s_.T * s_.k, s_.C); }
  void pack(const Pass& p, const char* site, VecView<const std::int32_t> sources, MatView<const S> x,
            kernels::RowOf of);
  void unpack(const Pass& p, const char* site, VecView<const std::int32_t> sources, Index samples);
  void group_up(const Pass& p, int l, MatView<const S> x);
  void group_down(const Pass& p, int l);
  void send_gradients(const Pass& p, int l, MatView<const S> dbranch);
  void group_backward(const Pass& p, int l, MatView<const S> dbranch);
  void arrived_grad(const Pass& p, const ParameterInfo& w, VecView<const std::int32_t> experts, MatView<const S> a,
                    MatView<const S> b);
  void gates_back(const Pass& p, VecView<const std::int32_t> sources, Index samples);
  void leave_out_losses(Launcher& launch, Index samples);
  void add_router_losses(Launcher& launch, Index samples);
  void loss_nodes(const Pass& p, float scale);
  // A stretch of a pass's rows, in the residual stream: so many tokens of each sample, the first of them that one.
  struct Chunk {
    Index first_row = 0, rows = 0;
    Index tokens = 0, first_token = 0;
  };
  // Tokens of a segment inside a chunk; 0: blocks are whole samples.
  Index chunk_segment() const { return way_.context != nullptr ? kernels::slab_size(s_.T) : 0; }
  int chunk_count() const { return way_.context != nullptr ? way_.context->cut().chunks_of_rank() : 1; }
  Chunk chunk(Index samples, int i) const;
  Index first_token(int i, bool miscounts) const;
  // In a context group: ids of its own tokens, from those of all; the losses of all tokens; attention.
  void take_own_ids(const Pass& p);
  VecView<const std::int32_t> ids_here(Index samples, bool targets) const;
  VecView<const float> losses_of_all(Launcher& launch, Index samples);
  void attend_in_group(const Pass& p, int l, MatView<const S> qkv, MatView<S> att);
  void attend_backward_in_group(const Pass& p, int l, MatView<const S> datt, MatView<S> din);

  int head_module() const { return s_.L + 1; }
  int dropout_layer(int l) const {
    if (bug_.mutant == Mutant::dropout_layers_alike) return 0;
    return bug_.is(Bug::local_layer_number) ? l - piece_.first : l;
  }
  // Mutants between queries and what comes out of the heads; nothing without one. back: of gradients.
  void mutate_heads(const Pass& p, bool back, MatView<S> heads) const;
  void mutate_queries(const Pass& p, bool back, MatView<S> qkv) const;
  // null where the family has none.
  const ParameterInfo* positions() const { return parameters_.find(0, int(EmbeddingPart::positions)); }
  const ParameterInfo* bias(int l, LayerPart part) const { return parameters_.find(l + 1, int(part)); }
  const ParameterInfo& norm_weight() const { return parameters_.at(head_module(), HeadPart::norm_weight); }
  const ParameterInfo* norm_bias() const { return parameters_.find(head_module(), int(HeadPart::norm_bias)); }

  // Frozen parameters have no gradient: what follows launches nothing for them.
  // dW and db of a linear layer whose input is x and whose output's gradient is dy, for each block. `column`: stored
  // (out, in), dW = dy^T x; else stored (in, out), dW = x^T dy.
  void linear_grad(const Pass& p, const ParameterInfo& w, const ParameterInfo* bias, bool column, MatView<const S> x,
                   MatView<const S> dy, Index weight_offset);
  // dW alone, from x of all tokens.
  void weight_grad(const Pass& p, const ParameterInfo& w, bool column, MatView<const S> x, MatView<const S> dy,
                   Index weight_offset);
  template <class D>
  void bias_grad(const Pass& p, const ParameterInfo& bias, MatView<const D> dy);
  void norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo* beta, MatView<const S> dy,
                 MatView<const S> x, VecView<const float> mean, VecView<const float> rstd);
  void layer_norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo& beta, MatView<const S> dy,
                       MatView<const S> x, VecView<const float> mean, VecView<const float> rstd);
  void sample_grads(const Pass& p, const ParameterInfo& gamma, bool has_beta, MatView<const S> dy, MatView<const S> x,
                    VecView<const float> mean, VecView<const float> rstd, VecView<float> own);
  // norm_grad where ways have tokens of their own.
  void norm_grad_of_ways(const Pass& p, const ParameterInfo& gamma, const ParameterInfo* beta, MatView<const S> dy,
                         MatView<const S> x, VecView<const float> mean, VecView<const float> rstd);

  ModelShape s_;
  const bool llama_, fused_;
  TensorAxis* tensor_;  // null: one way
  ExpertGroup* group_;  // null: every expert is here
  Gpt2Way way_;
  const Parameters& parameters_;
  const ModelPiece piece_;
  float eps_;
  Index samples_max_;
  int stages_;
  struct Dropouts {
    kernels::Dropout embedding, attention, residual;
  } drop_;  // rates
  PlantedBug bug_;
  struct Experts {
    ExpertsPlan plan;
    bool travel = false;   // losses of the routers go from stage to stage, to the head
    int first = 0;         // layer of the first ones
    BufferPtr losses;      // (layers with experts, R)  in fp32; where they travel, of all up to the end of the piece
    float loss_scale = 0;  // of the micro-batch whose loss was computed last
  } experts_;
  std::vector<Segment> segments_;
  std::vector<LayerSlots> slots_;  // of each layer, and of what comes out of the last
  struct SlotCounts {
    int residual = 0;          // in x_
    StoreSlots layers;         // in kept_
    int shared_residual = 0;   // in the workspace
    StoreSlots shared_layers;  // there too
  } count_;
  std::shared_ptr<Gpt2Workspace> work_;
  std::optional<CheckpointStore> checkpoints_;  // where a segment is recomputed
  // R = samples_max * T rows, Rs in the residual stream. Kept for backward:
  struct Ids {
    BufferPtr inputs, targets;          // (Rt)
    BufferPtr own_inputs, own_targets;  // (R)  of a context group
  } ids_;
  BufferPtr x_;      // (count_.residual, Rs, C)  residual stream
  LayerStore kept_;  // of layers that are not computed again
  struct HeadStore {
    BufferPtr norm, mean, rstd;             // (Rs, C), (Rs), (Rs)
    BufferPtr logits;                       // (R, V)  then their gradient
    BufferPtr raw_logits, logit_dots;       // (R, V), (R)  where a parameter scales the logits: before it, and their
                                            // dot products with the gradient
    BufferPtr token_losses, sample_losses;  // (R), (samples)
    std::vector<TokenRows> without_loss;    // of the micro-batch that went forward last
  } head_;
  BufferPtr dx_;                          // (Rs, C)  gradient of the residual stream; deferred: (layers + 1, Rs, C)
  std::optional<Gpt2Deferred> deferred_;  // where backward is in two parts
};

}  // namespace seeksim::runtime
