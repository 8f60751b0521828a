// Elementwise kernels, casts, row and tree sums, the optimizer. Included by elements_*.cpp after simd.inl.

using V = SimdOps;

template <class F>
SEEKSIM_FN void map(const float* x, float* y, Index n, F f) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA { store_lanes(y + i, lanes, f(load_lanes(x + i, lanes))); });
}

void unary_body(Unary f, const float* x, float* y, Index n) {
  switch (f) {
    case Unary::exp:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::exp<V>(a); });
    case Unary::tanh:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::tanh<V>(a); });
    case Unary::log:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::log<V>(a); });
    case Unary::inverse_sqrt:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::inverse_sqrt<V>(a); });
    case Unary::gelu:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::gelu<V>(a); });
    case Unary::gelu_grad:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::gelu_grad<V>(a); });
  }
}

void gelu_backward_body(const float* dy, const float* x, float* dx, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf slope = math::gelu_grad<V>(load_lanes(x + i, lanes));
    store_lanes(dx + i, lanes, V::mul(load_lanes(dy + i, lanes), slope));
  });
}

void add_body(const float* a, const float* b, float* y, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(y + i, lanes, V::add(load_lanes(a + i, lanes), load_lanes(b + i, lanes)));
  });
}

void scale_body(float* x, Index n, float factor) {
  map(x, x, n, [factor](Vf a) SEEKSIM_LAMBDA { return V::mul(a, splat(factor)); });
}

// ---- optimizer ----

template <bool kDecay, bool kDecoupled>
void adamw_loop(const AdamWStep& step, const float* grad, float* p, float* m, float* v, Index n) {
  const auto lanes_of_step = adamw_lanes<V>(step);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf pi = load_lanes(p + i, lanes), mi = load_lanes(m + i, lanes), vi = load_lanes(v + i, lanes);
    adamw_body<V, kDecay, kDecoupled>(lanes_of_step, load_lanes(grad + i, lanes), pi, mi, vi);
    store_lanes(p + i, lanes, pi);
    store_lanes(m + i, lanes, mi);
    store_lanes(v + i, lanes, vi);
  });
}

void adamw_body_of_step(const AdamWStep& step, const float* grad, float* p, float* m, float* v, Index n) {
  if (step.weight_decay == 0.0F) return adamw_loop<false, false>(step, grad, p, m, v, n);
  if (step.decoupled) return adamw_loop<true, true>(step, grad, p, m, v, n);
  return adamw_loop<true, false>(step, grad, p, m, v, n);
}

// ---- casts ----

#if defined(__AVX512F__)
SEEKSIM_FN void store_u16(std::uint16_t* y, Vu h) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(h)));
}
SEEKSIM_FN Vu load_u16(const std::uint16_t* x) {
  return reinterpret_cast<Vu>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
}
#elif defined(__AVX2__)
SEEKSIM_FN void store_u16(std::uint16_t* y, Vu h) {
  const __m256i v = reinterpret_cast<__m256i>(h);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), packed);
}
SEEKSIM_FN Vu load_u16(const std::uint16_t* x) {
  return reinterpret_cast<Vu>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
}
#else
SEEKSIM_FN void store_u16(std::uint16_t* y, Vu h) { *y = static_cast<std::uint16_t>(h); }
SEEKSIM_FN Vu load_u16(const std::uint16_t* x) { return *x; }
#endif

// Whole vectors, then the rest one by one with the same body on single floats.
template <class Wide, class Single>
SEEKSIM_FN void narrow(const float* x, std::uint16_t* y, Index n, Wide wide, Single single) {
  Index i = 0;
  for (; i + kW <= n; i += kW) store_u16(y + i, wide(load(x + i)));
  for (; i < n; ++i) y[i] = static_cast<std::uint16_t>(single(x[i]));
}

template <class Wide, class Single>
SEEKSIM_FN void widen(const std::uint16_t* x, float* y, Index n, Wide wide, Single single) {
  Index i = 0;
  for (; i + kW <= n; i += kW) store(y + i, wide(load_u16(x + i)));
  for (; i < n; ++i) y[i] = single(x[i]);
}

