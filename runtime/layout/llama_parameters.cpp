// The registration order is that of Hugging Face's files; it is part of the contract, as GPT-2's is.
#include "runtime/layout/llama_parameters.h"

#include "runtime/layout/gpt2_parameters.h"
#include "runtime/layout/parameter_list.h"

namespace seeksim::runtime {
namespace {

constexpr std::array<const char*, std::size_t(LayerPart::count_)> kPartNames = {
    "input_layernorm.weight",          "", "self_attn.qkv_proj.weight", "", "self_attn.o_proj.weight", "",
    "post_attention_layernorm.weight", "", "mlp.gate_up_proj.weight",   "", "mlp.down_proj.weight",    ""};

}  // namespace

std::vector<ParameterInfo> llama_parameters(const ModelPlan& plan, bool decay_all) {
  static const LayerNames names("model.layers", kPartNames);
  const ModelShape s(plan);
  ParameterList list(decay_all);
  list.split(EmbeddingPart::tokens, "model.embed_tokens.weight", {s.V, s.C}, s.vocab_segment(), Init::normal,
             HfLayout::same);
  for (int l = 0; l < s.L; ++l) {
    using enum LayerPart;
    list.begin_module(l + 1);
    auto norm = [&](LayerPart part) { list.whole(part, names.of(l, part), {s.C}, Init::ones); };
    auto split = [&](LayerPart part, std::vector<Index> shape, Index slab_rows, HfLayout layout) {
      list.split(part, names.of(l, part), std::move(shape), slab_rows, Init::normal, layout);
    };
    norm(ln_1_weight);
    split(c_attn_weight, {s.Q, s.C}, s.qkv_segment(), HfLayout::grouped_qkv);
    split(c_proj_weight, {s.C, s.C}, s.heads_segment(), HfLayout::transposed);
    norm(ln_2_weight);
    split(c_fc_weight, {s.U, s.C}, s.up_segment(), HfLayout::gate_up);
    split(mlp_proj_weight, {s.F, s.C}, s.mlp_segment(), HfLayout::transposed);
  }
  list.begin_module(s.L + 1);
  list.whole(HeadPart::norm_weight, "model.norm.weight", {s.C}, Init::ones);
  if (!plan.tied)
    list.split(HeadPart::head, "lm_head.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  if (plan.logit_scale) list.whole(HeadPart::logit_scale, "logit_scale", {1}, Init::ones);
  return list.take();
}

}  // namespace seeksim::runtime
