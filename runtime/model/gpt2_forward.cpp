// The forward pass, in the order of GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). Shapes stand beside tensors;
// R = samples * T rows.
#include <type_traits>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
#include "kernels/pointwise.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/model/mutated_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

namespace {

template <class S>
void add(Launcher& launch, const char* tensor, const char* site, MatView<const S> a, MatView<const S> b, MatView<S> y) {
  launch(
      tensor, site, memory_cost(3 * a.rows * a.cols, 1.0 / 3),
      [](Lane lane, Mat<const S> left, Mat<const S> right, Mat<S> sum) { kernels::add<S>(lane, left, right, sum); }, a,
      b, y);
}

}  // namespace

template <class S>
void Gpt2<S>::residual_begins(const Pass& p, int l) {
  if (const int k = slots_of(l).checkpoint; k >= 0) checkpoints_->before_write(p.launch, k);
}
template <class S>
void Gpt2<S>::residual_ends(const Pass& p, int l) {
  if (const int k = slots_of(l).checkpoint; k >= 0 && p.batch.trains)
    checkpoints_->written(p.launch, k, checkpoint_elements(p.batch.samples));
}

template <class S>
void Gpt2<S>::forward(Launcher& launch, Weights& weights, const Batch& batch) {
  const Pass p{launch, weights, batch, {}, nullptr};
  if (piece_.heads)
    head_.without_loss =
        bug_.is(Bug::packing_learns_boundaries) ? std::vector<TokenRows>{} : rows_without_loss(batch, s_.T);
  set_angles(p);
  if (way_.context != nullptr) take_own_ids(p);
  if (piece_.embeds) embed(p);
  for (int l = piece_.first; l < piece_.end; ++l) {
    launch.layer(l);
    weights.fetch(1 + l);
    layer_forward(p, l);
    layer_output(p, l);
    weights.release(1 + l);
  }
  launch.layer(-1);
  if (piece_.heads) head_forward(p);
}

// The rows of all tokens, from ways that have their own; else the rows themselves.
template <class S>
MatView<const S> Gpt2<S>::all_rows(const Pass& p, const char* tensor, const char* site, MatView<const S> rows) {
  if (!splits_tokens()) return rows;
  const MatView<S> all = act(work_->gathered, p.batch.samples, s_.C);
  tensor_->gather_rows<S>(p.launch, tensor, site, p.batch.samples, rows, all);
  return all;
}

// out (Rs, C) = a w + bias, where ways have split what is summed over: each has a node of the sum.
template <class S>
void Gpt2<S>::row_product(const Pass& p, const char* site, const ParameterInfo& w, MatView<const S> a,
                          const ParameterInfo* bias, Index segment, MatView<S> out) {
  if (is_fp8(p, w)) {
    const bool back = p.launch.last().phase == Phase::backward;
    const Fp8Operand<S> left{back ? Fp8Use::gradient : Fp8Use::input, Trans::no, a, true};
    const Fp8Operand<S> right{Fp8Use::weight, Trans::no, weight(p, w), !back};
    const VecView<const S> add = bias != nullptr ? vector(p, *bias) : VecView<const S>{};
    if (tensor_ == nullptr) return fp8_product<S, S>(p.launch, fp8(p, site, w), left, right, add, out, segment);
    fp8_product<S, float>(p.launch, fp8(p, site, w), left, right, {}, tensor_->node(p.batch.samples), segment);
    return tensor_->sum_nodes<S>(p.launch, w.name, site, p.batch.samples, add, out);
  }
  if (tensor_ == nullptr && bias == nullptr)
    return product<S, S>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), out, segment);
  const VecView<const S> added = bias != nullptr ? vector(p, *bias) : VecView<const S>{};
  if (tensor_ == nullptr)
    return product_bias<S>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), added, out, segment);
  product<S, float>(p.launch, w.name, site, Trans::no, Trans::no, a, weight(p, w), tensor_->node(p.batch.samples),
                    segment);
  tensor_->sum_nodes<S>(p.launch, w.name, site, p.batch.samples, added, out);
}