// The hardware's fp16 conversion is exact but for NaNs, which it does not make canonical (measured over all inputs).
SEEKSIM_FN Vu to_fp16_lanes(Vf x) {
#if defined(__AVX512F__)
  const auto h = _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return x != x ? V::ulit(0x7fffU) : reinterpret_cast<Vu>(h);
#elif defined(__AVX2__)
  const auto h = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return x != x ? V::ulit(0x7fffU) : reinterpret_cast<Vu>(h);
#else
  return cast::to_fp16<V>(x);
#endif
}

void to_bf16_body(const float* x, std::uint16_t* y, Index n) {
  narrow(
      x, y, n, [](Vf a) SEEKSIM_LAMBDA { return cast::to_bf16<V>(a); },
      [](float a) SEEKSIM_LAMBDA { return cast::to_bf16<FloatOps>(a); });
}

void to_fp16_body(const float* x, std::uint16_t* y, Index n) {
  narrow(
      x, y, n, [](Vf a) SEEKSIM_LAMBDA { return to_fp16_lanes(a); },
      [](float a) SEEKSIM_LAMBDA { return cast::to_fp16<FloatOps>(a); });
}

void from_bf16_body(const std::uint16_t* x, float* y, Index n) {
  widen(
      x, y, n, [](Vu h) SEEKSIM_LAMBDA { return cast::from_bf16<V>(h); },
      [](std::uint32_t h) SEEKSIM_LAMBDA { return cast::from_bf16<FloatOps>(h); });
}

void from_fp16_body(const std::uint16_t* x, float* y, Index n) {
  widen(
      x, y, n, [](Vu h) SEEKSIM_LAMBDA { return cast::from_fp16<V>(h); },
      [](std::uint32_t h) SEEKSIM_LAMBDA { return cast::from_fp16<FloatOps>(h); });
}

void normal_body(const std::uint32_t* words, float* z, Index n, float stddev) {
  const float* as_floats = reinterpret_cast<const float*>(words);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vu k = V::bits(load_lanes(as_floats + i, lanes)) >> 8;
    store_lanes(z + i, lanes, V::mul(math::normal_quantile<V>(k), splat(stddev)));
  });
}

// ---- sums ----

float norm2_body(const float* x, Index n) {
  return lane_sum(n, [&](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf v = load_lanes(x + i, lanes);
    return V::fma(v, v, s);
  });
}

Index count_nonfinite_body(const float* x, Index n) {
  Index count = 0;
  for (Index i = 0; i < n; ++i) count += (FloatOps::bits(x[i]) & 0x7f800000U) == 0x7f800000U ? 1 : 0;
  return count;
}

// Chunk by chunk through a stack of operands. An operand stays where its part lies until it is first added.
void tree_parts_body(const float* const* parts, const int* adds_after, Index count, float* out, Index n, float factor) {
  constexpr Index kChunk = 1024;
  constexpr int kDepth = 64;
  float* const work = scratch(Scratch::tree, kDepth * kChunk);
  for (Index begin = 0; begin < n; begin += kChunk) {
    const Index size = min_of(kChunk, n - begin);
    const float* stack[kDepth];
    int top = 0;
    for (Index p = 0; p < count; ++p) {
      stack[top++] = parts[p] + begin;
      for (int a = 0; a < adds_after[p]; ++a, --top) {
        float* const sum = work + (top - 2) * kChunk;
        add_body(stack[top - 2], stack[top - 1], sum, size);
        stack[top - 2] = sum;
      }
    }
    if (factor == 1.0F) {
      map(stack[0], out + begin, size, [](Vf a) SEEKSIM_LAMBDA { return a; });
    } else {
      map(stack[0], out + begin, size, [factor](Vf a) SEEKSIM_LAMBDA { return V::mul(a, splat(factor)); });
    }
  }
}

// F3 as a binary counter over groups of kN vectors.
template <int kN>
struct TreeCounter {
  Vf* slots;  // (depth, kN)
  Index count = 0;
  int top = 0;

