#include "runtime/rules/fp8_scaling.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "kernels/digest.h"

namespace seeksim::runtime {

std::string_view name(Fp8Use use) {
  switch (use) {
    case Fp8Use::input:
      return "input";
    case Fp8Use::weight:
      return "weight";
    case Fp8Use::gradient:
      return "gradient";
    case Fp8Use::count_:
      break;
  }
  return "";
}

kernels::Fp8 fp8_format(const Fp8Plan& plan, Fp8Use use) {
  return use == Fp8Use::gradient && plan.format == Fp8Format::hybrid ? kernels::Fp8::e5m2 : kernels::Fp8::e4m3;
}

kernels::Fp8Rule fp8_rule(const Fp8Plan& plan, Fp8Use use) {
  return {fp8_format(plan, use), plan.margin, plan.power_2_scale};
}

void move_on(const Fp8Plan& plan, Fp8Use use, float amax, Fp8State& state) {
  const bool finite = amax <= 0x1.fffffep127F;
  state.amax_history.push_front(finite ? amax : 0);
  if (state.amax_history.size() > std::size_t(plan.amax_history_len)) state.amax_history.pop_back();
  const float decides = plan.most_recent ? state.amax_history.front()
                                         : *std::max_element(state.amax_history.begin(), state.amax_history.end());
  state.scale = kernels::fp8_scale(fp8_rule(plan, use), decides, state.scale);
}

Fp8Scales::Fp8Scales(const Fp8Plan& plan, int layers)
    : plan_(plan), count_(plan.keeps_state() ? std::size_t(fp8_tensors(layers)) : 0), states_(count_) {}

void Fp8Scales::update(std::span<const float> amaxes) {
  if (amaxes.empty()) return;
  SEEKSIM_CHECK_EQ(amaxes.size(), states_.size());
  for (std::size_t i = 0; i < amaxes.size(); ++i) move_on(plan_, fp8_use(int(i)), amaxes[i], states_[i]);
}

void Fp8Scales::restore(const std::vector<Fp8State>& states) {
  SEEKSIM_CHECK(states.empty() || states.size() == count_, "%zu states of %zu tensors", states.size(), count_);
  states_ = states;
  states_.resize(count_);
}

std::uint64_t Fp8Scales::digest() const {
  std::uint64_t all = 0;
  for (const Fp8State& state : states_) {
    all = kernels::combine(all, std::bit_cast<std::uint32_t>(state.scale));
    for (const float amax : state.amax_history) all = kernels::combine(all, std::bit_cast<std::uint32_t>(amax));
  }
  return all;
}

}  // namespace seeksim::runtime
