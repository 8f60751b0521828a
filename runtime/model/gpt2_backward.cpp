// The backward pass. Gradients of activations run over the whole micro-batch at once, since rows do not see each other.
// Gradients of parameters, which are sums over samples, stand in gpt2_gradients.cpp.
#include <type_traits>

#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
#include "kernels/pointwise.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "kernels/tree.h"
#include "runtime/model/context_gradients.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/model/mutated_ops.h"

namespace seeksim::runtime {
template <class S>
void Gpt2<S>::backward(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                       std::span<const GradientBlock> blocks, GradientSink& sink) {
  const Pass p{launch, weights, batch, blocks, &sink};
  loss_nodes(p, loss_factor);
  if (way_.context == nullptr) return input_backward(p);
  ContextGradients own(*way_.context, launch, batch.samples, blocks, sink);
  input_backward({launch, weights, batch, own.chunks(), &own});
}

template <class S>
void Gpt2<S>::backward_input(Launcher& launch, Weights& weights, const Batch& batch) {
  SEEKSIM_CHECK(deferred_.has_value(), "backward in two parts, of %d layers", piece_.layers());
  input_backward({launch, weights, batch, {}, nullptr});
}

template <class S>
void Gpt2<S>::backward_weight(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                              std::span<const GradientBlock> blocks, GradientSink& sink) {
  const Pass all{launch, weights, batch, blocks, &sink};
  loss_nodes(all, loss_factor);
  if (way_.context == nullptr) return parameter_grads(all);
  ContextGradients own(*way_.context, launch, batch.samples, blocks, sink);
  parameter_grads({launch, weights, batch, own.chunks(), &own});
}

template <class S>
void Gpt2<S>::parameter_grads(const Pass& p) {
  if (piece_.heads) head_grads(p), head_norm_grad(p);
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) segment_grads(p, *segment);
  p.launch.layer(-1);
  if (piece_.embeds) embedding_grads(p);
}

// What was computed again for the gradients of activations is gone: others in flight share its place.
template <class S>
void Gpt2<S>::segment_grads(const Pass& p, const Segment& segment) {
  const int checkpoint = slots_of(segment.first).checkpoint;
  p.launch.layer(segment.first);
  if (checkpoint >= 0) checkpoints_->before_read(p.launch, checkpoint, checkpoint_elements(p.batch.samples));
  if (segment.recomputed) {
    recompute(p, segment);
    p.weights.release(segment.end);  // module of the last layer
  }
  for (int l = segment.end - 1; l >= segment.first; --l) {
    p.launch.layer(l);
    if (s_.routed(l)) {
      const MatView<const S> x = stream(store(l).ln2, p.batch.samples, slot(l));
      experts_down_grad(p, l), experts_up_grad(p, l, x), router_grad(p, l, x);
    } else {
      mlp_proj_grads(p, l, all_rows(p, "mlp branch", SEEKSIM_SITE, dmlp_branch(p.batch.samples, l)));
      mlp_up_grads(p, l);
    }
    mlp_norm_grad(p, l);
    attention_proj_grads(p, l, all_rows(p, "attention branch", SEEKSIM_SITE, datt_branch(p.batch.samples, l)));
    attention_qkv_grads(p, l), attention_norm_grad(p, l);
  }
  if (checkpoint >= 0) checkpoints_->read(p.launch, checkpoint);
}

// From the end of the piece to its front; gradients of parameters on the way, where they are not left for later.
template <class S>
void Gpt2<S>::input_backward(const Pass& p) {
  if (piece_.heads) {
    p.weights.fetch(head_module());
    head_backward(p);
    p.weights.release(head_module());
  }
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) segment_backward(p, *segment);
  p.launch.layer(-1);
  if (!piece_.embeds) return;
  // Nothing of the embeddings is used here. They are gathered all the same, as ZeRO's count of 3P has it and every
  // framework with a hook a module does, so that the traffic is the one that the paper promises.
  p.weights.fetch(0);
  const MatView<S> d = dx(p.batch.samples, 0);  // (Rs, C)
  dropped_rows(p, SEEKSIM_SITE, drop_.embedding, DropoutSite::embedding, 0, d, d);
  if (p.sink != nullptr) embedding_grads(p);
  p.weights.release(0);
}

template <class S>
void Gpt2<S>::segment_backward(const Pass& p, const Segment& segment) {
  const int checkpoint = slots_of(segment.first).checkpoint;
  p.launch.layer(segment.first);
  if (checkpoint >= 0) checkpoints_->before_read(p.launch, checkpoint, checkpoint_elements(p.batch.samples));
  if (segment.recomputed) recompute(p, segment);
  for (int l = segment.end - 1; l >= segment.first; --l) {
    p.launch.layer(l);
    if (!segment.recomputed || l + 1 < segment.end) p.weights.fetch(1 + l);
    mlp_backward(p, l);
    attention_backward(p, l);
    p.weights.release(1 + l);
  }
  if (checkpoint >= 0) checkpoints_->read(p.launch, checkpoint);
}

