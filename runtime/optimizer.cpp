// Scalars of a step are computed here once, in double, and passed as fp32 bits, so that no rank or device computes them
// again in its own way (NUMERICS.md, R6).
#include "runtime/optimizer.h"

#include "kernels/check.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "runtime/host_math.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

Optimizer::Optimizer(Device& device, const OptimizerPlan& plan, const Gpt2Parameters& parameters)
    : plan_(plan), parameters_(parameters) {
  SEEKSIM_CHECK(plan.type == "AdamW" || plan.type == "Adam", "no optimizer '%s'", plan.type.c_str());
  const std::size_t bytes = static_cast<std::size_t>(parameters.size()) * sizeof(float);
  m_ = device.allocate(bytes, MemoryTag::optimizer, "adam m");
  v_ = device.allocate(bytes, MemoryTag::optimizer, "adam v");
}

void Optimizer::reset(Launcher& launch) {
  steps_ = 0;
  beta1_power_ = beta2_power_ = 1;
  for (Buffer* moments : {m_.get(), v_.get()}) {
    launch(
        moments->name, SEEKSIM_SITE, memory_cost(parameters_.size(), 0),
        [](Lane lane, Vec<float> x) { kernels::fill_bits(lane, x, 0); }, vec<float>(*moments));
  }
}

void Optimizer::step(Launcher& launch, Buffer& weights, Buffer& gradients, float grad_factor, double lr) {
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
  for (const ParameterInfo& p : parameters_.all()) {
    constants.weight_decay = p.decays ? static_cast<float>(plan_.weight_decay) : 0.0f;
    launch(
        p.name, SEEKSIM_SITE, memory_cost(7 * p.size, 2),
        [constants](Lane lane, Vec<const float> grad, Vec<float> param, Vec<float> m, Vec<float> v) {
          kernels::adamw(lane, constants, grad, param, m, v);
        },
        vector_of<const float>(gradients, p), vector_of<float>(weights, p), vector_of<float>(*m_, p),
        vector_of<float>(*v_, p));
  }
}

}  // namespace seeksim::runtime
