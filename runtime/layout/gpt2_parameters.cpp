// The registration order is llm.c's and GPT-2's; it decides the order in which norms are summed and digests combined,
// and the number by which a parameter's random stream is named, so it is part of the contract.
#include "runtime/layout/gpt2_parameters.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/layout/parameter_list.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

constexpr EnumNames<LayerPart> kPartNames({{LayerPart::ln_1_weight, "ln_1.weight"},
                                           {LayerPart::ln_1_bias, "ln_1.bias"},
                                           {LayerPart::c_attn_weight, "attn.c_attn.weight"},
                                           {LayerPart::c_attn_bias, "attn.c_attn.bias"},
                                           {LayerPart::c_proj_weight, "attn.c_proj.weight"},
                                           {LayerPart::c_proj_bias, "attn.c_proj.bias"},
                                           {LayerPart::ln_2_weight, "ln_2.weight"},
                                           {LayerPart::ln_2_bias, "ln_2.bias"},
                                           {LayerPart::c_fc_weight, "mlp.c_fc.weight"},
                                           {LayerPart::c_fc_bias, "mlp.c_fc.bias"},
                                           {LayerPart::mlp_proj_weight, "mlp.c_proj.weight"},
                                           {LayerPart::mlp_proj_bias, "mlp.c_proj.bias"},
                                           {LayerPart::router_weight, ""},
                                           {LayerPart::shared_fc_weight, ""},
                                           {LayerPart::shared_proj_weight, ""}});

}  // namespace

ModelShape::ModelShape(const ModelPlan& plan)
    : V(plan.vocab),
      T(plan.context),
      C(plan.width),
      H(plan.heads),
      K(plan.llama() ? plan.key_heads() : plan.heads),
      G(0),
      D(0),
      Q(0),
      F(plan.hidden()),
      U(plan.llama() ? 2 * F : F),
      E(plan.experts.count),
      k(plan.experts.on() ? plan.experts.per_token : 1),
      L(plan.layers),
      first_routed(plan.experts.on() ? std::min(plan.experts.dense_layers, plan.layers) : plan.layers) {
  SEEKSIM_CHECK(V > 0 && T > 0 && C > 0 && H > 0 && K > 0 && F > 0 && L >= 0, "a model needs positive sizes");
  SEEKSIM_CHECK(C % H == 0, "width %lld is not a multiple of %lld heads", static_cast<long long>(C),
                static_cast<long long>(H));
  SEEKSIM_CHECK(H % K == 0, "%lld heads are no whole number of groups for %lld key heads", static_cast<long long>(H),
                static_cast<long long>(K));
  D = C / H;
  G = H / K;
  Q = K * (G + 2) * D;
  dense = {.F = plan.dense_hidden(), .U = U / F * plan.dense_hidden()};
  if (E > 0) shared = {.F = F * plan.experts.shared, .U = U * plan.experts.shared};
}

std::vector<ParameterInfo> gpt2_parameters(const ModelPlan& plan, bool decay_all) {
  static const LayerNames names("h", kPartNames.all());
  const ModelShape s(plan);
  ParameterList list(decay_all);
  list.split(EmbeddingPart::tokens, "wte.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  list.whole(EmbeddingPart::positions, "wpe.weight", {s.T, s.C}, Init::normal);
  for (int l = 0; l < s.L; ++l) {
    using enum LayerPart;
    list.begin_module(l + 1);
    auto plain = [&](LayerPart part, Init init) { list.whole(part, names.of(l, part), {s.C}, init); };
    auto split = [&](LayerPart part, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
      list.split(part, names.of(l, part), std::move(shape), slab_rows, init, layout);
    };
    plain(ln_1_weight, Init::ones);
    plain(ln_1_bias, Init::zeros);
    split(c_attn_weight, {s.Q, s.C}, s.qkv_segment(), Init::normal, HfLayout::qkv_transposed);
    split(c_attn_bias, {s.Q}, s.qkv_segment(), Init::zeros, HfLayout::qkv);
    split(c_proj_weight, {s.C, s.C}, s.heads_segment(), Init::residual, HfLayout::same);
    list.rows_are_inputs();
    plain(c_proj_bias, Init::zeros);
    plain(ln_2_weight, Init::ones);
    plain(ln_2_bias, Init::zeros);
    split(c_fc_weight, {s.F, s.C}, s.mlp_segment(), Init::normal, HfLayout::transposed);
    split(c_fc_bias, {s.F}, s.mlp_segment(), Init::zeros, HfLayout::same);
    split(mlp_proj_weight, {s.F, s.C}, s.mlp_segment(), Init::residual, HfLayout::same);
    list.rows_are_inputs();
    plain(mlp_proj_bias, Init::zeros);
  }
  list.begin_module(s.L + 1);
  list.whole(HeadPart::norm_weight, "ln_f.weight", {s.C}, Init::ones);
  list.whole(HeadPart::norm_bias, "ln_f.bias", {s.C}, Init::zeros);
  if (!plan.tied)
    list.split(HeadPart::head, "lm_head.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  if (plan.logit_scale) list.whole(HeadPart::logit_scale, "logit_scale", {1}, Init::ones);
  return list.take();
}

}  // namespace seeksim::runtime