template <class S>
void Gpt2<S>::loss_nodes(const Pass& p, float scale) {
  if (!(piece_ == parameters_.pieces().back())) return;
  const Index offset = parameters_.loss_offset();
  for (Index b = 0; b < Index(p.blocks.size()); ++b) {
    const GradientBlock& block = p.blocks[b];
    const VecView<float> node = p.sink->open(b, offset, 1);
    if (!piece_.heads) {  // it is another stage's
      p.launch(
          "loss", SEEKSIM_SITE, memory_cost(1), [](Lane lane, Vec<float> none) { kernels::clear(lane, none); }, node);
      continue;
    }
    p.launch(
        "loss", SEEKSIM_SITE, memory_cost(block.count),
        [scale](Lane lane, Vec<const float> losses, Vec<float> sum) { kernels::tree_fold(lane, losses, sum, scale); },
        vec<const float>(*head_.sample_losses, block.first, block.count), node);
  }
  p.sink->close(offset, 1);
}

template <class S>
void Gpt2<S>::head_backward(const Pass& p) {
  const Index n = p.batch.samples;
  const ParameterInfo& head = parameters_.head();
  const MatView<S> dlogits = act(head_.logits, n, way_.V), dnormed = dlnf(n);  // (R, V), (Rs, C)
  logit_scale_dots(p);
  if (p.sink != nullptr) head_grads(p);
  row_product(p, SEEKSIM_SITE, head, dlogits, nullptr, s_.vocab_segment(), dnormed);
  if (p.sink != nullptr) head_norm_grad(p);
  norm_backward(p, SEEKSIM_SITE, norm_weight(), dnormed, residual(n, s_.L), stream_values(head_.mean, n, 0),
                stream_values(head_.rstd, n, 0), {}, dx(n, s_.L));
}

template <class S>
void Gpt2<S>::norm_backward(const Pass& p, const char* site, const ParameterInfo& gamma, MatView<const S> dy,
                            MatView<const S> x, VecView<const float> mean, VecView<const float> rstd,
                            MatView<const S> residual, MatView<S> dx) {
  const bool skips = residual.buffer != nullptr;
  const MatView<const S> skip_or_any = skips ? residual : dy;
  const Cost cost = memory_cost((skips ? 4 : 3) * x.rows * x.cols, 3);
  if (llama_) {
    p.launch(
        gamma.name, site, cost,
        [skips](Lane lane, Mat<const S> g, Mat<const S> in, Vec<const S> w, Vec<const float> r, Mat<const S> skip,
                Mat<S> out) { kernels::rms_norm_backward<S>(lane, g, in, w, r, skips ? skip : Mat<const S>{}, out); },
        dy, x, vector(p, gamma), rstd, skip_or_any, dx);
    return;
  }
  p.launch(
      gamma.name, site, cost,
      [skips](Lane lane, Mat<const S> g, Mat<const S> in, Vec<const S> w, Vec<const float> m, Vec<const float> r,
              Mat<const S> skip, Mat<S> out) {
        kernels::layer_norm_backward<S>(lane, g, in, w, m, r, skips ? skip : Mat<const S>{}, out);
      },
      dy, x, vector(p, gamma), mean, rstd, skip_or_any, dx);
}

template <class S>
void Gpt2<S>::activate_backward(const Pass& p, MatView<const S> dy, MatView<const S> fc, MatView<S> dfc, Index slab) {
  if (llama_) {
    p.launch(
        "swiglu", SEEKSIM_SITE, memory_cost(dy.rows * (dy.cols + 2 * fc.cols), 8),
        [slab](Lane lane, Mat<const S> d, Mat<const S> x, Mat<S> dx) {
          kernels::swiglu_backward<S>(lane, slab, d, x, dx);
        },
        dy, fc, dfc);
    return;
  }
  p.launch(
      "gelu", SEEKSIM_SITE, memory_cost(3 * fc.rows * fc.cols, 8),
      [mutant = bug_.mutant](Lane lane, Mat<const S> d, Mat<const S> x, Mat<S> dx) {
        if constexpr (std::is_same_v<S, float>) {
          if (mutant == Mutant::gelu_by_erf && lane.device == nullptr) return gelu_by_erf_backward(d, x, dx);
        }
        kernels::gelu_backward<S>(lane, d, x, dx);
      },
      dy, fc, dfc);
}

