// The forward pass, in the order of GPT-2: x + attention(norm(x)), then x + mlp(norm(x)). Shapes stand beside tensors;
// R = samples * T rows.
#include <algorithm>

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

Gpt2::Gpt2(Device& device, const ModelPlan& plan, const Gpt2Parameters& parameters, Index samples_max)
    : s_(plan), parameters_(parameters), eps_(static_cast<float>(plan.norm_eps)), samples_max_(samples_max) {
  const Index R = samples_max * s_.T;
  auto floats = [&](const char* name, Index n) {
    return device.allocate(static_cast<std::size_t>(std::max<Index>(n, 1)) * sizeof(float), MemoryTag::activations,
                           name);
  };
  auto tokens = [&](const char* name) {
    return device.allocate(static_cast<std::size_t>(R) * sizeof(std::int32_t), MemoryTag::data, name);
  };
  const Index L = s_.L, C = s_.C, F = s_.F;
  inputs_ = tokens("inputs"), targets_ = tokens("targets");
  x_ = floats("residual stream", (L + 1) * R * C), mid_ = floats("residual stream after attention", L * R * C);
  ln1_ = floats("ln_1", L * R * C), ln2_ = floats("ln_2", L * R * C), att_ = floats("attention", L * R * C);
  mean1_ = floats("ln_1 mean", L * R), rstd1_ = floats("ln_1 rstd", L * R);
  mean2_ = floats("ln_2 mean", L * R), rstd2_ = floats("ln_2 rstd", L * R);
  qkv_ = floats("qkv", L * R * 3 * C), probs_ = floats("attention probabilities", L * R * s_.H * s_.T);
  fc_ = floats("mlp.c_fc", L * R * F), gelu_ = floats("gelu", L * R * F);
  lnf_ = floats("ln_f", R * C), meanf_ = floats("ln_f mean", R), rstdf_ = floats("ln_f rstd", R);
  logits_ = floats("logits", R * s_.V);
  if (parameters.logit_scale() != nullptr) {
    raw_logits_ = floats("logits before their scale", R * s_.V), logit_dots_ = floats("logit dots", R);
  }
  token_losses_ = floats("token losses", R), sample_losses_ = floats("sample losses", samples_max);
  branch_ = floats("branch", R * C), dx_ = floats("d residual", R * C),
  dmid_ = floats("d residual after attention", R * C);
  const std::vector<const ParameterInfo*>& frozen = parameters.frozen();
  const bool has_frozen_vector =
      std::any_of(frozen.begin(), frozen.end(), [](const ParameterInfo* p) { return p->shape.size() == 1; });
  if (has_frozen_vector) unused_ = floats("gradient of a frozen bias", C);
  if (L > 0) {
    dqkv_ = floats("d qkv", R * 3 * C), dgelu_ = floats("d gelu", R * F), dfc_ = floats("d mlp.c_fc", R * F);
    scratch_ = floats("attention scratch", 2 * s_.T * s_.T);
  }
}

MatView<float> Gpt2::act(const BufferPtr& buffer, Index samples, Index cols, int layer) const {
  SEEKSIM_CHECK(samples <= samples_max_, "%lld samples", static_cast<long long>(samples));
  return mat<float>(*buffer, layer * samples_max_ * s_.T * cols, samples * s_.T, cols);
}

VecView<float> Gpt2::row_values(const BufferPtr& buffer, Index samples, int layer) const {
  return vec<float>(*buffer, layer * samples_max_ * s_.T, samples * s_.T);
}

namespace {

void norm(Launcher& launch, const char* tensor, const char* site, float eps, MatView<const float> x,
          VecView<const float> gamma, VecView<const float> beta, MatView<float> y, VecView<float> mean,
          VecView<float> rstd) {
  launch(
      tensor, site, memory_cost(2 * x.rows * x.cols, 5),
      [eps](Lane lane, Mat<const float> in, Vec<const float> g, Vec<const float> b, Mat<float> out, Vec<float> m,
            Vec<float> r) { kernels::layer_norm_forward(lane, in, g, b, eps, out, m, r); },
      x, gamma, beta, y, mean, rstd);
}

void add(Launcher& launch, const char* tensor, const char* site, MatView<const float> a, MatView<const float> b,
         MatView<float> y) {
  launch(
      tensor, site, memory_cost(3 * a.rows * a.cols, 1.0 / 3),
      [](Lane lane, Mat<const float> left, Mat<const float> right, Mat<float> sum) {
        kernels::add(lane, left, right, sum);
      },
      a, b, y);
}

}  // namespace

void Gpt2::forward(Launcher& launch, Weights& weights, Index samples) {
  const Pass p{launch, weights, samples, {}, nullptr};
  weights.fetch(0);
  const MatView<float> x0 = act(x_, samples, s_.C);  // (R, C)
  launch(
      "wte.weight", SEEKSIM_SITE, memory_cost(3 * x0.rows * x0.cols, 1.0 / 3),
      [T = s_.T](Lane lane, Vec<const std::int32_t> tokens, Mat<const float> wte, Mat<const float> wpe, Mat<float> x) {
        kernels::embedding_forward(lane, tokens, T, wte, wpe, x);
      },
      reads(inputs(samples)), weight(p, parameters_.wte()), weight(p, parameters_.wpe()), x0);
  weights.release(0);
  for (int l = 0; l < s_.L; ++l) {
    weights.fetch(1 + l);
    layer_forward(p, l);
    weights.release(1 + l);
  }

  weights.fetch(head_module());
  const MatView<float> normed = act(lnf_, samples, s_.C);  // (R, C)
  norm(launch, "ln_f.weight", SEEKSIM_SITE, eps_, act(x_, samples, s_.C, s_.L), vector(p, parameters_.ln_f_weight()),
       vector(p, parameters_.ln_f_bias()), normed, row_values(meanf_, samples, 0), row_values(rstdf_, samples, 0));
  product(launch, parameters_.head().name, SEEKSIM_SITE, Trans::no, Trans::yes, normed, weight(p, parameters_.head()),
          raw_logits(samples), 0);  // (R, V)
  if (const ParameterInfo* const scale = parameters_.logit_scale()) {
    launch(
        scale->name, SEEKSIM_SITE, memory_cost(2 * samples * s_.T * s_.V, 0.5),
        [](Lane lane, Mat<const float> raw, Vec<const float> factor, Mat<float> logits) {
          kernels::logit_scale_forward(lane, raw, factor, logits);
        },
        reads(raw_logits(samples)), vector(p, *scale), act(logits_, samples, s_.V));
  }
  weights.release(head_module());
}