  SEEKSIM_FN void push(TreeCounter& t, Vf (&v)[kN]) {
    for (Index c = t.count++; c & 1; c >>= 1) pop_add(t, v);
    SEEKSIM_UNROLL
    for (int q = 0; q < kN; ++q) t.slots[t.top * kN + q] = v[q];
    ++t.top;
  }
  // Folds what is left into v and empties the counter. There must have been a push.
  SEEKSIM_FN void finish(TreeCounter& t, Vf (&v)[kN]) {
    --t.top;
    SEEKSIM_UNROLL
    for (int q = 0; q < kN; ++q) v[q] = t.slots[t.top * kN + q];
    while (t.top > 0) pop_add(t, v);
    t.count = 0;
  }
  SEEKSIM_FN void pop_add(TreeCounter& t, Vf (&v)[kN]) {
    --t.top;
    SEEKSIM_UNROLL
    for (int q = 0; q < kN; ++q) v[q] = V::add(t.slots[t.top * kN + q], v[q]);
  }
};

// One block of columns: kN vectors, the last of `lanes` lanes.
template <int kN, bool kScaled, class Lanes>
SEEKSIM_FN void column_block(Mat<const float> dy, Mat<const float> x, const float* mean, const float* rstd,
                             Index tokens, Index column, Lanes lanes, float* plain, float* scaled) {
  constexpr int kAll = kScaled ? 2 * kN : kN;
  const Index segment = slab_size(tokens);
  Vf* const work = reinterpret_cast<Vf*>(scratch(Scratch::rows, (64 + 8) * kAll * kW));
  TreeCounter<kAll> samples{work}, segments{work + 64 * kAll};
  Vf v[kAll];
  for (Index sample = 0; sample < dy.rows; sample += tokens) {
    for (Index begin = 0; begin < tokens; begin += segment) {
      SEEKSIM_UNROLL
      for (int q = 0; q < kAll; ++q) v[q] = splat(0.0F);
      const Index end = min_of(begin + segment, tokens);
      for (Index r = sample + begin; r < sample + end; ++r) {
        SEEKSIM_UNROLL
        for (int q = 0; q < kN; ++q) {
          const Vf d = load_lanes(dy.row(r) + column + q * kW, lanes);
          v[q] = V::add(v[q], d);
          if constexpr (kScaled) {
            const Vf centred = V::sub(load_lanes(x.row(r) + column + q * kW, lanes), splat(mean[r]));
            v[kN + q] = V::fma(d, V::mul(centred, splat(rstd[r])), v[kN + q]);
          }
        }
      }
      TreeCounter<kAll>::push(segments, v);
    }
    TreeCounter<kAll>::finish(segments, v);
    TreeCounter<kAll>::push(samples, v);
  }
  TreeCounter<kAll>::finish(samples, v);
  SEEKSIM_UNROLL
  for (int q = 0; q < kN; ++q) {
    store_lanes(plain + column + q * kW, lanes, v[q]);
    if constexpr (kScaled) store_lanes(scaled + column + q * kW, lanes, v[kN + q]);
  }
}

template <bool kScaled>
void column_sums_loop(Mat<const float> dy, Mat<const float> x, const float* mean, const float* rstd, Index tokens,
                      float* plain, float* scaled) {
  Index c = 0;
  for (; c + 4 * kW <= dy.cols; c += 4 * kW)
    column_block<4, kScaled>(dy, x, mean, rstd, tokens, c, AllLanes{}, plain, scaled);
  for (; c + kW <= dy.cols; c += kW) column_block<1, kScaled>(dy, x, mean, rstd, tokens, c, AllLanes{}, plain, scaled);
  if (c < dy.cols) column_block<1, kScaled>(dy, x, mean, rstd, tokens, c, static_cast<int>(dy.cols - c), plain, scaled);
}

void column_sums_body(Mat<const float> dy, Mat<const float> x, const float* mean, const float* rstd, Index tokens,
                      float* plain, float* scaled) {
  if (scaled != nullptr) return column_sums_loop<true>(dy, x, mean, rstd, tokens, plain, scaled);
  return column_sums_loop<false>(dy, x, mean, rstd, tokens, plain, scaled);
}