template <class S>
MatView<S> Gpt2<S>::dropped_rows(const Pass& p, const char* site, const kernels::Dropout& rate, DropoutSite place,
                                 int layer, MatView<S> x, MatView<S> y) {
  const kernels::Dropout drop = dropout_at(rate, place, dropout_layer(layer), p.batch);
  if (!drop.on()) return x;
  for (int i = 0; i < chunk_count(); ++i) {
    const Chunk c = chunk(p.batch.samples, i);
    dropped(p.launch, site, drop, c.tokens, x.row_range(c.first_row, c.rows), y.row_range(c.first_row, c.rows),
            first_token(i, bug_.is(Bug::context_dropout_of_chunk)));
  }
  return y;
}

// Each time, since an abort may have left anything on the device.
template <class S>
void Gpt2<S>::set_angles(const Pass& p) {
  if (!work_->angles) return;
  const AnyVec home(work_->angles_at_home.get(), 0, s_.T * s_.D, ElementType::f32);
  copy_values(p.launch, "rotary angles", SEEKSIM_SITE, home, {work_->angles.get(), 0, s_.T * s_.D, ElementType::f32});
}

template <class S>
void Gpt2<S>::embed(const Pass& p) {
  p.weights.fetch(0);
  const Index n = p.batch.samples;
  const MatView<S> x0 = residual(n, 0);  // (Rs, C)
  residual_begins(p, 0);
  const MatView<S> rows = tensor_ == nullptr ? x0 : tensor_->embedded<S>(n);  // (R, C)
  const ParameterInfo& wte = parameters_.wte();
  const bool learned = positions() != nullptr;
  const MatView<const S> places = weight(p, learned ? *positions() : wte);
  const auto take = [&](Index tokens, Index first_row, MatView<const S> at, MatView<S> out) {
    p.launch(
        wte.name, SEEKSIM_SITE, memory_cost(3 * out.rows * out.cols, 1.0 / 3),
        [T = tokens, V = s_.V, from = way_.first_vocabulary, learned](
            Lane lane, Vec<const std::int32_t> ids, Mat<const S> table, Mat<const S> positions_of, Mat<S> x) {
          kernels::embedding_forward_slice<S>(lane, ids, T, V, from, table, learned ? positions_of : Mat<const S>{}, x);
        },
        ids_here(n, false).part(first_row, out.rows), weight(p, wte), at, out);
  };
  if (way_.context == nullptr) {
    for (const AttentionPart& part :
         attention_parts(documents(p.batch, Bug::packing_positions_go_on), attention_shape(n)))
      take(part.shape.tokens, part.row, places, part.rows(rows));
  }
  for (int i = 0; way_.context != nullptr && i < chunk_count(); ++i) {
    const Chunk c = chunk(n, i);
    const Index first = learned ? first_token(i, bug_.is(Bug::context_positions_of_chunk)) : 0;
    take(c.tokens, c.first_row, learned ? places.row_range(first, c.tokens) : places,
         rows.row_range(c.first_row, c.rows));
  }
  if (tensor_ != nullptr) tensor_->select_rows<S>(p.launch, wte.name, SEEKSIM_SITE, n, reads(inputs(n)), x0);
  dropped_rows(p, SEEKSIM_SITE, drop_.embedding, DropoutSite::embedding, 0, x0, x0);
  residual_ends(p, 0);
  p.weights.release(0);
}

template <class S>
void Gpt2<S>::head_forward(const Pass& p) {
  const Index samples = p.batch.samples;
  p.weights.fetch(head_module());
  const MatView<S> normed = stream(head_.norm, samples);  // (Rs, C)
  norm(p, SEEKSIM_SITE, norm_weight(), norm_bias(), residual(samples, s_.L), normed,
       stream_values(head_.mean, samples, 0), stream_values(head_.rstd, samples, 0));
  product<S, S>(p.launch, parameters_.head().name, SEEKSIM_SITE, Trans::no, Trans::yes,
                all_rows(p, norm_weight().name, SEEKSIM_SITE, normed), weight(p, parameters_.head()),
                raw_logits(samples),
                0);  // (R, V)
  scale_logits(p);
  p.weights.release(head_module());
}

