// Loops over arrays of any storage type in whole vectors, and the sums and maxima along a row (F4, F5). Included after
// storage.inl.

SEEKSIM_FN Index min_of(Index a, Index b) { return a < b ? a : b; }
SEEKSIM_FN Index max_of(Index a, Index b) { return a > b ? a : b; }

// The number of lanes, known at compile time to be all of them.
struct AllLanes {};

// Calls f(i, lanes) for i = 0, kW, 2 kW, ...: with lanes = AllLanes while whole vectors remain, then once with the
// number that is left.
template <class Body>
SEEKSIM_FN void for_vectors(Index n, Body f) {
  Index i = 0;
  for (; i + kW <= n; i += kW) f(i, AllLanes{});
  if (i < n) f(i, static_cast<int>(n - i));
}

// T is a storage type: float, or a 16-bit type that is widened when it is loaded and rounded when it is stored.
template <class T>
SEEKSIM_FN Vf load_lanes(const T* p, AllLanes) {
  return load(p);
}
template <class T>
SEEKSIM_FN Vf load_lanes(const T* p, int n) {
  return load_first(p, n);
}
template <class T>
SEEKSIM_FN void store_lanes(T* p, AllLanes, Vf x) {
  store(p, x);
}
template <class T>
SEEKSIM_FN void store_lanes(T* p, int n, Vf x) {
  store_first(p, n, x);
}
SEEKSIM_FN Vf keep_lanes(AllLanes, Vf x, Vf) { return x; }
SEEKSIM_FN Vf keep_lanes(int n, Vf x, Vf otherwise) { return take_first(n, x, otherwise); }

// F4. `step(s, i, lanes)` returns the accumulators s after the elements i .. i + lanes - 1; lanes past the end keep
// theirs.
constexpr int kLanes = 128;
// With vectors the accumulators live in registers. In scalar code they are an array, and unrolling only costs compile
// time.
#if defined(__AVX2__)
#define SEEKSIM_UNROLL_LANES SEEKSIM_UNROLL
#else
#define SEEKSIM_UNROLL_LANES
#endif
constexpr int kLaneVectors = kLanes / kW;

// The sum in the first kVectors vectors of lanes, which hold all n elements unless they are all vectors.
template <int kVectors, class Step>
SEEKSIM_FN float sum_in_vectors(Index n, Step step) {
  Vf s[kVectors];
  SEEKSIM_UNROLL_LANES
  for (int q = 0; q < kVectors; ++q) s[q] = splat(0.0F);
  Index i = 0;
  if constexpr (kVectors == kLaneVectors) {
    for (; i + kLanes <= n; i += kLanes) {
      SEEKSIM_UNROLL_LANES
      for (int q = 0; q < kVectors; ++q) s[q] = step(s[q], i + q * kW, AllLanes{});
    }
  }
  SEEKSIM_UNROLL_LANES
  for (int q = 0; q < kVectors; ++q) {
    const Index left = n - i - q * kW;
    if (left >= kW) {
      s[q] = step(s[q], i + q * kW, AllLanes{});
    } else if (left > 0) {
      const int lanes = static_cast<int>(left);
      s[q] = take_first(lanes, step(s[q], i + q * kW, lanes), s[q]);
    }
  }
  if constexpr (kVectors < kLaneVectors) {
    // Halving would add the other vectors, all +0. The first time turns -0 into +0; the others change nothing.
    SEEKSIM_UNROLL_LANES
    for (int q = 0; q < kVectors; ++q) s[q] = s[q] + splat(0.0F);
  }
  SEEKSIM_UNROLL_LANES
  for (int half = kVectors / 2; half > 0; half /= 2) {
    SEEKSIM_UNROLL_LANES
    for (int q = 0; q < half; ++q) s[q] = s[q] + s[q + half];
  }
  return fold_lanes(s[0]);
}

template <class Step>
SEEKSIM_FN float lane_sum(Index n, Step step) {
  if (n <= kW) return sum_in_vectors<1>(n, step);
  if (kW > 1 && n <= 4 * kW) return sum_in_vectors<4>(n, step);
  return sum_in_vectors<kLaneVectors>(n, step);
}

// F5: the largest element, by `x > m ? x : m`; the order does not matter (a NaN is skipped here and reaches the sum).
template <class T>
SEEKSIM_FN float row_max(const T* x, Index n) {
  Vf m = splat(-__builtin_inff());
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf v = load_lanes(x + i, lanes);
    m = keep_lanes(lanes, v > m ? v : m, m);
  });
  return largest_lane(m);
}

// The sum of counts that are kept in lanes.
SEEKSIM_FN Index sum_of_lanes(Vu counts) {
  std::uint32_t lane[kW];
  __builtin_memcpy(lane, &counts, sizeof lane);
  Index sum = 0;
  for (int l = 0; l < kW; ++l) sum += lane[l];
  return sum;
}

// y[i] = x[i]: from 16 bits to floats, from floats to 16 bits, or a plain copy.
template <class From, class To>
SEEKSIM_FN void convert(const From* x, To* y, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA { store_lanes(y + i, lanes, load_lanes(x + i, lanes)); });
}
