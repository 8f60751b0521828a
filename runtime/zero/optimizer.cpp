// Scalars of a step are computed here once, in double, and passed as fp32 bits, so that no rank or device computes them
// again in its own way (docs/numerics.md#r6).
#include "runtime/zero/optimizer.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "kernels/check.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/host_math.h"
#include "runtime/rules/mutants.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Stagnation;
using kernels::Vec;

namespace {

// Pieces of at most `limit` elements, but for matrices that are taken as wholes.
std::vector<ParameterPiece> cut_pieces(const std::vector<ParameterPiece>& pieces, Index limit) {
  if (limit <= 0) return pieces;
  std::vector<ParameterPiece> cut;
  for (const ParameterPiece& piece : pieces) {
    if (!piece.parameter->matrices.empty()) {
      cut.push_back(piece);
      continue;
    }
    for (Index at = 0; at < piece.size; at += limit) {
      cut.push_back({piece.parameter, piece.first + at, std::min(limit, piece.size - at)});
    }
  }
  return cut;
}

// mean = mean + weight * (weights - mean).
void launch_mean(Launcher& launch, const char* name, float weight, AnyVec weights, VecView<float> mean) {
  with_float_type(weights.type, [&](auto like) {
    using T = decltype(like);
    launch(
        name, SEEKSIM_SITE, memory_cost(3 * mean.n, 2.0 / 3),
        [weight](Lane lane, Vec<const T> x, Vec<float> y) { kernels::move_mean<T>(lane, weight, x, y); },
        weights.as<const T>(), mean);
  });
}

}  // namespace

Optimizer::Optimizer(Device& device, const OptimizerPlan& plan, std::vector<ParameterPiece> pieces, Index sub_group,
                     MemoryTag tag, Space space, bool rounds)
    : device_(device),
      plan_(plan),
      kind_(kind_of(plan)),
      moments_(moments_of(plan)),
      pieces_(cut_pieces(pieces, sub_group)),
      tag_(tag),
      space_(space) {
  for (const ParameterPiece& piece : pieces_) size_ += piece.size;
  make_moments();
  if (OrthogonalUpdate::wants(pieces_)) orthogonal_.emplace(device, pieces_, space);
  // Now: a step of the optimizer is past the commit point, where nothing may fail any more.
  if (rounds) stagnation_ = device.allocate_in(space, sizeof(Stagnation), MemoryTag::scratch, "stagnation");
}

void Optimizer::make_moments() {
  const std::size_t bytes = static_cast<std::size_t>(std::max<Index>(size_, 1)) * sizeof(float);
  const std::array<BufferPtr*, 2> places = {&m_, &v_};
  for (int i = 0; i < moments_; ++i)
    *places[std::size_t(i)] = device_.allocate_in(space_, bytes, tag_, kind_.names[std::size_t(i)]);
  if (has_mean()) mean_ = device_.allocate_in(space_, bytes, tag_, state_names(plan_).back());
}

std::vector<AnyVec> Optimizer::states() const {
  std::vector<AnyVec> all;
  if (moments_ >= 1) all.emplace_back(first_moments());
  if (moments_ == 2) all.emplace_back(second_moments());
  if (has_mean()) all.emplace_back(mean());
  return all;
}

void Optimizer::place(std::span<const AnyVec> states, OptimizerSpaces& spaces) const {
  std::size_t at = 0;
  if (moments_ >= 1) spaces.first = states[at++].as<float>();
  if (moments_ == 2) spaces.second = states[at++].as<float>();
  if (has_mean()) spaces.mean = states[at].as<float>();
}

void Optimizer::drop_moments() {
  m_.reset();
  v_.reset();
  mean_.reset();
}

void Optimizer::reset(Launcher& launch, AnyVec weights) {
  steps_ = 0;
  beta1_power_ = beta2_power_ = 1;
  for (Buffer* state : {m_.get(), v_.get(), mean_.get()}) {
    if (state == nullptr) continue;
    launch(
        state->name, SEEKSIM_SITE, memory_cost(size_, 0),
        [](Lane lane, Vec<float> x) { kernels::fill_bits(lane, x, 0); }, vec<float>(*state));
  }
  if (has_mean()) launch_mean(launch, mean_->name, 1.0F, weights, mean());
}

void Optimizer::continue_at(std::int64_t steps) {
  steps_ = 0;
  beta1_power_ = beta2_power_ = 1;
  while (steps_ < steps) count_step();
}

void Optimizer::count_step() {
  beta1_power_ *= plan_.betas[0];
  if (!frozen()) beta2_power_ *= plan_.betas[1];
  ++steps_;
}