template <class S>
void Gpt2<S>::scale_logits(const Pass& p) {
  const ParameterInfo* const scale = parameters_.logit_scale();
  if (scale == nullptr) return;
  if constexpr (std::is_same_v<S, float>) {
    p.launch(
        scale->name, SEEKSIM_SITE, memory_cost(2 * p.batch.samples * way_.rows * way_.V, 0.5),
        [](Lane lane, Mat<const float> raw, Vec<const float> factor, Mat<float> logits) {
          kernels::logit_scale_forward(lane, raw, factor, logits);
        },
        reads(raw_logits(p.batch.samples)), vector(p, *scale), act(head_.logits, p.batch.samples, way_.V));
  }
}

template <class S>
void Gpt2<S>::layer_forward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const int a = slot(l);
  const LayerStore& kept = store(l);
  const MatView<S> x = residual(n, l), mid = stream(kept.mid, n, a), branch = stream(work_->branch, n);  // (Rs, C)

  const MatView<S> ln1 = stream(kept.ln1, n, a), att = act(kept.att, n, way_.A, a);
  // In a context group: until they go to their heads, in memory that backward needs later.
  const MatView<S> qkv = way_.by_heads() ? act(work_->dqkv, n, way_.Q) : act(kept.qkv, n, way_.Q, a);
  norm(p, SEEKSIM_SITE, w(LayerPart::ln_1_weight), bias(l, LayerPart::ln_1_bias), x, ln1,
       stream_values(kept.mean1, n, a), stream_values(kept.rstd1, n, a));
  column_product(p, SEEKSIM_SITE, w(LayerPart::c_attn_weight), bias(l, LayerPart::c_attn_bias),
                 all_rows(p, w(LayerPart::ln_1_weight).name, SEEKSIM_SITE, ln1), qkv);  // (R, Q)
  rotate(p, false, qkv);
  mutate_queries(p, false, qkv);
  if (way_.context != nullptr)
    attend_in_group(p, l, reads(qkv), att);
  else
    attend(p, l, att);
  mutate_heads(p, true, att);
  row_product(p, SEEKSIM_SITE, w(LayerPart::c_proj_weight), att, bias(l, LayerPart::c_proj_bias), s_.heads_segment(),
              branch);
  dropped_rows(p, SEEKSIM_SITE, drop_.residual, DropoutSite::attention_branch, l, branch, branch);
  add<S>(p.launch, "residual", SEEKSIM_SITE, x, branch, mid);

  const MatView<S> ln2 = stream(kept.ln2, n, a);
  norm(p, SEEKSIM_SITE, w(LayerPart::ln_2_weight), bias(l, LayerPart::ln_2_bias), mid, ln2,
       stream_values(kept.mean2, n, a), stream_values(kept.rstd2, n, a));
  if (s_.routed(l)) {
    const MatView<const S> rows = all_rows(p, w(LayerPart::ln_2_weight).name, SEEKSIM_SITE, ln2);
    route(p, l, rows);
    experts_up(p, l, rows);
    shared_up(p, l, rows);
  } else {
    column_product(p, SEEKSIM_SITE, w(LayerPart::c_fc_weight), bias(l, LayerPart::c_fc_bias),
                   all_rows(p, w(LayerPart::ln_2_weight).name, SEEKSIM_SITE, ln2), mlp(n, l).fc);  // (R, U)
  }
  if (l == piece_.first && bug_.is(Bug::activation_never_written, p.launch.last().rank)) return;
  if (!s_.routed(l)) {
    const Mlp m = mlp(n, l);
    return activate(p, m.fc, m.active, m.whole.segment());
  }
  const ForTheGroup here(p.launch, group_);
  activate(p, inside(kept.fc, n, way_.U, inner_slot(l)), inside(kept.gelu, n, way_.F, inner_slot(l)), s_.mlp_segment());
}

// Where a layer's mlp is: in a model with experts, of layers without them.
template <class S>
typename Gpt2<S>::Mlp Gpt2<S>::mlp(Index n, int l) const {
  const LayerStore& kept = store(l);
  const auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const BufferPtr &fc = s_.E > 0 ? kept.dense.fc : kept.fc, &gelu = s_.E > 0 ? kept.dense.gelu : kept.gelu;
  return {w(LayerPart::c_fc_weight), w(LayerPart::mlp_proj_weight), act(fc, n, way_.dense.U, inner_slot(l)),
          act(gelu, n, way_.dense.F, inner_slot(l)), s_.dense};
}

