// The forward pass, in the order of GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). Shapes stand beside tensors;
// R = samples * T rows.
#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
#include "kernels/pointwise.h"
#include "runtime/gpt2.h"
#include "runtime/gpt2_ops.h"

namespace seeksim::runtime {

template <class S>
Gpt2<S>::Gpt2(Device& device, const TrainPlan& plan, const Gpt2Parameters& parameters, Index samples_max)
    : s_(plan.definition.model),
      parameters_(parameters),
      eps_(static_cast<float>(plan.definition.model.norm_eps)),
      samples_max_(samples_max),
      drop_embedding_(kernels::dropout_of(plan.definition.model.dropout.embedding)),
      drop_attention_(kernels::dropout_of(plan.definition.model.dropout.attention)),
      drop_residual_(kernels::dropout_of(plan.definition.model.dropout.residual)),
      bug_(plan.bug) {
  SEEKSIM_CHECK((std::is_same_v<S, float>) || parameters.logit_scale() == nullptr,
                "logit_scale is for fp32 only, not %s", std::string(name(element_type<S>())).c_str());
  const Index R = samples_max * s_.T;
  auto allocate = [&](const char* name, Index n, std::size_t bytes) {
    return device.allocate(static_cast<std::size_t>(std::max<Index>(n, 1)) * bytes, MemoryTag::activations, name);
  };
  auto stored = [&](const char* name, Index n) { return allocate(name, n, sizeof(S)); };
  auto floats = [&](const char* name, Index n) { return allocate(name, n, sizeof(float)); };
  auto tokens = [&](const char* name) {
    return device.allocate(static_cast<std::size_t>(R) * sizeof(std::int32_t), MemoryTag::data, name);
  };
  lay_out_slots(device, plan);
  const Index A = layer_slots_, C = s_.C, F = s_.F;
  inputs_ = tokens("inputs"), targets_ = tokens("targets");
  x_ = stored("residual stream", residual_slots_ * R * C);
  mid_ = stored("residual stream after attention", A * R * C);
  ln1_ = stored("ln_1", A * R * C), ln2_ = stored("ln_2", A * R * C), att_ = stored("attention", A * R * C);
  mean1_ = floats("ln_1 mean", A * R), rstd1_ = floats("ln_1 rstd", A * R);
  mean2_ = floats("ln_2 mean", A * R), rstd2_ = floats("ln_2 rstd", A * R);
  qkv_ = stored("qkv", A * R * 3 * C), probs_ = stored("attention probabilities", A * R * s_.H * s_.T);
  fc_ = stored("mlp.c_fc", A * R * F), gelu_ = stored("gelu", A * R * F);
  lnf_ = stored("ln_f", R * C), meanf_ = floats("ln_f mean", R), rstdf_ = floats("ln_f rstd", R);
  logits_ = stored("logits", R * s_.V);
  if (parameters.logit_scale() != nullptr) {
    raw_logits_ = stored("logits before their scale", R * s_.V), logit_dots_ = floats("logit dots", R);
  }
  token_losses_ = floats("token losses", R), sample_losses_ = floats("sample losses", samples_max);
  branch_ = stored("branch", R * C), dx_ = stored("d residual", R * C),
  dmid_ = stored("d residual after attention", R * C);
  const std::vector<const ParameterInfo*>& frozen = parameters.frozen();
  const bool has_frozen_vector =
      std::any_of(frozen.begin(), frozen.end(), [](const ParameterInfo* p) { return p->shape.size() == 1; });
  if (has_frozen_vector) unused_ = floats("gradient of a frozen bias", C);
  if (s_.L > 0) {
    dqkv_ = stored("d qkv", R * 3 * C), dgelu_ = stored("d gelu", R * F), dfc_ = stored("d mlp.c_fc", R * F);
    scratch_ = device.allocate(std::size_t(2 * s_.T * s_.T) * sizeof(float), MemoryTag::scratch, "attention scratch");
  }
}

namespace {

template <class S>
void norm(Launcher& launch, const char* tensor, const char* site, float eps, MatView<const S> x, VecView<const S> gamma,
          VecView<const S> beta, MatView<S> y, VecView<float> mean, VecView<float> rstd) {
  launch(
      tensor, site, memory_cost(2 * x.rows * x.cols, 5),
      [eps](Lane lane, Mat<const S> in, Vec<const S> g, Vec<const S> b, Mat<S> out, Vec<float> m, Vec<float> r) {
        kernels::layer_norm_forward<S>(lane, in, g, b, eps, out, m, r);
      },
      x, gamma, beta, y, mean, rstd);
}

template <class S>
void add(Launcher& launch, const char* tensor, const char* site, MatView<const S> a, MatView<const S> b, MatView<S> y) {
  launch(
      tensor, site, memory_cost(3 * a.rows * a.cols, 1.0 / 3),
      [](Lane lane, Mat<const S> left, Mat<const S> right, Mat<S> sum) { kernels::add<S>(lane, left, right, sum); }, a,
      b, y);
}

}  // namespace

// Slots that segments share come first: as many as the longest of them needs.
template <class S>
void Gpt2<S>::lay_out_slots(Device& device, const TrainPlan& plan) {
  const CheckpointingPlan& checkpointing = plan.layout.checkpointing;
  segments_ = segments_of(s_.L, checkpointing);
  int count = 0;
  for (const Segment& segment : segments_) {
    if (!segment.recomputed) continue;
    ++count;
    layer_slots_ = std::max(layer_slots_, segment.layers());
    residual_slots_ = std::max(residual_slots_, segment.layers() - 1);
  }
  int checkpoint = 0;
  for (const Segment& segment : segments_) {
    for (int l = segment.first; l < segment.end; ++l) {
      const int inside = l - segment.first;
      const bool shares = segment.recomputed && !plan.bug.is(Bug::kept_activations);
      const int activations = shares ? inside : layer_slots_++;
      if (!segment.recomputed) {
        slots_.push_back({activations, residual_slots_++, -1});
      } else if (inside == 0) {
        slots_.push_back({activations, 0, checkpoint++});
      } else {
        slots_.push_back({activations, inside - 1, -1});
      }
    }
  }
  slots_.push_back({0, residual_slots_++, -1});
  if (count > 0)
    checkpoints_.emplace(device, count, checkpoint_elements(samples_max_), element_type<S>(), checkpointing.on_host,
                         plan.bug);
}

template <class S>
void Gpt2<S>::residual_begins(const Pass& p, int l) {
  if (const int k = slots_[std::size_t(l)].checkpoint; k >= 0) checkpoints_->before_write(p.launch, k);
}
template <class S>
void Gpt2<S>::residual_ends(const Pass& p, int l) {
  if (const int k = slots_[std::size_t(l)].checkpoint; k >= 0)
    checkpoints_->written(p.launch, k, checkpoint_elements(p.batch.samples));
}

template <class S>
void Gpt2<S>::forward(Launcher& launch, Weights& weights, const Batch& batch) {
  const Pass p{launch, weights, batch, {}, nullptr};
  const Index samples = batch.samples;
  weights.fetch(0);
  const MatView<S> x0 = residual(samples, 0);  // (R, C)
  residual_begins(p, 0);
  launch(
      "wte.weight", SEEKSIM_SITE, memory_cost(3 * x0.rows * x0.cols, 1.0 / 3),
      [T = s_.T](Lane lane, Vec<const std::int32_t> tokens, Mat<const S> wte, Mat<const S> wpe, Mat<S> x) {
        kernels::embedding_forward<S>(lane, tokens, T, wte, wpe, x);
      },
      reads(inputs(samples)), weight(p, parameters_.wte()), weight(p, parameters_.wpe()), x0);
  dropped(p.launch, SEEKSIM_SITE, dropout_at(drop_embedding_, DropoutSite::embedding, 0, p.batch), s_.T, x0, x0);
  residual_ends(p, 0);
  weights.release(0);
  for (int l = 0; l < s_.L; ++l) {
    launch.layer(l);
    weights.fetch(1 + l);
    layer_forward(p, l);
    layer_output(p, l);
    weights.release(1 + l);
  }
  launch.layer(-1);

  weights.fetch(head_module());
  const MatView<S> normed = act(lnf_, samples, s_.C);  // (R, C)
  norm<S>(launch, "ln_f.weight", SEEKSIM_SITE, eps_, residual(samples, s_.L), vector(p, parameters_.ln_f_weight()),
          vector(p, parameters_.ln_f_bias()), normed, row_values(meanf_, samples, 0), row_values(rstdf_, samples, 0));
  product<S, S>(launch, parameters_.head().name, SEEKSIM_SITE, Trans::no, Trans::yes, normed,
                weight(p, parameters_.head()), raw_logits(samples), 0);  // (R, V)
  scale_logits(p);
  weights.release(head_module());
}

template <class S>
void Gpt2<S>::scale_logits(const Pass& p) {
  const ParameterInfo* const scale = parameters_.logit_scale();
  if (scale == nullptr) return;
  if constexpr (std::is_same_v<S, float>) {
    p.launch(
        scale->name, SEEKSIM_SITE, memory_cost(2 * p.batch.samples * s_.T * s_.V, 0.5),
        [](Lane lane, Mat<const float> raw, Vec<const float> factor, Mat<float> logits) {
          kernels::logit_scale_forward(lane, raw, factor, logits);
        },
        reads(raw_logits(p.batch.samples)), vector(p, *scale), act(logits_, p.batch.samples, s_.V));
  }
}

template <class S>
void Gpt2<S>::layer_forward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const int a = slot(l);
  const MatView<S> x = residual(n, l), mid = act(mid_, n, s_.C, a), branch = act(branch_, n, s_.C);  // (R, C)

