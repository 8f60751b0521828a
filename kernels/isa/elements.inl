// Elementwise kernels, row and tree sums. T is the type in which a tensor is stored; arithmetic is fp32 for every T
// (storage.inl). Included by elements_*.cpp after lanes.inl.

using V = SimdOps;

template <class T, class F>
SEEKSIM_FN void map(const T* x, T* y, Index n, F f) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA { store_lanes(y + i, lanes, f(load_lanes(x + i, lanes))); });
}

template <class T>
void gelu_forward_body(const T* x, T* y, Index n) {
  map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::gelu<V>(a); });
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
      return gelu_forward_body(x, y, n);
    case Unary::gelu_grad:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::gelu_grad<V>(a); });
    case Unary::silu:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::silu<V>(a); });
    case Unary::silu_grad:
      return map(x, y, n, [](Vf a) SEEKSIM_LAMBDA { return math::silu_grad<V>(a); });
  }
}

template <class T>
void gelu_backward_body(const T* dy, const T* x, T* dx, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf slope = math::gelu_grad<V>(load_lanes(x + i, lanes));
    store_lanes(dx + i, lanes, V::mul(load_lanes(dy + i, lanes), slope));
  });
}

template <class T>
void swiglu_forward_body(const T* gate, const T* up, T* y, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(y + i, lanes, V::mul(math::silu<V>(load_lanes(gate + i, lanes)), load_lanes(up + i, lanes)));
  });
}

template <class T>
void swiglu_backward_body(const T* dy, const T* gate, const T* up, T* dgate, T* dup, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf d = load_lanes(dy + i, lanes), g = load_lanes(gate + i, lanes), u = load_lanes(up + i, lanes);
    store_lanes(dgate + i, lanes, V::mul(V::mul(d, u), math::silu_grad<V>(g)));
    store_lanes(dup + i, lanes, V::mul(d, math::silu<V>(g)));
  });
}

// Rotates the pairs that two halves of a head form by the angles of one position. `turn` is 1, or -1 to turn back.
template <class T>
void rotate_body(const float* cosines, const float* sines, float turn, T* first, T* second, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf c = load_lanes(cosines + i, lanes), s = V::mul(load_lanes(sines + i, lanes), splat(turn));
    const Vf a = load_lanes(first + i, lanes), b = load_lanes(second + i, lanes);
    store_lanes(first + i, lanes, V::fma(a, c, math::negate<V>(V::mul(b, s))));
    store_lanes(second + i, lanes, V::fma(b, c, V::mul(a, s)));
  });
}

// y = a + b; y may be a or b. The sum is stored as To, the terms as T: residuals in one type, or a float sum of 16-bit
// terms.
template <class To, class T>
void add_body(const To* a, const T* b, To* y, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(y + i, lanes, V::add(load_lanes(a + i, lanes), load_lanes(b + i, lanes)));
  });
}

template <class T>
void accumulate_body(float* sum, const T* x, Index n) {
  add_body<float, T>(sum, x, sum, n);
}

template <class T>
void dropout_body(const Dropout& drop, std::uint32_t sample, Index first, const T* x, T* y, Index n) {
  drop_out(drop, sample, first, x, y, n);
}

void scale_body(float* x, Index n, float factor) {
  map(x, x, n, [factor](Vf a) SEEKSIM_LAMBDA { return V::mul(a, splat(factor)); });
}

template <class From, class To>
void convert_body(const From* x, To* y, Index n) {
  convert(x, y, n);
}

template <class T>
void round_through_body(float* x, Index n) {
  map(x, x, n, [](Vf a) SEEKSIM_LAMBDA { return rounded_to<T>(a); });
}

void normal_body(const std::uint32_t* words, float* z, Index n, float stddev) {
  const float* as_floats = reinterpret_cast<const float*>(words);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vu k = V::bits(load_lanes(as_floats + i, lanes)) >> 8;
    store_lanes(z + i, lanes, V::mul(math::normal_quantile<V>(k), splat(stddev)));
  });
}

// ---- sums ----

template <class T>
float norm2_body(const T* x, Index n) {
  return lane_sum(n, [&](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vf v = load_lanes(x + i, lanes);
    return V::fma(v, v, s);
  });
}

// By bit patterns: all ones in the exponent.
SEEKSIM_FN bool is_finite(float x) { return (FloatOps::bits(x) & 0x7f800000U) != 0x7f800000U; }
SEEKSIM_FN bool is_finite(bf16 x) { return (x.bits & 0x7f80U) != 0x7f80U; }
SEEKSIM_FN bool is_finite(fp16 x) { return (x.bits & 0x7c00U) != 0x7c00U; }

template <class T>
Index count_nonfinite_body(const T* x, Index n) {
  Index count = 0;
  for (Index i = 0; i < n; ++i) count += is_finite(x[i]) ? 0 : 1;
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
        add_body<float, float>(stack[top - 2], stack[top - 1], sum, size);
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

// The addends of column sums: dy; dy and dy * xhat for layer norm; dy * xhat for rms norm.
enum class Columns { plain, centred, scaled };

// One block of columns: kN vectors, the last of `lanes` lanes.
template <int kN, Columns kOf, class T, class Lanes>
SEEKSIM_FN void column_block(Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd, Index tokens,
                             Index segment, Index column, Lanes lanes, float* plain, float* scaled) {
  constexpr int kAll = kOf == Columns::centred ? 2 * kN : kN;
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
          if constexpr (kOf == Columns::scaled) {
            v[q] = V::fma(d, V::mul(load_lanes(x.row(r) + column + q * kW, lanes), splat(rstd[r])), v[q]);
          } else {
            v[q] = V::add(v[q], d);
          }
          if constexpr (kOf == Columns::centred) {
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
    if constexpr (kOf == Columns::centred) store_lanes(scaled + column + q * kW, lanes, v[kN + q]);
  }
}

template <Columns kOf, class T>
void column_sums_loop(Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd, Index tokens,
                      Index segment, float* plain, float* scaled) {
  Index c = 0;
  for (; c + 4 * kW <= dy.cols; c += 4 * kW)
    column_block<4, kOf>(dy, x, mean, rstd, tokens, segment, c, AllLanes{}, plain, scaled);
  for (; c + kW <= dy.cols; c += kW)
    column_block<1, kOf>(dy, x, mean, rstd, tokens, segment, c, AllLanes{}, plain, scaled);
  if (c < dy.cols)
    column_block<1, kOf>(dy, x, mean, rstd, tokens, segment, c, static_cast<int>(dy.cols - c), plain, scaled);
}

template <class T>
void column_sums_body(Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd, Index tokens,
                      Index segment, float* plain, float* scaled) {
  if (scaled != nullptr) return column_sums_loop<Columns::centred>(dy, x, mean, rstd, tokens, segment, plain, scaled);
  return column_sums_loop<Columns::plain>(dy, x, mean, rstd, tokens, segment, plain, scaled);
}

template <class T>
void rms_column_sums_body(Mat<const T> dy, Mat<const T> x, const float* rstd, Index tokens, Index segment,
                          float* scaled) {
  column_sums_loop<Columns::scaled>(dy, x, nullptr, rstd, tokens, segment, scaled, nullptr);
}
