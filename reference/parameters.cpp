#include "reference/parameters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/random.h"

namespace seeksim::reference {
namespace {

using Start = Parameter::Start;

struct List {
  const Model& m;
  std::vector<Parameter> all = {};
  std::uint32_t streams = 0;

  void add(const std::string& name, Part part, int layer, int rows, int cols, Start start, bool shares = false) {
    const bool matrix = start == Start::normal || start == Start::residual;  // of one column, too
    Parameter p{name, part, layer, -1, rows, cols, start, matrix, false, shares ? streams - 1 : streams};
    if (!shares) ++streams;
    all.push_back(std::move(p));
  }
};

void gpt2(List& list) {
  const Model& m = list.m;
  list.add("wte.weight", Part::tokens, -1, m.V, m.C, Start::normal);
  list.add("wpe.weight", Part::positions, -1, m.T, m.C, Start::normal);
  for (int l = 0; l < m.L; ++l) {
    const std::string h = "h." + std::to_string(l) + '.';
    list.add(h + "ln_1.weight", Part::norm1, l, m.C, 1, Start::ones);
    list.add(h + "ln_1.bias", Part::norm1_bias, l, m.C, 1, Start::zeros);
    list.add(h + "attn.c_attn.weight", Part::qkv, l, m.C, 3 * m.C, Start::normal);
    list.add(h + "attn.c_attn.bias", Part::qkv_bias, l, 3 * m.C, 1, Start::zeros);
    list.add(h + "attn.c_proj.weight", Part::attention_out, l, m.C, m.C, Start::residual);
    list.add(h + "attn.c_proj.bias", Part::attention_out_bias, l, m.C, 1, Start::zeros);
    list.add(h + "ln_2.weight", Part::norm2, l, m.C, 1, Start::ones);
    list.add(h + "ln_2.bias", Part::norm2_bias, l, m.C, 1, Start::zeros);
    list.add(h + "mlp.c_fc.weight", Part::up, l, m.C, m.F, Start::normal);
    list.add(h + "mlp.c_fc.bias", Part::up_bias, l, m.F, 1, Start::zeros);
    list.add(h + "mlp.c_proj.weight", Part::down, l, m.F, m.C, Start::residual);
    list.add(h + "mlp.c_proj.bias", Part::down_bias, l, m.C, 1, Start::zeros);
  }
  list.add("ln_f.weight", Part::norm, -1, m.C, 1, Start::ones);
  list.add("ln_f.bias", Part::norm_bias, -1, m.C, 1, Start::zeros);
}

// Under Mixtral's names, or DeepSeek's. All experts' gates and ups are stored together, and all their downs.
void experts(List& list, const std::string& layer, int l) {
  const Model& m = list.m;
  const bool deepseek = m.deepseek();
  const std::string h = layer + (deepseek ? "mlp." : "block_sparse_moe.");
  list.add(h + "gate.weight", Part::router, l, m.E, m.C, Start::normal);
  const auto of = [&](int e, const char* name, Part part, int rows, int cols, bool shares) {
    list.add(h + "experts." + std::to_string(e) + name, part, l, rows, cols, Start::normal, shares);
    list.all.back().expert = e;
  };
  for (int e = 0; e < m.E; ++e) {
    of(e, deepseek ? ".gate_proj.weight" : ".w1.weight", Part::expert_gate, m.F, m.C, e > 0);
    of(e, deepseek ? ".up_proj.weight" : ".w3.weight", Part::expert_up, m.F, m.C, true);
  }
  for (int e = 0; e < m.E; ++e)
    of(e, deepseek ? ".down_proj.weight" : ".w2.weight", Part::expert_down, m.C, m.F, e > 0);
  if (m.shared == 0) return;
  const int wide = m.shared * m.F;
  list.add(h + "shared_experts.gate_proj.weight", Part::shared_gate, l, wide, m.C, Start::normal);
  list.add(h + "shared_experts.up_proj.weight", Part::shared_up, l, wide, m.C, Start::normal, true);
  list.add(h + "shared_experts.down_proj.weight", Part::shared_down, l, m.C, wide, Start::normal);
}

void llama(List& list) {
  const Model& m = list.m;
  list.add("model.embed_tokens.weight", Part::tokens, -1, m.V, m.C, Start::normal);
  for (int l = 0; l < m.L; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + '.';
    list.add(h + "input_layernorm.weight", Part::norm1, l, m.C, 1, Start::ones);
    list.add(h + "self_attn.q_proj.weight", Part::q, l, m.H * m.D(), m.C, Start::normal);
    list.add(h + "self_attn.k_proj.weight", Part::k, l, m.K * m.D(), m.C, Start::normal, true);
    list.add(h + "self_attn.v_proj.weight", Part::v, l, m.K * m.D(), m.C, Start::normal, true);
    list.add(h + "self_attn.o_proj.weight", Part::attention_out, l, m.C, m.H * m.D(), Start::normal);
    list.add(h + "post_attention_layernorm.weight", Part::norm2, l, m.C, 1, Start::ones);
    if (m.routed(l)) {
      experts(list, h, l);
      continue;
    }
    const int wide = m.E > 0 ? m.dense_F : m.F;
    list.add(h + "mlp.gate_proj.weight", Part::gate, l, wide, m.C, Start::normal);
    list.add(h + "mlp.up_proj.weight", Part::up, l, wide, m.C, Start::normal, true);
    list.add(h + "mlp.down_proj.weight", Part::down, l, m.C, wide, Start::normal);
  }
  list.add("model.norm.weight", Part::norm, -1, m.C, 1, Start::ones);
}

// Where an element lies in storage, whose elements the streams count: rows of outputs before those of inputs where
// products split their columns; queries, keys and values by key head; gates and ups by eighths of F.
std::uint64_t stored_at(const Model& m, const Parameter& p, int row, int col) {
  const int D = m.D();
  switch (p.part) {
    case Part::qkv: {  // (C, 3C): column = (q|k|v, head, element)
      const int part = col / m.C, head = col % m.C / D, element = col % D;
      return std::uint64_t((head * 3 + part) * D + element) * std::uint64_t(m.C) + std::uint64_t(row);
    }
    case Part::q:
    case Part::k:
    case Part::v: {
      const int head = row / D, element = row % D, of_group = m.G() + 2;
      const int place = p.part == Part::q ? head / m.G() * of_group + head % m.G()
                                          : head * of_group + m.G() + (p.part == Part::v ? 1 : 0);
      return std::uint64_t(place * D + element) * std::uint64_t(m.C) + std::uint64_t(col);
    }
    case Part::gate:
    case Part::up:
    case Part::expert_gate:
    case Part::expert_up:
    case Part::shared_gate:
    case Part::shared_up: {
      if (!m.llama) break;
      const bool up = p.part == Part::up || p.part == Part::expert_up || p.part == Part::shared_up;
      const int slab = (p.rows + 7) / 8, first = row / slab * slab, size = std::min(slab, p.rows - first);
      const int place = std::max(p.expert, 0) * 2 * m.F + 2 * first + (up ? size : 0) + row - first;
      return std::uint64_t(place) * std::uint64_t(m.C) + std::uint64_t(col);
    }
    case Part::expert_down:
      return std::uint64_t(p.expert * m.F + col) * std::uint64_t(m.C) + std::uint64_t(row);
    default:
      break;
  }
  const bool down = p.part == Part::down || p.part == Part::shared_down;
  const bool turned = m.llama ? p.part == Part::attention_out || down : p.part == Part::up;
  return turned ? std::uint64_t(col) * std::uint64_t(p.rows) + std::uint64_t(row)
                : std::uint64_t(row) * std::uint64_t(p.cols) + std::uint64_t(col);
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name;
  if (name.compare(0, star, pattern, 0, star) != 0) return false;
  const std::string rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at) {
    if (matches(rest, name.substr(at))) return true;
  }
  return false;
}

std::vector<Parameter> parameters_of(const Model& model) {
  List list{model};
  model.llama ? llama(list) : gpt2(list);
  if (!model.tied) list.add("lm_head.weight", Part::head, -1, model.V, model.C, Start::normal);
  for (Parameter& p : list.all) {
    p.frozen = std::any_of(model.frozen.begin(), model.frozen.end(),
                           [&](const std::string& pattern) { return matches(pattern, p.name); });
  }
  return list.all;
}

int find(const std::vector<Parameter>& all, Part part, int layer, int expert) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].part == part && all[i].layer == layer && all[i].expert == expert) return int(i);
  }
  return -1;
}

