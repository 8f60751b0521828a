// The optimizers on whole arrays (optimizer_body.h has the sequences). Included by elements_*.cpp after lanes.inl.

// Calls loop.template operator()<Rule>() as the step asks.
template <class Loop>
SEEKSIM_FN auto by_rule(const OptimizerStep& step, Loop loop) {
  using V = SimdOps;
  const bool decays = step.weight_decay != 0.0F;
  if (step.rule == OptimizerRule::lion)
    return decays ? loop.template operator()<LionRule<V, true>>() : loop.template operator()<LionRule<V, false>>();
  if (step.rule == OptimizerRule::given)
    return decays ? loop.template operator()<GivenRule<V, true>>() : loop.template operator()<GivenRule<V, false>>();
  if (step.rule == OptimizerRule::sgd)
    return decays ? loop.template operator()<SgdRule<V, true, 0, false>>()
                  : loop.template operator()<SgdRule<V, false, 0, false>>();
  if (step.rule == OptimizerRule::momentum)
    return decays ? loop.template operator()<SgdRule<V, true, 1, false>>()
                  : loop.template operator()<SgdRule<V, false, 1, false>>();
  if (step.rule == OptimizerRule::nesterov)
    return decays ? loop.template operator()<SgdRule<V, true, 1, true>>()
                  : loop.template operator()<SgdRule<V, false, 1, true>>();
  if (step.rule == OptimizerRule::frozen)
    return decays ? loop.template operator()<FrozenRule<V, true>>() : loop.template operator()<FrozenRule<V, false>>();
  if (!decays) return loop.template operator()<AdamWRule<V, false, false>>();
  if (step.decoupled) return loop.template operator()<AdamWRule<V, true, true>>();
  return loop.template operator()<AdamWRule<V, true, false>>();
}

// fp32 parameters, and their rounded copy unless T is float.
template <class Rule, class G, class T>
void optimize_loop(const OptimizerStep& step, const G* grad, float* p, float* m, float* v, T* copy, Index n) {
  constexpr bool kHasM = Rule::kMoments >= 1, kHasV = Rule::kMoments == 2;
  const auto lanes_of_step = optimizer_lanes<SimdOps>(step);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf pi = load_lanes(p + i, lanes), mi = splat(0.0F), vi = splat(0.0F);
    if constexpr (kHasM) mi = load_lanes(m + i, lanes);
    if constexpr (kHasV) vi = load_lanes(v + i, lanes);
    const Vf update = Rule::update(lanes_of_step, load_lanes(grad + i, lanes), pi, mi, vi);
    pi = Rule::applied(lanes_of_step, update, pi);
    store_lanes(p + i, lanes, pi);
    if constexpr (kHasM) store_lanes(m + i, lanes, mi);
    if constexpr (kHasV) store_lanes(v + i, lanes, vi);
    if constexpr (kIsHalf<T>) store_lanes(copy + i, lanes, pi);
  });
}

template <class G, class T>
void optimize_copying_body(const OptimizerStep& step, const G* grad, float* p, float* m, float* v, T* copy, Index n) {
  by_rule(step, [&]<class Rule>() { optimize_loop<Rule>(step, grad, p, m, v, copy, n); });
}

void optimize_body(const OptimizerStep& step, const float* grad, float* p, float* m, float* v, Index n) {
  optimize_copying_body<float, float>(step, grad, p, m, v, nullptr, n);
}

// Of elements i, i + 1, ... of an array, a lane each.
SEEKSIM_FN Vu random_bits(const StochasticRounding& rounding, Index i) {
  Vu lanes;
  __builtin_memcpy(&lanes, kLaneNumbers, sizeof lanes);
  const auto at = static_cast<std::uint32_t>(rounding.first + static_cast<std::uint64_t>(i));
  return random_of_element<VectorOfCounters>(rounding, lanes + VectorOfCounters::ulit(at));
}

// Parameters stored as T, without masters. Lanes past the end hold +0 everywhere, so that nothing would move them.
template <class Rule, class G, class T>
Stagnation optimize_rounding_loop(const OptimizerStep& step, const G* grad, T* p, float* m, float* v, Index n) {
  using V = SimdOps;
  constexpr bool kHasM = Rule::kMoments >= 1, kHasV = Rule::kMoments == 2;
  const auto lanes_of_step = optimizer_lanes<V>(step);
  const StochasticRounding rounding = step.rounding;
  const Vf zero = splat(0.0F);
  const Vu one = V::ulit(1), none = V::ulit(0);
  Vu changes = none, lost = none;  // up to n / kW a lane
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf before = load_lanes(p + i, lanes);
    Vf mi = zero, vi = zero;
    if constexpr (kHasM) mi = load_lanes(m + i, lanes);
    if constexpr (kHasV) vi = load_lanes(v + i, lanes);
    const Vf update = Rule::update(lanes_of_step, load_lanes(grad + i, lanes), before, mi, vi);
    const Vf after = Rule::applied(lanes_of_step, update, before);
    if constexpr (kHasM) store_lanes(m + i, lanes, mi);
    if constexpr (kHasV) store_lanes(v + i, lanes, vi);
    const Vf rounded = rounding.on ? rounded_at_random<V>(after, random_bits(rounding, i)) : rounded_to<T>(after);
    store_lanes(p + i, lanes, rounded);
    Vu moved = V::mul(lanes_of_step.minus_lr, update) != zero ? one : none;
    if (Rule::kDecays) moved = V::mul(lanes_of_step.minus_decay, before) != zero ? one : moved;
    changes += moved;
    lost += V::bits(rounded) == V::bits(before) ? moved : none;
  });
  return {sum_of_lanes(changes), sum_of_lanes(lost)};
}

template <class G, class T>
Stagnation optimize_rounding_body(const OptimizerStep& step, const G* grad, T* p, float* m, float* v, Index n) {
  return by_rule(step, [&]<class Rule>() { return optimize_rounding_loop<Rule>(step, grad, p, m, v, n); });
}

void muon_direction_body(const MuonStep& step, float* m, float* x, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf mi = load_lanes(m + i, lanes);
    const Vf ahead = muon_direction<SimdOps>(step, load_lanes(x + i, lanes), mi);
    store_lanes(m + i, lanes, mi);
    store_lanes(x + i, lanes, ahead);
  });
}

void scale_to_norm_body(const float* norm2, float least, float* x, Index n) {
  const float factor = one_over_norm<FloatOps>(norm2[0], least);
  map(x, x, n, [factor](Vf a) SEEKSIM_LAMBDA { return SimdOps::mul(a, splat(factor)); });
}

void weighted_sum_body(float a, const float* x, float b, float* y, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf sum = weighted_sum<SimdOps>(splat(a), load_lanes(x + i, lanes), splat(b), load_lanes(y + i, lanes));
    store_lanes(y + i, lanes, sum);
  });
}

template <class T>
void move_mean_body(float weight, const T* x, float* mean, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf old = load_lanes(mean + i, lanes);
    store_lanes(mean + i, lanes, moved_mean<SimdOps>(splat(weight), load_lanes(x + i, lanes), old));
  });
}
