// AdamW on whole arrays (optimizer_body.h has the sequence). Included by elements_*.cpp after lanes.inl.

// Calls loop.template operator()<kDecay, kDecoupled>() as the step asks.
template <class Loop>
SEEKSIM_FN auto by_decay(const AdamWStep& step, Loop loop) {
  if (step.weight_decay == 0.0F) return loop.template operator()<false, false>();
  if (step.decoupled) return loop.template operator()<true, true>();
  return loop.template operator()<true, false>();
}

// fp32 parameters, and their rounded copy unless T is float.
template <bool kDecay, bool kDecoupled, class G, class T>
void adamw_loop(const AdamWStep& step, const G* grad, float* p, float* m, float* v, T* copy, Index n) {
  const auto lanes_of_step = adamw_lanes<SimdOps>(step);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf pi = load_lanes(p + i, lanes), mi = load_lanes(m + i, lanes), vi = load_lanes(v + i, lanes);
    adamw_body<SimdOps, kDecay, kDecoupled>(lanes_of_step, load_lanes(grad + i, lanes), pi, mi, vi);
    store_lanes(p + i, lanes, pi);
    store_lanes(m + i, lanes, mi);
    store_lanes(v + i, lanes, vi);
    if constexpr (kIsHalf<T>) store_lanes(copy + i, lanes, pi);
  });
}

template <class G, class T>
void adamw_copying_body(const AdamWStep& step, const G* grad, float* p, float* m, float* v, T* copy, Index n) {
  by_decay(step, [&]<bool kDecay, bool kDecoupled>() { adamw_loop<kDecay, kDecoupled>(step, grad, p, m, v, copy, n); });
}

void adamw_body_of_step(const AdamWStep& step, const float* grad, float* p, float* m, float* v, Index n) {
  adamw_copying_body<float, float>(step, grad, p, m, v, nullptr, n);
}

// Parameters stored as T, without masters. Lanes past the end hold +0 everywhere, so that nothing would move them.
template <bool kDecay, bool kDecoupled, class G, class T>
Stagnation adamw_rounding_loop(const AdamWStep& step, const G* grad, T* p, float* m, float* v, Index n) {
  using V = SimdOps;
  const auto lanes_of_step = adamw_lanes<V>(step);
  const Vf zero = splat(0.0F);
  const Vu one = V::ulit(1), none = V::ulit(0);
  Vu changes = none, lost = none;  // up to n / kW a lane
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf before = load_lanes(p + i, lanes);
    Vf mi = load_lanes(m + i, lanes), vi = load_lanes(v + i, lanes);
    const Vf g = load_lanes(grad + i, lanes);
    const Vf update = adamw_moments<V, kDecay, kDecoupled>(lanes_of_step, g, before, mi, vi);
    const Vf after = adamw_applied<V, kDecay, kDecoupled>(lanes_of_step, update, before);
    store_lanes(m + i, lanes, mi);
    store_lanes(v + i, lanes, vi);
    store_lanes(p + i, lanes, after);
    Vu moved = V::mul(lanes_of_step.minus_lr, update) != zero ? one : none;
    if (kDecay && kDecoupled) moved = V::mul(lanes_of_step.minus_decay, before) != zero ? one : moved;
    changes += moved;
    lost += V::bits(rounded_to<T>(after)) == V::bits(before) ? moved : none;
  });
  return {sum_of_lanes(changes), sum_of_lanes(lost)};
}

template <class G, class T>
Stagnation adamw_rounding_body(const AdamWStep& step, const G* grad, T* p, float* m, float* v, Index n) {
  return by_decay(step, [&]<bool kDecay, bool kDecoupled>() {
    return adamw_rounding_loop<kDecay, kDecoupled>(step, grad, p, m, v, n);
  });
}