double initial_value(const Training& t, const Parameter& p, std::size_t element) {
  if (p.start == Start::ones || p.start == Start::zeros) return p.start == Start::ones ? 1 : 0;
  const double residual = p.start == Start::residual ? std::sqrt(2.0 * t.model.L) : 1;
  const double stddev = double(static_cast<float>(t.model.init_stddev / residual));
  const int row = int(element) / p.cols, col = int(element) % p.cols;
  return stddev * standard_normal(t.seed, p.stream, stored_at(t.model, p, row, col));
}

std::vector<double> initial_values(const Training& t, const Parameter& p) {
  std::vector<double> out(p.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = initial_value(t, p, i);
  return out;
}

double unit_of(Type type) { return type == Type::f32 || type == Type::f64 ? 0 : type == Type::bf16 ? 0x1p-8 : 0x1p-11; }
double tiny_of(Type type) {
  return type == Type::f32 || type == Type::f64 ? 0 : type == Type::bf16 ? 0x1p-134 : 0x1p-25;
}
double largest_of(Type type) {
  return type == Type::f16 ? 65504.0 : type == Type::bf16 ? 0x1.fep127 : double(std::numeric_limits<float>::max());
}

double nearest(double x, Type type) {
  if (type == Type::f64 || x == 0 || !std::isfinite(x)) return x;
  const int digits = type == Type::f32 ? 24 : type == Type::bf16 ? 8 : 11;
  const int least = type == Type::f16 ? -24 : type == Type::bf16 ? -133 : -149;  // exponent of the smallest denormal
  const int exponent = std::max(std::ilogb(x) - digits + 1, least);
  const double near = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::abs(near) > largest_of(type) ? std::copysign(std::numeric_limits<double>::infinity(), x) : near;
}

}  // namespace seeksim::reference