  const MatView<S> ln1 = act(ln1_, n, s_.C, a), qkv = act(qkv_, n, 3 * s_.C, a), att = act(att_, n, s_.C, a);
  norm<S>(p.launch, w(LayerPart::ln_1_weight).name, SEEKSIM_SITE, eps_, x, vector(p, w(LayerPart::ln_1_weight)),
          vector(p, w(LayerPart::ln_1_bias)), ln1, row_values(mean1_, n, a), row_values(rstd1_, n, a));
  product_bias<S>(p.launch, w(LayerPart::c_attn_weight).name, SEEKSIM_SITE, Trans::no, Trans::yes, ln1,
                  weight(p, w(LayerPart::c_attn_weight)), vector(p, w(LayerPart::c_attn_bias)), qkv, 0);  // (R, 3C)
  const MatView<S> probs = mat<S>(*probs_, a * samples_max_ * s_.H * s_.T * s_.T, n * s_.H * s_.T, s_.T);
  const kernels::AttentionShape shape{n, s_.T, s_.H, s_.D};
  p.launch(
      "attention", SEEKSIM_SITE,
      {2.0 * double(n * s_.T * s_.T * s_.C), 4.0 * double(4 * n * s_.T * s_.C + probs.rows * s_.T)},
      [shape, drop = dropout_at(drop_attention_, DropoutSite::attention, l, p.batch)](Lane lane, Mat<const S> in,
                                                                                      Mat<S> pr, Mat<S> y) {
        kernels::attention_forward<S>(lane, shape, in, pr, y, drop);
      },
      reads(qkv), probs, att);
  product_bias<S>(p.launch, w(LayerPart::c_proj_weight).name, SEEKSIM_SITE, Trans::no, Trans::no, att,
                  weight(p, w(LayerPart::c_proj_weight)), vector(p, w(LayerPart::c_proj_bias)), branch,
                  s_.heads_segment());
  dropped(p.launch, SEEKSIM_SITE, dropout_at(drop_residual_, DropoutSite::attention_branch, l, p.batch), s_.T, branch,
          branch);
  add<S>(p.launch, "residual", SEEKSIM_SITE, x, branch, mid);

