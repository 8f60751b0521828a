// Scalars of a step are computed here once, in double, and passed as fp32 bits, so that no rank or device computes them
// again in its own way (NUMERICS.md, R6).
#include "runtime/optimizer.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "runtime/host_math.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

// Pieces of at most `limit` elements.
std::vector<ParameterPiece> cut_pieces(const std::vector<ParameterPiece>& pieces, Index limit) {
  if (limit <= 0) return pieces;
  std::vector<ParameterPiece> cut;
  for (const ParameterPiece& piece : pieces) {
    for (Index at = 0; at < piece.size; at += limit) {
      cut.push_back({piece.parameter, piece.first + at, std::min(limit, piece.size - at)});
    }
  }
  return cut;
}

}  // namespace

Optimizer::Optimizer(Device& device, const OptimizerPlan& plan, std::vector<ParameterPiece> pieces, Index sub_group,
                     MemoryTag tag)
    : plan_(plan), pieces_(cut_pieces(pieces, sub_group)) {
  SEEKSIM_CHECK(plan.type == "AdamW" || plan.type == "Adam", "no optimizer '%s'", plan.type.c_str());
  for (const ParameterPiece& piece : pieces_) size_ += piece.size;
  const std::size_t bytes = static_cast<std::size_t>(std::max<Index>(size_, 1)) * sizeof(float);
  m_ = device.allocate(bytes, tag, "adam m");
  v_ = device.allocate(bytes, tag, "adam v");
}

void Optimizer::reset(Launcher& launch) {
  steps_ = 0;
  beta1_power_ = beta2_power_ = 1;
  for (Buffer* moments : {m_.get(), v_.get()}) {
    launch(
        moments->name, SEEKSIM_SITE, memory_cost(size_, 0),
        [](Lane lane, Vec<float> x) { kernels::fill_bits(lane, x, 0); }, vec<float>(*moments));
  }
}

void Optimizer::continue_from(const Optimizer& other) {
  steps_ = other.steps_;
  beta1_power_ = other.beta1_power_;
  beta2_power_ = other.beta2_power_;
}

void Optimizer::step(Launcher& launch, VecView<float> weights, VecView<const float> gradients, float grad_factor,
                     double lr) {
  ++steps_;
  beta1_power_ *= plan_.betas[0];
  beta2_power_ *= plan_.betas[1];
  kernels::AdamWStep constants;
  constants.lr = static_cast<float>(lr);
  constants.beta1 = static_cast<float>(plan_.betas[0]);
  constants.beta2 = static_cast<float>(plan_.betas[1]);
  constants.one_minus_beta1 = static_cast<float>(1.0 - plan_.betas[0]);
  constants.one_minus_beta2 = static_cast<float>(1.0 - plan_.betas[1]);
  constants.eps = static_cast<float>(plan_.eps);
  constants.inverse_bias1 = static_cast<float>(1.0 / (1.0 - beta1_power_));
  constants.inverse_sqrt_bias2 = static_cast<float>(1.0 / host_sqrt(1.0 - beta2_power_));
  constants.grad_factor = grad_factor;
  constants.decoupled = plan_.type == "AdamW";
  Index at = 0;
  for (const ParameterPiece& p : pieces_) {
    constants.weight_decay = p.parameter->decays ? static_cast<float>(plan_.weight_decay) : 0.0f;
    launch(
        p.parameter->name, SEEKSIM_SITE, memory_cost(7 * p.size, 2),
        [constants](Lane lane, Vec<const float> grad, Vec<float> param, Vec<float> m, Vec<float> v) {
          kernels::adamw(lane, constants, grad, param, m, v);
        },
        gradients.part(at, p.size), weights.part(at, p.size), first_moments().part(at, p.size),
        second_moments().part(at, p.size));
    at += p.size;
  }
}

}  // namespace seeksim::runtime