void Optimizer::continue_from(const Optimizer& other) {
  steps_ = other.steps_;
  beta1_power_ = other.beta1_power_;
  beta2_power_ = other.beta2_power_;
}

void Optimizer::exchange(Optimizer& other) {
  SEEKSIM_CHECK_EQ(size_, other.size_);
  m_.swap(other.m_);
  v_.swap(other.v_);
  mean_.swap(other.mean_);
  stagnation_.swap(other.stagnation_);
  std::swap(steps_, other.steps_);
  std::swap(beta1_power_, other.beta1_power_);
  std::swap(beta2_power_, other.beta2_power_);
}

kernels::OptimizerStep Optimizer::next_constants(float grad_factor, double lr) {
  kernels::OptimizerStep constants;
  constants.rule = frozen() ? kernels::OptimizerRule::frozen : rule_of(plan_);
  count_step();
  constants.lr = static_cast<float>(lr);
  constants.beta1 = static_cast<float>(plan_.betas[0]);
  constants.beta2 = static_cast<float>(plan_.betas[1]);
  constants.one_minus_beta1 = static_cast<float>(1.0 - plan_.betas[0]);
  constants.one_minus_beta2 = static_cast<float>(1.0 - plan_.betas[1]);
  constants.eps = static_cast<float>(plan_.eps);
  if (plan_.bias_correction) {
    constants.inverse_bias1 = static_cast<float>(1.0 / (1.0 - beta1_power_));
    constants.inverse_sqrt_bias2 = static_cast<float>(1.0 / host_sqrt(1.0 - beta2_power_));
  }
  constants.grad_factor = grad_factor;
  constants.decoupled = kind_.decoupled;
  if (kind_.rule == kernels::OptimizerRule::sgd) set_momentum(constants);
  if (orthogonal_) orthogonal_->begin_step(plan_.momentum, grad_factor, constants.lr);
  if (kind_.takes_matrices) constants.lr = static_cast<float>(lr * plan_.adamw_rate);
  return constants;
}

// torch's buffer is the first gradient itself, which no dampening makes less.
void Optimizer::set_momentum(kernels::OptimizerStep& constants) const {
  const bool first = steps_ == 1 && mutant_ != Mutant::sgd_dampens_first_step;
  constants.beta1 = static_cast<float>(plan_.momentum);
  constants.one_minus_beta1 = first ? 1.0F : static_cast<float>(1.0 - plan_.dampening);
}

void Optimizer::count_anew(Launcher& launch) {
  launch(
      "stagnation", SEEKSIM_SITE, {}, [](Lane lane, Vec<Stagnation> counts) { kernels::clear(lane, counts); },
      vec<Stagnation>(*stagnation_));
}

