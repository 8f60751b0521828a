#include "runtime/zero/speculative_step.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

SpeculativeStep::SpeculativeStep(Device& device, const StateInUse& own, Optimizer optimizer, const PlantedBug& bug,
                                 Space space)
    : bug_(bug), optimizer_(std::move(optimizer)) {
  const Index n = own.elements;
  const auto beside = [&](const char* name, ElementType type) {
    const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * size_of(type);
    buffers_.push_back(device.allocate_in(space, bytes, MemoryTag::staging, name));
    return AnyVec(buffers_.back().get(), 0, n, type);
  };
  parameters_ = beside("parameters, guessed", own.parameters.type);
  if (own.masters.buffer == own.parameters.buffer)
    masters_ = parameters_.as<float>();
  else if (own.masters.buffer != nullptr)
    masters_ = beside("fp32 masters, guessed", ElementType::f32).as<float>();
}

void SpeculativeStep::begin(Launcher& launch, const StateInUse& own, float grad_factor, double lr) {
  begun_ = true;
  grad_factor_ = grad_factor;
  lr_ = lr;
  done_.clear();
  optimizer_.continue_from(own.optimizer);
  constants_ = optimizer_.begin_step(launch, own.masters.buffer != nullptr, grad_factor, lr);
}

OptimizerSpaces SpeculativeStep::spaces(const Optimizer& optimizer, VecView<float> masters, AnyVec parameters,
                                        AnyVec gradients, Index at, Index n) {
  OptimizerSpaces spaces{masters.buffer != nullptr ? masters.part(at, n) : VecView<float>{}, parameters.part(at, n),
                         gradients.part(at, n)};
  std::vector<AnyVec> kept;
  for (const AnyVec& all : optimizer.states()) kept.push_back(all.part(at, n));
  optimizer.place(kept, spaces);
  return spaces;
}

// What defines a shard, and the parameters to compute with.
std::vector<AnyVec> SpeculativeStep::values(const Optimizer& optimizer, VecView<float> masters,
                                            AnyVec parameters) const {
  std::vector<AnyVec> all = optimizer.states();
  if (masters.buffer != nullptr && masters.buffer != parameters.buffer) all.emplace_back(masters);
  all.push_back(parameters);
  return all;
}

void SpeculativeStep::update(Launcher& launch, const StateInUse& own, Index at, Index n) {
  if (!begun_ || n == 0) return;
  round_values(launch, "gradients", SEEKSIM_SITE, own.sums.part(at, n), own.gradients.part(at, n));
  guess(launch, own, at, n);
  done_.emplace_back(at, at + n);
}

// Where the optimizer cannot leave the state, it is copied first.
void SpeculativeStep::guess(Launcher& launch, const StateInUse& own, Index at, Index n) {
  const OptimizerSpaces to = spaces(optimizer_, masters_, parameters_, own.gradients, at, n),
                        from = spaces(own.optimizer, own.masters, own.parameters, own.gradients, at, n);
  const bool leaves = masters_.buffer != nullptr && !optimizer_.takes_matrices();
  const auto copy = [&](AnyVec old, AnyVec now) { copy_values(launch, "state", SEEKSIM_SITE, old, now); };
  if (!leaves)
    copy(masters_.buffer != nullptr ? AnyVec(from.masters) : from.compute,
         masters_.buffer != nullptr ? AnyVec(to.masters) : to.compute);
  for (const auto state : {&OptimizerSpaces::first, &OptimizerSpaces::second, &OptimizerSpaces::mean}) {
    const bool copied = !leaves || state == &OptimizerSpaces::mean;
    if (copied && (to.*state).buffer != nullptr) copy(from.*state, to.*state);
  }
  optimizer_.update(launch, constants_, at, to, {}, leaves ? &from : nullptr);
}

SpeculativeStep::Ranges SpeculativeStep::rest(Index elements) const {
  Ranges done = done_, rest;
  std::ranges::sort(done);
  done.emplace_back(elements, elements);
  Index at = 0;
  for (const auto& [first, end] : done) {
    SEEKSIM_CHECK(first >= at, "gradients [%lld, ...) came twice", static_cast<long long>(first));
    if (first > at) rest.emplace_back(at, first);
    at = end;
  }
  return rest;
}

bool SpeculativeStep::holds(float grad_factor, double lr) const {
  const bool as_guessed = grad_factor == grad_factor_ || bug_.is(Bug::speculation_kept_when_clipped);
  return begun_ && as_guessed && lr == lr_;
}

// Where most was guessed, the rest is made beside it and both change places; else it is made where the state is, and
// what was guessed is copied there. Where rounding is counted all of it is counted in one place.
void SpeculativeStep::take(Launcher& launch, const StateInUse& own, const Optimizer::Updated& updated) {
  const Ranges rest = this->rest(own.elements);
  Index left = 0;
  for (const auto& [first, end] : rest) left += end - first;
  begun_ = false;
  if (2 * left <= own.elements || own.masters.buffer == nullptr) {
    for (const auto& [first, end] : rest) guess(launch, own, first, end - first);
    std::swap(own.parameters, parameters_);
    std::swap(own.masters, masters_);
    if (bug_.is(Bug::speculation_leaves_moments))
      own.optimizer.continue_from(optimizer_);
    else
      own.optimizer.exchange(optimizer_);
    return updated(0, own.elements);
  }
  own.optimizer.begin_step(launch, true, grad_factor_, lr_);
  for (const auto& [first, end] : rest) {
    const OptimizerSpaces here = spaces(own.optimizer, own.masters, own.parameters, own.gradients, first, end - first);
    own.optimizer.update(launch, constants_, first, here, updated);
  }
  const std::vector<AnyVec> from = values(optimizer_, masters_, parameters_),
                            to = values(own.optimizer, own.masters, own.parameters);
  for (const auto& [first, end] : done_) {
    for (std::size_t i = 0; i < from.size(); ++i)
      copy_values(launch, "state", SEEKSIM_SITE, from[i].part(first, end - first), to[i].part(first, end - first));
    updated(first, end - first);
  }
}

}  // namespace seeksim::runtime
