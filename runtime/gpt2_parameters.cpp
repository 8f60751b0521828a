// The registration order is llm.c's and GPT-2's; it decides the order in which norms are summed and digests combined,
// and the number by which a parameter's random stream is named, so it is part of the contract.
#include "runtime/gpt2_parameters.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "runtime/host_math.h"

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

const char* layer_name(int layer, int part) {
  static const NameTable table;
  return table.names[layer][part];
}

bool is_frozen(const ModelPlan& plan, std::string_view name) {
  return std::any_of(plan.frozen.begin(), plan.frozen.end(),
                     [name](const std::string& pattern) { return matches(pattern, name); });
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

Gpt2Parameters::Gpt2Parameters(const ModelPlan& plan, bool decay_all)
    : layers_(plan.layers), tied_(plan.tied), scaled_(plan.logit_scale) {
  const Gpt2Shape s(plan);
  all_.reserve(6 + kParts * s.L);
  auto whole = [&](const char* name, std::vector<Index> shape, Init init, HfLayout layout = HfLayout::same) {
    const Index rows = shape[0];
    add(name, std::move(shape), rows, init, layout, decay_all);
  };
  auto split = [&](const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout) {
    add(name, std::move(shape), slab_rows, init, layout, decay_all);
  };
  split("wte.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  whole("wpe.weight", {s.T, s.C}, Init::normal);
  for (int l = 0; l < s.L; ++l) {
    auto name = [&](LayerPart part) { return layer_name(l, int(part)); };
    whole(name(LayerPart::ln_1_weight), {s.C}, Init::ones);
    whole(name(LayerPart::ln_1_bias), {s.C}, Init::zeros);
    split(name(LayerPart::c_attn_weight), {3 * s.C, s.C}, s.qkv_segment(), Init::normal, HfLayout::qkv_transposed);
    split(name(LayerPart::c_attn_bias), {3 * s.C}, s.qkv_segment(), Init::zeros, HfLayout::qkv);
    split(name(LayerPart::c_proj_weight), {s.C, s.C}, s.heads_segment(), Init::residual, HfLayout::same);
    whole(name(LayerPart::c_proj_bias), {s.C}, Init::zeros);
    whole(name(LayerPart::ln_2_weight), {s.C}, Init::ones);
    whole(name(LayerPart::ln_2_bias), {s.C}, Init::zeros);
    split(name(LayerPart::c_fc_weight), {s.F, s.C}, s.mlp_segment(), Init::normal, HfLayout::transposed);
    split(name(LayerPart::c_fc_bias), {s.F}, s.mlp_segment(), Init::zeros, HfLayout::same);
    split(name(LayerPart::mlp_proj_weight), {s.F, s.C}, s.mlp_segment(), Init::residual, HfLayout::same);
    whole(name(LayerPart::mlp_proj_bias), {s.C}, Init::zeros);
  }
  whole("ln_f.weight", {s.C}, Init::ones);
  whole("ln_f.bias", {s.C}, Init::zeros);
  if (!tied_) split("lm_head.weight", {s.V, s.C}, s.vocab_segment(), Init::normal, HfLayout::same);
  if (scaled_) whole("logit_scale", {1}, Init::ones);
  for (ParameterInfo& p : all_) p.frozen = is_frozen(plan, p.name);
  place();
}

void Gpt2Parameters::place() {
  for (const bool frozen : {false, true}) {
    for (ParameterInfo& p : all_) {
      if (p.frozen != frozen) continue;
      p.offset = size_;
      size_ += p.size;
      (frozen ? frozen_ : trainable_).push_back(&p);
    }
    if (!frozen) trainable_size_ = size_;
  }
  SEEKSIM_CHECK(trainable_size_ > 0, "all %zu parameters are frozen: nothing is left to train", all_.size());
}

void Gpt2Parameters::add(const char* name, std::vector<Index> shape, Index slab_rows, Init init, HfLayout layout,
                         bool decay_all) {
  ParameterInfo info;
  info.name = name;
  info.decays = decay_all || shape.size() > 1;
  info.shape = std::move(shape);
  info.size = info.rows() * info.cols();
  info.slab = slab_rows * info.cols();
  info.init = init;
  info.layout = layout;
  all_.push_back(std::move(info));
}

bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at) {
    if (matches(rest, name.substr(at))) return true;
  }
  return false;
}

std::vector<std::string> parameter_names(const ModelPlan& plan) {
  ModelPlan small;
  small.layers = std::clamp(plan.layers, 0, kLayersMax);
  small.width = small.heads = small.context = small.vocab = 1;
  small.tied = plan.tied;
  small.logit_scale = plan.logit_scale;
  const Gpt2Parameters parameters(small, false);
  std::vector<std::string> names;
  for (const ParameterInfo& p : parameters.all()) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> frozen_names(const ModelPlan& plan) {
  std::vector<std::string> names = parameter_names(plan);
  std::erase_if(names, [&](const std::string& name) { return !is_frozen(plan, name); });
  return names;
}

void draw_parameter(const ModelPlan& plan, std::uint64_t seed, Init init, std::uint32_t number, kernels::Vec<float> out,
                    Index first) {
  const kernels::Lane here;
  switch (init) {
    case Init::zeros:
      return kernels::fill_bits(here, out, 0);
    case Init::ones:
      return kernels::fill_bits(here, out, 0x3f800000u);
    case Init::normal:
      return kernels::fill_normal(here, out, number, std::uint64_t(first), static_cast<float>(plan.init_stddev), seed);
    case Init::residual: {
      // The residual stream adds 2 * layers of these; GPT-2 keeps its variance by scaling each.
      const double stddev = plan.init_stddev / host_sqrt(2.0 * plan.layers);
      return kernels::fill_normal(here, out, number, std::uint64_t(first), static_cast<float>(stddev), seed);
    }
  }
}

}  // namespace seeksim::runtime