template <class S>
void Gpt2<S>::norm(const Pass& p, const char* site, const ParameterInfo& gamma, const ParameterInfo* beta,
                   MatView<const S> x, MatView<S> y, VecView<float> mean, VecView<float> rstd) {
  const Cost cost = memory_cost(2 * x.rows * x.cols, 5);
  if (beta == nullptr) {
    p.launch(
        gamma.name, site, cost,
        [eps = eps_](Lane lane, Mat<const S> in, Vec<const S> g, Mat<S> out, Vec<float> r) {
          kernels::rms_norm_forward<S>(lane, in, g, eps, out, r);
        },
        x, vector(p, gamma), y, rstd);
    return;
  }
  p.launch(
      gamma.name, site, cost,
      [eps = eps_](Lane lane, Mat<const S> in, Vec<const S> g, Vec<const S> b, Mat<S> out, Vec<float> m, Vec<float> r) {
        kernels::layer_norm_forward<S>(lane, in, g, b, eps, out, m, r);
      },
      x, vector(p, gamma), vector(p, *beta), y, mean, rstd);
}

template <class S>
void Gpt2<S>::column_product(const Pass& p, const char* site, const ParameterInfo& w, const ParameterInfo* bias,
                             MatView<const S> x, MatView<S> y) {
  if (is_fp8(p, w))
    return fp8_product<S, S>(p.launch, fp8(p, site, w), {Fp8Use::input, Trans::no, x, true},
                             {Fp8Use::weight, Trans::yes, weight(p, w), true},
                             bias != nullptr ? vector(p, *bias) : VecView<const S>{}, y, 0);
  if (bias == nullptr) return product<S, S>(p.launch, w.name, site, Trans::no, Trans::yes, x, weight(p, w), y, 0);
  product_bias<S>(p.launch, w.name, site, Trans::no, Trans::yes, x, weight(p, w), vector(p, *bias), y, 0);
}

template <class S>
void Gpt2<S>::activate(const Pass& p, MatView<const S> fc, MatView<S> y, Index slab) {
  if (llama_) {
    p.launch(
        "swiglu", SEEKSIM_SITE, memory_cost(fc.rows * (fc.cols + y.cols), 10),
        [slab](Lane lane, Mat<const S> in, Mat<S> out) { kernels::swiglu_forward<S>(lane, slab, in, out); }, fc, y);
    return;
  }
  p.launch(
      "gelu", SEEKSIM_SITE, memory_cost(2 * fc.rows * fc.cols, 10),
      [mutant = bug_.mutant](Lane lane, Mat<const S> in, Mat<S> out) {
        if constexpr (std::is_same_v<S, float>) {
          if (mutant == Mutant::gelu_by_erf && lane.device == nullptr) return gelu_by_erf(in, out);
        }
        kernels::gelu_forward<S>(lane, in, out);
      },
      fc, y);
}

template <class S>
void Gpt2<S>::layer_output(const Pass& p, int l) {
  const Index n = p.batch.samples;
  const MatView<S> mid = stream(store(l).mid, n, slot(l)), branch = stream(work_->branch, n);  // (Rs, C)
  if (s_.routed(l)) {
    experts_down(p, l, branch);
    shared_down(p, l, branch);
  } else {
    const Mlp m = mlp(n, l);
    row_product(p, SEEKSIM_SITE, m.down, m.active, bias(l, LayerPart::mlp_proj_bias), m.whole.segment(), branch);
  }
  dropped_rows(p, SEEKSIM_SITE, drop_.residual, DropoutSite::mlp_branch, l, branch, branch);
  residual_begins(p, l + 1);
  add<S>(p.launch, "residual", SEEKSIM_SITE, mid, branch, residual(n, l + 1));
  residual_ends(p, l + 1);
}