// Gradients are finished from the end of their space to its front: there a head of its own lies before the scale, a
// shared one behind all parameters.
template <class S>
void Gpt2<S>::head_grads(const Pass& p) {
  const Index n = p.batch.samples, offset = parameters_.head_gradient_offset();
  const bool behind_all = offset >= parameters_.trainable_size();
  if (!behind_all) logit_scale_grad(p);
  linear_grad(p, parameters_.head(), nullptr, true, stream(head_.norm, n), act(head_.logits, n, way_.V), offset);
  if (behind_all) logit_scale_grad(p);
}

template <class S>
void Gpt2<S>::head_norm_grad(const Pass& p) {
  const Index n = p.batch.samples;
  norm_grad(p, norm_weight(), norm_bias(), dlnf(n), residual(n, s_.L), stream_values(head_.mean, n, 0),
            stream_values(head_.rstd, n, 0));
}

// From the gradient of the logits to that before their scale, in place.
template <class S>
void Gpt2<S>::logit_scale_dots(const Pass& p) {
  const ParameterInfo* const scale = parameters_.logit_scale();
  if (scale == nullptr) return;
  if constexpr (std::is_same_v<S, float>) {
    const MatView<float> raw = raw_logits(p.batch.samples);  // (R, V)
    const VecView<float> dots = row_values(head_.logit_dots, p.batch.samples);
    p.launch(
        scale->name, SEEKSIM_SITE, memory_cost(3 * raw.rows * raw.cols, 1),
        [segment = s_.vocab_segment()](Lane lane, Mat<const float> logits, Vec<const float> factor, Mat<float> d,
                                       Vec<float> sums) {
          kernels::logit_scale_backward(lane, logits, factor, d, sums, segment);
        },
        reads(raw), vector(p, *scale), act(head_.logits, p.batch.samples, way_.V),
        tensor_ == nullptr ? dots : tensor_->own_values(dots.n));
    if (tensor_ == nullptr) return;
    tensor_->gather_values(p.launch, scale->name, SEEKSIM_SITE, dots.n);
    p.launch(
        scale->name, SEEKSIM_SITE, memory_cost(tensor_->ways() * dots.n),
        [](Lane lane, Mat<const float> nodes, Vec<float> sums) {
          kernels::add_ways<float>(lane, nodes, {}, {sums.data, 1, sums.n, sums.n});
        },
        tensor_->values(dots.n, 0, dots.n), dots);
  }
}

template <class S>
void Gpt2<S>::logit_scale_grad(const Pass& p) {
  if (const ParameterInfo* const scale = parameters_.logit_scale())
    bias_grad<float>(p, *scale, mat<float>(*head_.logit_dots, 0, p.batch.samples * way_.rows, 1));
}

template <class S>
void Gpt2<S>::mlp_backward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const MatView<S> dout = dx(n, l + 1), dln = dln2(n, l);  // (Rs, C)
  const MatView<const S> dbranch =                         // (R, C)
      all_rows(p, "mlp branch", SEEKSIM_SITE,
               dropped_rows(p, SEEKSIM_SITE, drop_.residual, DropoutSite::mlp_branch, l, dout, dropped_mlp(n, l)));
  if (s_.routed(l))
    experts_backward(p, l, dbranch, dln);
  else
    inside_mlp_backward(p, l, dbranch, dln);

  if (p.sink != nullptr) mlp_norm_grad(p, l);
  const LayerStore& kept = store(l);
  norm_backward(p, SEEKSIM_SITE, w(LayerPart::ln_2_weight), dln, stream(kept.mid, n, slot(l)),
                stream_values(kept.mean2, n, slot(l)), stream_values(kept.rstd2, n, slot(l)), dout, dmid(n, l));
}

template <class S>
void Gpt2<S>::row_product_backward(const Pass& p, const char* site, const ParameterInfo& w, MatView<const S> d,
                                   MatView<S> out) {
  if (!is_fp8(p, w)) return product<S, S>(p.launch, w.name, site, Trans::no, Trans::yes, d, weight(p, w), out, 0);
  fp8_product<S, S>(p.launch, fp8(p, site, w), {Fp8Use::gradient, Trans::no, d, true},
                    {Fp8Use::weight, Trans::yes, weight(p, w)}, {}, out, 0);
}

template <class S>
void Gpt2<S>::inside_mlp_backward(const Pass& p, int l, MatView<const S> dbranch, MatView<S> dln) {
  const Index n = p.batch.samples;
  const Mlp m = mlp(n, l);
  const MatView<S> dgelu = d_active(n, m), dup = dmlp(n, l);  // (R, F), (R, U)
  if (p.sink != nullptr) mlp_proj_grads(p, l, dbranch);
  row_product_backward(p, SEEKSIM_SITE, m.down, dbranch, dgelu);
  activate_backward(p, dgelu, m.fc, dup, m.whole.segment());

  if (p.sink != nullptr) mlp_up_grads(p, l);
  row_product(p, SEEKSIM_SITE, m.up, dup, nullptr, m.whole.up_segment(), dln);
}

