// The optimizers' steps (optimizer_body.h has the sequences), an element a thread. Included by elements.inl.

template <class Rule, class G, class T>
struct Optimize {
  OptimizerStep step;
  const G* grad;
  float *p, *m, *v;  // v: of rules with two moments
  T* copy;           // of p, rounded; none where T is float
  SEEKSIM_BODY void operator()(Index, Index i) const {
    constexpr bool kHasM = Rule::kMoments >= 1, kHasV = Rule::kMoments == 2;
    const auto s = optimizer_lanes<FloatOps>(step);
    float pi = p[i], mi = 0, vi = 0;
    if constexpr (kHasM) mi = m[i];
    if constexpr (kHasV) vi = v[i];
    const float update = Rule::update(s, as_float(grad[i]), pi, mi, vi);
    pi = Rule::applied(s, update, pi);
    p[i] = pi;
    if constexpr (kHasM) m[i] = mi;
    if constexpr (kHasV) v[i] = vi;
    if constexpr (kIsHalf<T>) copy[i] = from_float<T>(pi);
  }
};

// Parameters stored as T, without masters. Each block goes through the array in steps of the grid, so that few of them
// have counts to add.
template <class Rule, class G, class T>
struct OptimizeRounding {
  static constexpr int kThreads = 256;
  OptimizerStep step;
  const G* grad;
  T* p;
  float *m, *v;
  Index n;
  Stagnation* out;

  SEEKSIM_BODY float at_random(float x, Index i) const {
    const auto at = static_cast<std::uint32_t>(step.rounding.first + static_cast<std::uint64_t>(i));
    return rounded_at_random<FloatOps>(x, random_of_element<OneCounter>(step.rounding, at));
  }
  SEEKSIM_BODY void one(Index i, std::int32_t& changes, std::int32_t& lost) const {
    constexpr bool kHasM = Rule::kMoments >= 1, kHasV = Rule::kMoments == 2;
    const auto s = optimizer_lanes<FloatOps>(step);
    const float before = as_float(p[i]);
    float mi = 0, vi = 0;
    if constexpr (kHasM) mi = m[i];
    if constexpr (kHasV) vi = v[i];
    const float update = Rule::update(s, as_float(grad[i]), before, mi, vi);
    const float after = Rule::applied(s, update, before);
    if constexpr (kHasM) m[i] = mi;
    if constexpr (kHasV) v[i] = vi;
    const float stored = step.rounding.on ? at_random(after, i) : rounded_to<T>(after);
    p[i] = from_float<T>(stored);
    bool moved = FloatOps::mul(s.minus_lr, update) != 0.0F;
    if (Rule::kDecays) moved = FloatOps::mul(s.minus_decay, before) != 0.0F || moved;
    changes += moved ? 1 : 0;
    lost += moved && FloatOps::bits(stored) == FloatOps::bits(before) ? 1 : 0;
  }
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    auto* const counts = block.template shared<std::int32_t, 2 * kThreads>();
    block.threads([&](int t) SEEKSIM_PHASE {
      std::int32_t changes = 0, lost = 0;
      for (Index i = block.x() * kThreads + t; i < n; i += block.blocks_x() * kThreads) one(i, changes, lost);
      counts[2 * t] = changes;
      counts[2 * t + 1] = lost;
    });
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t > 1) return;
      std::int64_t sum = 0;
      for (int i = 0; i < kThreads; ++i) sum += counts[2 * i + t];
      Block::add_to(t == 0 ? &out->changes : &out->lost, sum);
    });
  }
};

template <class T>
struct MoveMean {
  float weight;
  Vec<const T> x;
  Vec<float> mean;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    mean[i] = moved_mean<FloatOps>(weight, as_float(x[i]), mean[i]);
  }
};
struct MuonDirection {
  MuonStep step;
  Vec<float> m, x;
  SEEKSIM_BODY void operator()(Index, Index i) const { x[i] = muon_direction<FloatOps>(step, x[i], m[i]); }
};
struct ScaleToNorm {
  Vec<const float> norm2;
  float least;
  Vec<float> x;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    x[i] = FloatOps::mul(x[i], one_over_norm<FloatOps>(norm2[0], least));
  }
};
struct WeightedSum {
  float a, b;
  Vec<const float> x;
  Vec<float> y;
  SEEKSIM_BODY void operator()(Index, Index i) const { y[i] = weighted_sum<FloatOps>(a, x[i], b, y[i]); }
};
