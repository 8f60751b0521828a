// The registration order is llm.c's and GPT-2's; it decides the order in which norms are summed and digests combined,
// and the number by which a parameter's random stream is named, so it is part of the contract.
#include "runtime/gpt2_parameters.h"

#include <array>
#include <cstdio>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

constexpr int kParts = int(LayerPart::count_);
constexpr std::array<const char*, kParts> kPartNames = {
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

// Names must outlive every run, since the Ops of a finished run still point to them. A constant table, made once.
constexpr int kLayersMax = 256;
struct NameTable {
  char names[kLayersMax][kParts][32];
  NameTable() {
    for (int l = 0; l < kLayersMax; ++l) {
      for (int p = 0; p < kParts; ++p) std::snprintf(names[l][p], sizeof names[l][p], "h.%d.%s", l, kPartNames[p]);
    }
  }
};

const char* layer_name(int layer, LayerPart part) {
  static const NameTable table;
  return table.names[layer][int(part)];
}

}  // namespace

Gpt2Shape::Gpt2Shape(const ModelPlan& plan)
    : V(plan.vocab), T(plan.context), C(plan.width), H(plan.heads), D(0), F(4 * Index(plan.width)), L(plan.layers) {
  SEEKSIM_CHECK(V > 0 && T > 0 && C > 0 && H > 0 && L >= 0, "a model needs positive sizes");
  SEEKSIM_CHECK(C % H == 0, "width %lld is not a multiple of %lld heads", static_cast<long long>(C),
                static_cast<long long>(H));
  SEEKSIM_CHECK(L <= kLayersMax, "%d layers; names are made for %d", L, kLayersMax);
  D = C / H;
}

std::vector<ParameterInfo> gpt2_parameters(const ModelPlan& plan, bool decay_all) {
  const Gpt2Shape s(plan);
  std::vector<ParameterInfo> all;
  all.reserve(std::size_t(6 + kParts * s.L));
  int module = 0;
  auto add = [&](auto part, const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
    ParameterInfo info;
    info.name = name;
    info.decays = decay_all || shape.size() > 1;
    info.shape = std::move(shape);
    info.splits = slab_rows > 0;
    info.slab = (slab_rows > 0 ? slab_rows : info.rows()) * info.cols();
    info.init = init;
    info.layout = layout;
    info.module = module;
    info.part = int(part);
    all.push_back(std::move(info));
  };
  auto whole = [&](auto part, const char* name, std::vector<Index> shape, Init init) {
    add(part, name, std::move(shape), 0, init, HfLayout::same);
  };
  add(EmbeddingPart::tokens, "wte.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  whole(EmbeddingPart::positions, "wpe.weight", {s.T, s.C}, Init::normal);
  for (int l = 0; l < s.L; ++l) {
    using enum LayerPart;
    ++module;
    auto name = [l](LayerPart part) { return layer_name(l, part); };
    auto plain = [&](LayerPart part, Init init) { whole(part, name(part), {s.C}, init); };
    auto split = [&](LayerPart part, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
      add(part, name(part), std::move(shape), slab_rows, init, layout);
    };
    plain(ln_1_weight, Init::ones);
    plain(ln_1_bias, Init::zeros);
    split(c_attn_weight, {3 * s.C, s.C}, s.qkv_segment(), Init::normal, HfLayout::qkv_transposed);
    split(c_attn_bias, {3 * s.C}, s.qkv_segment(), Init::zeros, HfLayout::qkv);
    split(c_proj_weight, {s.C, s.C}, s.heads_segment(), Init::residual, HfLayout::same);
    plain(c_proj_bias, Init::zeros);
    plain(ln_2_weight, Init::ones);
    plain(ln_2_bias, Init::zeros);
    split(c_fc_weight, {s.F, s.C}, s.mlp_segment(), Init::normal, HfLayout::transposed);
    split(c_fc_bias, {s.F}, s.mlp_segment(), Init::zeros, HfLayout::same);
    split(mlp_proj_weight, {s.F, s.C}, s.mlp_segment(), Init::residual, HfLayout::same);
    plain(mlp_proj_bias, Init::zeros);
  }
  ++module;
  whole(HeadPart::norm_weight, "ln_f.weight", {s.C}, Init::ones);
  whole(HeadPart::norm_bias, "ln_f.bias", {s.C}, Init::zeros);
  if (!plan.tied) add(HeadPart::head, "lm_head.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  if (plan.logit_scale) whole(HeadPart::logit_scale, "logit_scale", {1}, Init::ones);
  return all;
}

}  // namespace seeksim::runtime