template <class S>
void Gpt2<S>::mlp_proj_grads(const Pass& p, int l, MatView<const S> dbranch) {
  const Mlp m = mlp(p.batch.samples, l);
  linear_grad(p, m.down, bias(l, LayerPart::mlp_proj_bias), false, m.active, dbranch, m.down.offset);
}

template <class S>
void Gpt2<S>::mlp_up_grads(const Pass& p, int l) {
  const ParameterInfo& up = parameters_.layer(l, LayerPart::c_fc_weight);
  const Index n = p.batch.samples;
  linear_grad(p, up, bias(l, LayerPart::c_fc_bias), true, stream(store(l).ln2, n, slot(l)), dmlp(n, l), up.offset);
}

template <class S>
void Gpt2<S>::mlp_norm_grad(const Pass& p, int l) {
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  norm_grad(p, parameters_.layer(l, LayerPart::ln_2_weight), bias(l, LayerPart::ln_2_bias), dln2(n, l),
            stream(kept.mid, n, slot(l)), stream_values(kept.mean2, n, slot(l)), stream_values(kept.rstd2, n, slot(l)));
}

template <class S>
void Gpt2<S>::attention_backward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  const MatView<S> datt = act(work_->branch, n, way_.A), dln = dln1(n, l);  // (R, A), (Rs, C)
  const MatView<S> din = dqkv(n, l);                                        // (R, Q)

  const MatView<const S> dbranch =  // (R, C)
      all_rows(p, "attention branch", SEEKSIM_SITE,
               dropped_rows(p, SEEKSIM_SITE, drop_.residual, DropoutSite::attention_branch, l, dmid(n, l),
                            dropped_att(n, l)));
  if (p.sink != nullptr) attention_proj_grads(p, l, dbranch);
  const ParameterInfo& proj = w(LayerPart::c_proj_weight);
  row_product_backward(p, SEEKSIM_SITE, proj, dbranch, datt);
  mutate_heads(p, false, datt);

  if (way_.context != nullptr)
    attend_backward_in_group(p, l, reads(datt), din);
  else
    attend_backward(p, l, reads(datt), din);
  mutate_queries(p, true, din);
  rotate(p, bug_.mutant != Mutant::rotary_backward_turns_forward, din);

  if (p.sink != nullptr) attention_qkv_grads(p, l);
  const ParameterInfo& attn = w(LayerPart::c_attn_weight);
  row_product(p, SEEKSIM_SITE, attn, din, nullptr, s_.qkv_segment(), dln);

  if (p.sink != nullptr) attention_norm_grad(p, l);
  norm_backward(p, SEEKSIM_SITE, w(LayerPart::ln_1_weight), dln, residual(n, l), stream_values(kept.mean1, n, slot(l)),
                stream_values(kept.rstd1, n, slot(l)), dmid(n, l), dx(n, l));
}

template <class S>
void Gpt2<S>::attention_proj_grads(const Pass& p, int l, MatView<const S> dbranch) {
  const ParameterInfo& proj = parameters_.layer(l, LayerPart::c_proj_weight);
  linear_grad(p, proj, bias(l, LayerPart::c_proj_bias), false, act(store(l).att, p.batch.samples, way_.A, slot(l)),
              dbranch, proj.offset);
}

template <class S>
void Gpt2<S>::attention_qkv_grads(const Pass& p, int l) {
  const ParameterInfo& attn = parameters_.layer(l, LayerPart::c_attn_weight);
  const Index n = p.batch.samples;
  linear_grad(p, attn, bias(l, LayerPart::c_attn_bias), true, stream(store(l).ln1, n, slot(l)), dqkv(n, l),
              attn.offset);
}

template <class S>
void Gpt2<S>::attention_norm_grad(const Pass& p, int l) {
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  norm_grad(p, parameters_.layer(l, LayerPart::ln_1_weight), bias(l, LayerPart::ln_1_bias), dln1(n, l), residual(n, l),
            stream_values(kept.mean1, n, slot(l)), stream_values(kept.rstd1, n, slot(l)));
}

#define SEEKSIM_INSTANTIATE(S)                                                                                     \
  template void Gpt2<S>::activate_backward(const Pass&, MatView<const S>, MatView<const S>, MatView<S>, Index);    \
  template void Gpt2<S>::row_product_backward(const Pass&, const char*, const ParameterInfo&, MatView<const S>,    \
                                              MatView<S>);                                                         \
  template void Gpt2<S>::backward(Launcher&, Weights&, const Batch&, float, std::span<const GradientBlock>,        \
                                  GradientSink&);                                                                  \
  template void Gpt2<S>::backward_input(Launcher&, Weights&, const Batch&);                                        \
  template void Gpt2<S>::backward_weight(Launcher&, Weights&, const Batch&, float, std::span<const GradientBlock>, \
                                         GradientSink&);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