  const MatView<S> ln2 = act(ln2_, n, s_.C, a), fc = act(fc_, n, s_.F, a), gelu = act(gelu_, n, s_.F, a);
  norm<S>(p.launch, w(LayerPart::ln_2_weight).name, SEEKSIM_SITE, eps_, mid, vector(p, w(LayerPart::ln_2_weight)),
          vector(p, w(LayerPart::ln_2_bias)), ln2, row_values(mean2_, n, a), row_values(rstd2_, n, a));
  product_bias<S>(p.launch, w(LayerPart::c_fc_weight).name, SEEKSIM_SITE, Trans::no, Trans::yes, ln2,
                  weight(p, w(LayerPart::c_fc_weight)), vector(p, w(LayerPart::c_fc_bias)), fc, 0);  // (R, F)
  p.launch(
      "gelu", SEEKSIM_SITE, memory_cost(2 * fc.rows * fc.cols, 10),
      [](Lane lane, Mat<const S> in, Mat<S> y) { kernels::gelu_forward<S>(lane, in, y); }, reads(fc), gelu);
}

template <class S>
void Gpt2<S>::layer_output(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.batch.samples;
  const MatView<S> gelu = act(gelu_, n, s_.F, slot(l)), mid = act(mid_, n, s_.C, slot(l));  // (R, F), (R, C)
  const MatView<S> branch = act(branch_, n, s_.C);                                          // (R, C)
  product_bias<S>(p.launch, w(LayerPart::mlp_proj_weight).name, SEEKSIM_SITE, Trans::no, Trans::no, gelu,
                  weight(p, w(LayerPart::mlp_proj_weight)), vector(p, w(LayerPart::mlp_proj_bias)), branch,
                  s_.mlp_segment());
  dropped(p.launch, SEEKSIM_SITE, dropout_at(drop_residual_, DropoutSite::mlp_branch, l, p.batch), s_.T, branch,
          branch);
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

template <class S>
void Gpt2<S>::loss(Launcher& launch, Index samples, float scale) {
  const MatView<S> logits = act(logits_, samples, s_.V);  // (R, V)
  launch(
      "logits", SEEKSIM_SITE, memory_cost(2 * logits.rows * logits.cols, 6),
      [scale](Lane lane, Mat<S> in_place, Vec<const std::int32_t> target, Vec<float> losses) {
        kernels::softmax_cross_entropy<S>(lane, in_place, target, scale, losses, in_place);
      },
      logits, reads(targets(samples)), row_values(token_losses_, samples, 0));
  launch(
      "losses", SEEKSIM_SITE, memory_cost(logits.rows),
      [T = s_.T](Lane lane, Vec<const float> tokens, Vec<float> sums) {
        kernels::sample_losses(lane, tokens, T, sums);
      },
      reads(row_values(token_losses_, samples, 0)), vec<float>(*sample_losses_, 0, samples));
}

template void Gpt2<float>::recompute(const Pass&, const Segment&);
template void Gpt2<kernels::bf16>::recompute(const Pass&, const Segment&);
template void Gpt2<kernels::fp16>::recompute(const Pass&, const Segment&);

std::unique_ptr<Model> make_gpt2(Device& device, const TrainPlan& plan, const Gpt2Parameters& parameters,
                                 Index samples_max) {
  return with_float_type(plan.definition.precision.compute, [&](auto like) -> std::unique_ptr<Model> {
    return std::make_unique<Gpt2<decltype(like)>>(device, plan, parameters, samples_max);
  });
}

}  // namespace seeksim::runtime