// The activations of a segment's layers once more, from its input: the same launches, and so the same bits. The output
// of the last layer is not among them. That layer's parameters stay fetched, for its backward.
template <class S>
void Gpt2<S>::recompute(const Pass& p, const Segment& segment) {
  const std::int32_t micro_batch = p.launch.last().micro_batch;
  Batch batch = p.batch;
  if (bug_.is(Bug::recompute_other_dropout)) ++batch.step;
  if (bug_.is(Bug::fp8_recompute_other_scale)) batch.fp8.times = 0.75f;
  const Pass again{p.launch, p.weights, batch, {}, nullptr};
  p.launch.phase(Phase::recompute, micro_batch);
  for (int l = segment.first; l < segment.end; ++l) {
    p.launch.layer(l);
    p.weights.fetch(1 + l);
    layer_forward(again, l);
    if (l + 1 == segment.end) break;
    layer_output(again, l);
    p.weights.release(1 + l);
  }
  p.launch.phase(Phase::backward, micro_batch);
}

// Tokens that are not learned have no loss and no gradient.
template <class S>
void Gpt2<S>::leave_out_losses(Launcher& launch, Index samples) {
  const MatView<S> logits = act(head_.logits, samples, way_.V);  // (R, V)
  for (const TokenRows& rows : head_.without_loss) {
    const Index count = rows.end - rows.begin;
    launch(
        "losses left out", SEEKSIM_SITE, memory_cost(count * logits.cols),
        [](Lane lane, Vec<S> dlogits, Vec<float> losses) {
          kernels::clear(lane, dlogits);
          kernels::clear(lane, losses);
        },
        VecView<S>{logits.buffer, logits.offset + rows.begin * logits.cols, count * logits.cols},
        row_values(head_.token_losses, samples).part(rows.begin, count));
  }
}

template <class S>
void Gpt2<S>::loss(Launcher& launch, Index samples, float scale) {
  const MatView<S> logits = act(head_.logits, samples, way_.V);  // (R, V)
  if (tensor_ != nullptr) {
    tensor_->cross_entropy<S>(launch, samples, logits, reads(targets(samples)), scale,
                              row_values(head_.token_losses, samples));
  } else {
    launch(
        "logits", SEEKSIM_SITE, memory_cost(2 * logits.rows * logits.cols, 6),
        [scale](Lane lane, Mat<S> in_place, Vec<const std::int32_t> target, Vec<float> losses) {
          kernels::softmax_cross_entropy<S>(lane, in_place, target, scale, losses, in_place);
        },
        logits, ids_here(samples, true), row_values(head_.token_losses, samples));
  }
  leave_out_losses(launch, samples);
  if (experts_.plan.has_losses()) add_router_losses(launch, samples);
  const VecView<const float> of_tokens =
      way_.context != nullptr ? losses_of_all(launch, samples) : reads(row_values(head_.token_losses, samples));
  launch(
      "losses", SEEKSIM_SITE, memory_cost(logits.rows),
      [T = s_.T](Lane lane, Vec<const float> tokens, Vec<float> sums) {
        kernels::sample_losses(lane, tokens, T, sums);
      },
      of_tokens, vec<float>(*head_.sample_losses, 0, samples));
}

#define SEEKSIM_INSTANTIATE(S)                                                                                   \
  template void Gpt2<S>::forward(Launcher&, Weights&, const Batch&);                                             \
  template typename Gpt2<S>::Mlp Gpt2<S>::mlp(Index, int) const;                                                 \
  template void Gpt2<S>::activate(const Pass&, MatView<const S>, MatView<S>, Index);                             \
  template void Gpt2<S>::column_product(const Pass&, const char*, const ParameterInfo&, const ParameterInfo*,    \
                                        MatView<const S>, MatView<S>);                                           \
  template void Gpt2<S>::loss(Launcher&, Index, float);                                                          \
  template void Gpt2<S>::leave_out_losses(Launcher&, Index);                                                     \
  template void Gpt2<S>::recompute(const Pass&, const Segment&);                                                 \
  template MatView<const S> Gpt2<S>::all_rows(const Pass&, const char*, const char*, MatView<const S>);          \
  template void Gpt2<S>::row_product(const Pass&, const char*, const ParameterInfo&, MatView<const S>,           \
                                     const ParameterInfo*, Index, MatView<S>);                                   \
  template MatView<S> Gpt2<S>::dropped_rows(const Pass&, const char*, const kernels::Dropout&, DropoutSite, int, \
                                            MatView<S>, MatView<S>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