void Gpt2::layer_forward(const Pass& p, int l) {
  auto w = [&](LayerPart part) -> const ParameterInfo& { return parameters_.layer(l, part); };
  const Index n = p.samples;
  const MatView<float> x = act(x_, n, s_.C, l), mid = act(mid_, n, s_.C, l), out = act(x_, n, s_.C, l + 1);  // (R, C)
  const MatView<float> branch = act(branch_, n, s_.C);                                                       // (R, C)

  const MatView<float> ln1 = act(ln1_, n, s_.C, l), qkv = act(qkv_, n, 3 * s_.C, l), att = act(att_, n, s_.C, l);
  norm(p.launch, w(LayerPart::ln_1_weight).name, SEEKSIM_SITE, eps_, x, vector(p, w(LayerPart::ln_1_weight)),
       vector(p, w(LayerPart::ln_1_bias)), ln1, row_values(mean1_, n, l), row_values(rstd1_, n, l));
  product_bias(p.launch, w(LayerPart::c_attn_weight).name, SEEKSIM_SITE, Trans::no, Trans::yes, ln1,
               weight(p, w(LayerPart::c_attn_weight)), vector(p, w(LayerPart::c_attn_bias)), qkv, 0);  // (R, 3C)
  const MatView<float> probs = mat<float>(*probs_, l * samples_max_ * s_.H * s_.T * s_.T, n * s_.H * s_.T, s_.T);
  const kernels::AttentionShape shape{n, s_.T, s_.H, s_.D};
  p.launch(
      "attention", SEEKSIM_SITE,
      {2.0 * double(n * s_.T * s_.T * s_.C), 4.0 * double(4 * n * s_.T * s_.C + probs.rows * s_.T)},
      [shape](Lane lane, Mat<const float> in, Mat<float> pr, Mat<float> y) {
        kernels::attention_forward(lane, shape, in, pr, y);
      },
      reads(qkv), probs, att);
  product_bias(p.launch, w(LayerPart::c_proj_weight).name, SEEKSIM_SITE, Trans::no, Trans::no, att,
               weight(p, w(LayerPart::c_proj_weight)), vector(p, w(LayerPart::c_proj_bias)), branch,
               s_.heads_segment());
  add(p.launch, "residual", SEEKSIM_SITE, x, branch, mid);

  const MatView<float> ln2 = act(ln2_, n, s_.C, l), fc = act(fc_, n, s_.F, l), gelu = act(gelu_, n, s_.F, l);
  norm(p.launch, w(LayerPart::ln_2_weight).name, SEEKSIM_SITE, eps_, mid, vector(p, w(LayerPart::ln_2_weight)),
       vector(p, w(LayerPart::ln_2_bias)), ln2, row_values(mean2_, n, l), row_values(rstd2_, n, l));
  product_bias(p.launch, w(LayerPart::c_fc_weight).name, SEEKSIM_SITE, Trans::no, Trans::yes, ln2,
               weight(p, w(LayerPart::c_fc_weight)), vector(p, w(LayerPart::c_fc_bias)), fc, 0);  // (R, F)
  p.launch(
      "gelu", SEEKSIM_SITE, memory_cost(2 * fc.rows * fc.cols, 10),
      [](Lane lane, Mat<const float> in, Mat<float> y) { kernels::gelu_forward(lane, in, y); }, reads(fc), gelu);
  product_bias(p.launch, w(LayerPart::mlp_proj_weight).name, SEEKSIM_SITE, Trans::no, Trans::no, gelu,
               weight(p, w(LayerPart::mlp_proj_weight)), vector(p, w(LayerPart::mlp_proj_bias)), branch,
               s_.mlp_segment());
  add(p.launch, "residual", SEEKSIM_SITE, mid, branch, out);
}

void Gpt2::loss(Launcher& launch, Index samples, float scale) {
  const MatView<float> logits = act(logits_, samples, s_.V);  // (R, V)
  launch(
      "logits", SEEKSIM_SITE, memory_cost(2 * logits.rows * logits.cols, 6),
      [scale](Lane lane, Mat<float> in_place, Vec<const std::int32_t> target, Vec<float> losses) {
        kernels::softmax_cross_entropy(lane, in_place, target, scale, losses, in_place);
      },
      logits, reads(targets(samples)), row_values(token_losses_, samples, 0));
  launch(
      "losses", SEEKSIM_SITE, memory_cost(logits.rows),
      [T = s_.T](Lane lane, Vec<const float> tokens, Vec<float> sums) {
        kernels::sample_losses(lane, tokens, T, sums);
      },
      reads(row_values(token_losses_, samples, 0)), vec<float>(*sample_losses_, 0, samples));
}

}  // namespace seeksim::runtime