namespace {

// One launch on a piece of a shard. T: parameters to compute with; G: gradients.
template <class T, class G>
void launch_piece(Launcher& launch, const char* name, const kernels::OptimizerStep& step, VecView<float> masters,
                  VecView<T> compute, VecView<const G> gradients, VecView<float> m, VecView<float> v,
                  VecView<Stagnation> counts, Mutant mutant) {
  const int moments = kernels::moments_of(step.rule);
  const Cost cost = memory_cost((3 + 2 * moments) * compute.n, 2);
  // The views of a launch are those that it touches: no second moment where there is none.
  const auto enqueue = [&](auto kernel, auto parameters, auto... rest) {
    if (moments == 0) {
      launch(
          name, SEEKSIM_SITE, cost,
          [kernel](Lane lane, Vec<const G> grad, auto param, auto... more) {
            kernel(lane, grad, param, Vec<float>{}, Vec<float>{}, more...);
          },
          gradients, parameters, rest...);
    } else if (moments == 2) {
      launch(
          name, SEEKSIM_SITE, cost,
          [kernel](Lane lane, Vec<const G> grad, auto param, Vec<float> first, Vec<float> second, auto... more) {
            kernel(lane, grad, param, first, second, more...);
          },
          gradients, parameters, m, v, rest...);
    } else {
      launch(
          name, SEEKSIM_SITE, cost,
          [kernel](Lane lane, Vec<const G> grad, auto param, Vec<float> first, auto... more) {
            kernel(lane, grad, param, first, Vec<float>{}, more...);
          },
          gradients, parameters, m, rest...);
    }
  };
  if constexpr (std::is_same_v<T, float>) {
    enqueue(
        [step, mutant](Lane lane, Vec<const float> grad, Vec<float> param, Vec<float> first, Vec<float> second) {
          if (replaces_update(mutant, step.rule)) return mutated_update(mutant, lane, step, grad, param, first, second);
          kernels::optimize(lane, step, grad, param, first, second);
        },
        compute);
  } else if (masters.buffer != nullptr) {
    enqueue([step](Lane lane, Vec<const G> grad, Vec<float> master, Vec<float> first, Vec<float> second,
                   Vec<T> copy) { kernels::optimize_copying<T, G>(lane, step, grad, master, first, second, copy); },
            masters, compute);
  } else {
    enqueue(
        [step](Lane lane, Vec<const G> grad, Vec<T> param, Vec<float> first, Vec<float> second, Vec<Stagnation> lost) {
          kernels::optimize_rounding<T, G>(lane, step, grad, param, first, second, lost);
        },
        compute, counts);
  }
}

constexpr Index kAtATime = Index(1) << 12;

// The same from a state that stays. What is copied of it is updated while it is in the cache.
template <class T, class G>
void launch_beside(Launcher& launch, const char* name, const kernels::OptimizerStep& step, const OptimizerSpaces& to,
                   const OptimizerSpaces& from, Mutant mutant) {
  const int moments = kernels::moments_of(step.rule);
  const VecView<T> compute = to.compute.as<T>();
  const VecView<T> copies = std::is_same_v<T, float> ? VecView<T>{} : compute;
  launch(
      name, SEEKSIM_SITE, memory_cost((3 + 2 * moments) * compute.n, 2),
      [step, mutant](Lane lane, Vec<const G> grad, Vec<const float> master, Vec<const float> first,
                     Vec<const float> second, Vec<float> new_master, Vec<float> new_first, Vec<float> new_second,
                     Vec<T> copy) {
        for (Index at = 0; at < grad.n; at += kAtATime) {
          const Index n = std::min(kAtATime, grad.n - at);
          const auto part = [&](auto x) { return x.n > 0 ? decltype(x){x.data + at, n} : x; };
          const Vec<float> param = part(new_master), m = part(new_first), v = part(new_second);
          kernels::copy<float>(lane, part(master), param);
          if (m.n > 0) kernels::copy<float>(lane, part(first), m);
          if (v.n > 0) kernels::copy<float>(lane, part(second), v);
          if constexpr (!std::is_same_v<T, float>) {
            kernels::optimize_copying<T, G>(lane, step, part(grad), param, m, v, part(copy));
          } else if (replaces_update(mutant, step.rule)) {
            mutated_update(mutant, lane, step, part(grad), param, m, v);
          } else {
            kernels::optimize(lane, step, part(grad), param, m, v);
          }
        }
      },
      to.gradients.as<const G>(), reads(from.masters), reads(from.first), reads(from.second), to.masters, to.first,
      to.second, copies);
}

}  // namespace

kernels::OptimizerStep Optimizer::begin_step(Launcher& launch, bool has_masters, float grad_factor, double lr) {
  if (!has_masters) count_anew(launch);
  return next_constants(grad_factor, lr);
}

void Optimizer::step(Launcher& launch, const OptimizerSpaces& spaces, float grad_factor, double lr,
                     const Updated& updated) {
  OptimizerSpaces all = spaces;
  place(states(), all);
  const bool has_masters = spaces.masters.buffer != nullptr;
  update(launch, begin_step(launch, has_masters, grad_factor, lr), 0, all, updated);
}

void Optimizer::update(Launcher& launch, const kernels::OptimizerStep& constants, Index at,
                       const OptimizerSpaces& spaces, const Updated& updated, const OptimizerSpaces* from) {
  Index begin = 0;
  for (const ParameterPiece& p : pieces_) {
    const Index lo = std::max(begin, at), n = std::min(begin + p.size, at + spaces.compute.n) - lo;
    begin += p.size;
    if (n <= 0) continue;
    SEEKSIM_CHECK(p.parameter->matrices.empty() || n == p.size, "%s: %lld of %lld elements at a time",
                  p.parameter->name, static_cast<long long>(n), static_cast<long long>(p.size));
    const kernels::OptimizerStep here =
        optimizer_constants(mutant_, constants, static_cast<float>(plan_.weight_decay), p.parameter->decays, steps_);
    const auto part = [&](VecView<float> of) { return of.buffer != nullptr ? of.part(lo - at, n) : VecView<float>{}; };
    const auto here_of = [&](const OptimizerSpaces& all) {
      return OptimizerSpaces{part(all.masters),
                             all.compute.part(lo - at, n),
                             all.gradients.part(lo - at, n),
                             part(all.first),
                             part(all.second),
                             part(all.mean)};
    };
    const OptimizerSpaces own = here_of(spaces), old = from != nullptr ? here_of(*from) : own;
    const ParameterPiece piece{p.parameter, p.first + lo - (begin - p.size), n};
    if (has_mean() && mean_mistake_ == MeanMistake::before_update) move_mean(launch, piece, own);
    update_piece(launch, here, piece, own, from != nullptr ? &old : nullptr);
    if (has_mean() && mean_mistake_ != MeanMistake::before_update) move_mean(launch, piece, own);
    if (updated) updated(lo, n);
  }
}

