#include "harness/oracles/flops.h"

namespace seeksim::harness {
namespace {

constexpr double kPerProduct = 2;  // a multiplication and an addition
constexpr double kPasses = 3;      // forward, and backward for inputs and weights

}  // namespace

std::vector<ModuleFlops> flops_of_sample(const runtime::ModelPlan& m) {
  if (m.own != nullptr) return {};
  const double L = m.layers, C = m.width, T = m.context, V = m.vocab, F = m.hidden();
  const double keys = C / m.heads * m.key_heads();
  const auto of_layers = [&](double products_a_token) { return kPasses * kPerProduct * L * T * products_a_token; };
  std::vector<ModuleFlops> all = {{"attention projections", of_layers(C * (C + 2 * keys) + C * C)},
                                  {"attention", of_layers(2 * T * C)}};
  const double mlp = (m.llama() ? 3 : 2) * C * F;
  if (m.experts.on()) {
    const double routed = m.experts.layers(m.layers) / L, dense = m.llama() ? 3 * C * m.dense_hidden() : 0;
    all.push_back({"router", of_layers(routed * C * m.experts.count)});
    all.push_back({"experts", of_layers(routed * mlp * m.experts.per_token)});
    if (m.experts.shared > 0) all.push_back({"shared experts", of_layers(routed * mlp * m.experts.shared)});
    if (m.experts.dense_layers > 0) all.push_back({"mlp", of_layers((1 - routed) * dense)});
  } else {
    all.push_back({"mlp", of_layers(mlp)});
  }
  all.push_back({"head", kPasses * kPerProduct * T * C * V});
  return all;
}

double flops_of_step(const runtime::Definition& definition) {
  double flops = 0;
  for (const ModuleFlops& one : flops_of_sample(definition.model)) flops += one.flops;
  return flops * definition.global_batch;
}

}  // namespace seeksim::harness
