// The registration order is that of Hugging Face's files; it is part of the contract, as GPT-2's is.
#include "runtime/layout/llama_parameters.h"

#include "runtime/layout/gpt2_parameters.h"
#include "runtime/layout/parameter_list.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

constexpr EnumNames<LayerPart> kDenseNames({{LayerPart::ln_1_weight, "input_layernorm.weight"},
                                            {LayerPart::ln_1_bias, ""},
                                            {LayerPart::c_attn_weight, "self_attn.qkv_proj.weight"},
                                            {LayerPart::c_attn_bias, ""},
                                            {LayerPart::c_proj_weight, "self_attn.o_proj.weight"},
                                            {LayerPart::c_proj_bias, ""},
                                            {LayerPart::ln_2_weight, "post_attention_layernorm.weight"},
                                            {LayerPart::ln_2_bias, ""},
                                            {LayerPart::c_fc_weight, "mlp.gate_up_proj.weight"},
                                            {LayerPart::c_fc_bias, ""},
                                            {LayerPart::mlp_proj_weight, "mlp.down_proj.weight"},
                                            {LayerPart::mlp_proj_bias, ""},
                                            {LayerPart::router_weight, ""},
                                            {LayerPart::shared_fc_weight, ""},
                                            {LayerPart::shared_proj_weight, ""}});
// With experts, under the names of Mixtral's files: weights.cpp takes experts.gate_up_proj and experts.down_proj apart.
constexpr EnumNames<LayerPart> kExpertNames({{LayerPart::ln_1_weight, "input_layernorm.weight"},
                                             {LayerPart::ln_1_bias, ""},
                                             {LayerPart::c_attn_weight, "self_attn.qkv_proj.weight"},
                                             {LayerPart::c_attn_bias, ""},
                                             {LayerPart::c_proj_weight, "self_attn.o_proj.weight"},
                                             {LayerPart::c_proj_bias, ""},
                                             {LayerPart::ln_2_weight, "post_attention_layernorm.weight"},
                                             {LayerPart::ln_2_bias, ""},
                                             {LayerPart::c_fc_weight, "block_sparse_moe.experts.gate_up_proj.weight"},
                                             {LayerPart::c_fc_bias, ""},
                                             {LayerPart::mlp_proj_weight, "block_sparse_moe.experts.down_proj.weight"},
                                             {LayerPart::mlp_proj_bias, ""},
                                             {LayerPart::router_weight, "block_sparse_moe.gate.weight"},
                                             {LayerPart::shared_fc_weight, ""},
                                             {LayerPart::shared_proj_weight, ""}});
// Likewise under the names of DeepSeek's files.
constexpr EnumNames<LayerPart> kDeepSeekNames({{LayerPart::ln_1_weight, "input_layernorm.weight"},
                                               {LayerPart::ln_1_bias, ""},
                                               {LayerPart::c_attn_weight, "self_attn.qkv_proj.weight"},
                                               {LayerPart::c_attn_bias, ""},
                                               {LayerPart::c_proj_weight, "self_attn.o_proj.weight"},
                                               {LayerPart::c_proj_bias, ""},
                                               {LayerPart::ln_2_weight, "post_attention_layernorm.weight"},
                                               {LayerPart::ln_2_bias, ""},
                                               {LayerPart::c_fc_weight, "mlp.experts.gate_up_proj.weight"},
                                               {LayerPart::c_fc_bias, ""},
                                               {LayerPart::mlp_proj_weight, "mlp.experts.down_proj.weight"},
                                               {LayerPart::mlp_proj_bias, ""},
                                               {LayerPart::router_weight, "mlp.gate.weight"},
                                               {LayerPart::shared_fc_weight, "mlp.shared_experts.gate_up_proj.weight"},
                                               {LayerPart::shared_proj_weight, "mlp.shared_experts.down_proj.weight"}});

}  // namespace

std::vector<ParameterInfo> llama_parameters(const ModelPlan& plan, bool decay_all) {
  static const LayerNames of_mlp("model.layers", kDenseNames.all()), of_experts("model.layers", kExpertNames.all()),
      of_deepseek("model.layers", kDeepSeekNames.all());
  const ModelShape s(plan);
  ParameterList list(decay_all);
  list.split(EmbeddingPart::tokens, "model.embed_tokens.weight", {s.V, s.C}, s.vocab_segment(), Init::normal,
             HfLayout::same);
  for (int l = 0; l < s.L; ++l) {
    using enum LayerPart;
    const bool routed = plan.experts.in_layer(l);
    const LayerNames& names = !routed ? of_mlp : plan.experts.deepseek() ? of_deepseek : of_experts;
    list.begin_module(l + 1);
    auto norm = [&](LayerPart part) { list.whole(part, names.of(l, part), {s.C}, Init::ones); };
    auto split = [&](LayerPart part, std::vector<Index> shape, Index slab_rows, HfLayout layout) {
      list.split(part, names.of(l, part), std::move(shape), slab_rows, Init::normal, layout);
    };
    norm(ln_1_weight);
    split(c_attn_weight, {s.Q, s.C}, s.qkv_segment(), HfLayout::grouped_qkv);
    split(c_proj_weight, {s.C, s.C}, s.heads_segment(), HfLayout::transposed);
    list.rows_are_inputs();
    norm(ln_2_weight);
    const auto mlp = [&](LayerPart up, LayerPart down, const MlpShape& shape) {
      split(up, {shape.U, s.C}, shape.up_segment(), HfLayout::gate_up);
      split(down, {shape.F, s.C}, shape.segment(), HfLayout::transposed);
      list.rows_are_inputs();
    };
    if (!routed) {
      mlp(c_fc_weight, mlp_proj_weight, s.dense);
      continue;
    }
    list.whole(router_weight, names.of(l, router_weight), {s.E, s.C}, Init::normal);
    const bool slabs = plan.experts.slabs;
    list.experts(c_fc_weight, names.of(l, c_fc_weight), {s.E * s.U, s.C}, s.E, slabs ? s.up_segment() : 0, Init::normal,
                 HfLayout::experts_gate_up);
    list.experts(mlp_proj_weight, names.of(l, mlp_proj_weight), {s.E * s.F, s.C}, s.E, slabs ? s.mlp_segment() : 0,
                 Init::normal, HfLayout::experts_down);
    list.rows_are_inputs();
    if (plan.experts.shared_in_layer(l)) mlp(shared_fc_weight, shared_proj_weight, s.shared);
  }
  list.begin_module(s.L + 1);
  list.whole(HeadPart::norm_weight, "model.norm.weight", {s.C}, Init::ones);
  if (!plan.tied)
    list.split(HeadPart::head, "lm_head.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  if (plan.logit_scale) list.whole(HeadPart::logit_scale, "logit_scale", {1}, Init::ones);
  return list.take();
}

}  // namespace seeksim::runtime