// Of the masters, where there are some.
void Optimizer::move_mean(Launcher& launch, const ParameterPiece& piece, const OptimizerSpaces& own) const {
  const bool rounded = own.masters.buffer == nullptr || mean_mistake_ == MeanMistake::of_rounded;
  const AnyVec weights = rounded ? own.compute : AnyVec(own.masters);
  const int times = mean_mistake_ == MeanMistake::each_micro_batch ? mean_times_ : 1;
  const float weight = static_cast<float>(1.0 - plan_.ema_decay);
  for (int i = 0; i < times; ++i) launch_mean(launch, piece.parameter->name, weight, weights, own.mean);
}

void Optimizer::move_mean_anyway(Launcher& launch, AnyVec weights) {
  if (has_mean()) launch_mean(launch, mean_->name, static_cast<float>(1.0 - plan_.ema_decay), weights, mean());
}

void Optimizer::update_piece(Launcher& launch, const kernels::OptimizerStep& here, const ParameterPiece& piece,
                             const OptimizerSpaces& spaces, const OptimizerSpaces* from) {
  const VecView<Stagnation> counts =
      spaces.masters.buffer != nullptr ? VecView<Stagnation>{} : vec<Stagnation>(*stagnation_);
  // at: where in the piece the spaces begin.
  const auto apply = [&](kernels::OptimizerStep step, Index at, const OptimizerSpaces& s) {
    if (rounding_key_) {
      const ParameterInfo& p = *piece.parameter;
      const bool by_place = rounding_mistake_ == RoundingMistake::by_place;
      const auto first = std::uint64_t(by_place ? at : p.whole_place(piece.first) + at);
      const bool same = rounding_mistake_ == RoundingMistake::same_each_step;
      step.rounding = {true, *rounding_key_, p.number, same ? 0 : std::uint32_t(steps_), first};
    }
    with_float_type(s.compute.type, [&](auto like) {
      using T = decltype(like);
      const VecView<T> to = s.compute.as<T>();
      const char* const name = piece.parameter->name;
      if (from != nullptr) {
        if (s.gradients.type == ElementType::f32) return launch_beside<T, float>(launch, name, step, s, *from, mutant_);
        return launch_beside<T, T>(launch, name, step, s, *from, mutant_);
      }
      if (s.gradients.type == ElementType::f32) {
        launch_piece<T, float>(launch, name, step, s.masters, to, s.gradients.as<const float>(), s.first, s.second,
                               counts, mutant_);
      } else {
        launch_piece<T, T>(launch, name, step, s.masters, to, s.gradients.as<const T>(), s.first, s.second, counts,
                           mutant_);
      }
    });
  };
  if (piece.parameter->matrices.empty()) return apply(here, 0, spaces);
  for (const Matrix& matrix : piece.parameter->matrices) {
    orthogonal_->make(launch, piece, matrix, spaces.gradients, spaces.first);
    orthogonal_->for_each_part(piece, matrix, [&](Index at, VecView<float> direction) {
      const bool has_masters = spaces.masters.buffer != nullptr;
      OptimizerSpaces part{has_masters ? spaces.masters.part(at, direction.n) : VecView<float>{},
                           spaces.compute.part(at, direction.n), direction};
      apply(orthogonal_->step_of(matrix, here.weight_decay), at, part);
    });
  }
}

void prepare(Optimizer& optimizer, const TrainPlan& plan, int members) {
  const Definition& d = plan.definition;
  optimizer.plant(plan.bug.mutant);
  if (d.precision.stochastic_rounding)
    optimizer.round_at_random(d.training_seed, plan.bug.is(Bug::rounding_by_place) ? RoundingMistake::by_place
                                               : plan.bug.is(Bug::rounding_same_each_step)
                                                   ? RoundingMistake::same_each_step
                                                   : RoundingMistake::none);
  const int samples = d.global_batch / std::max(members, 1), each = plan.layout.micro_batch;
  const int times = (samples + each - 1) / each;
  if (plan.bug.is(Bug::ema_before_update)) optimizer.mistake_mean(MeanMistake::before_update, times);
  if (plan.bug.is(Bug::ema_of_rounded_weights)) optimizer.mistake_mean(MeanMistake::of_rounded, times);
  if (plan.bug.is(Bug::ema_each_micro_batch)) optimizer.mistake_mean(MeanMistake::each_micro_batch, times);
}

}  // namespace seeksim::runtime
