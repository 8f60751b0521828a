// Kernels that work row by row: layer norm and softmax cross-entropy. Included by elements_*.cpp after elements.inl.

SEEKSIM_FN float row_sum(const float* x, Index n) {
  return lane_sum(n, [x](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA { return V::add(s, load_lanes(x + i, lanes)); });
}

// A row as floats: itself, or widened into `room`, so that several passes can read it.
template <class T>
SEEKSIM_FN const float* floats_of(const T* x, Index n, float* room) {
  if constexpr (kIsHalf<T>) {
    convert(x, room, n);
    return room;
  } else {
    return x;
  }
}
template <class T>
void layer_norm_forward_body(Mat<const T> x, const T* gamma_stored, const T* beta_stored, float eps, Mat<T> y,
                             float* mean, float* rstd) {
  const Index n = x.cols;
  const float count = FloatOps::from_int(static_cast<int>(n));
  float* const room = scratch(Scratch::rows, 3 * n);
  const float* const gamma = floats_of(gamma_stored, n, room);
  const float* const beta = floats_of(beta_stored, n, room + n);
  for (Index r = 0; r < x.rows; ++r) {
    const float* const xr = floats_of(x.row(r), n, room + 2 * n);
    T* const yr = y.row(r);
    const float m = FloatOps::div(row_sum(xr, n), count);
    const float squares = lane_sum(n, [xr, m](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf d = V::sub(load_lanes(xr + i, lanes), splat(m));
      return V::fma(d, d, s);
    });
    const float rs = math::inverse_sqrt<FloatOps>(FloatOps::add(FloatOps::div(squares, count), eps));
    mean[r] = m;
    rstd[r] = rs;
    for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf xhat = V::mul(V::sub(load_lanes(xr + i, lanes), splat(m)), splat(rs));
      store_lanes(yr + i, lanes, V::fma(xhat, load_lanes(gamma + i, lanes), load_lanes(beta + i, lanes)));
    });
  }
}

// With g = dy * gamma and xhat = (x - mean) * rstd:  dx = (g - sum(g)/n - xhat * sum(g xhat)/n) * rstd.
template <class T>
void layer_norm_backward_body(Mat<const T> dy, Mat<const T> x, const T* gamma_stored, const float* mean,
                              const float* rstd, Mat<const T> residual, Mat<T> dx) {
  const Index n = x.cols;
  const float count = FloatOps::from_int(static_cast<int>(n));
  float* const room = scratch(Scratch::rows, 3 * n);
  const float* const gamma = floats_of(gamma_stored, n, room);
  for (Index r = 0; r < x.rows; ++r) {
    const float* const xr = floats_of(x.row(r), n, room + n);
    const float* const dyr = floats_of(dy.row(r), n, room + 2 * n);
    T* const dxr = dx.row(r);
    const float m = mean[r], rs = rstd[r];
    const float sum = lane_sum(n, [=](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
      return V::add(s, V::mul(load_lanes(dyr + i, lanes), load_lanes(gamma + i, lanes)));
    });
    const float dot = lane_sum(n, [=](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf xhat = V::mul(V::sub(load_lanes(xr + i, lanes), splat(m)), splat(rs));
      return V::fma(V::mul(load_lanes(dyr + i, lanes), load_lanes(gamma + i, lanes)), xhat, s);
    });
    const Vf g_mean = splat(FloatOps::div(sum, count)), dot_mean = splat(FloatOps::div(dot, count));
    const T* const skip = residual.data != nullptr ? residual.row(r) : nullptr;
    for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf xhat = V::mul(V::sub(load_lanes(xr + i, lanes), splat(m)), splat(rs));
      const Vf g = V::mul(load_lanes(dyr + i, lanes), load_lanes(gamma + i, lanes));
      const Vf centred = V::fma(math::negate<V>(xhat), dot_mean, V::sub(g, g_mean));
      Vf d = V::mul(centred, splat(rs));
      if (skip != nullptr) d = V::add(load_lanes(skip + i, lanes), d);
      store_lanes(dxr + i, lanes, d);
    });
  }
}

// ---- softmax cross-entropy: each step is written once, for the whole vocabulary and for a slice of it ----

// e = exp(x - max).
template <class T>
SEEKSIM_FN void exp_row(const T* x, float max, float* e, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(e + i, lanes, math::exp<V>(V::sub(load_lanes(x + i, lanes), splat(max))));
  });
}

// The sum of e: F4 inside a segment, F3 over the segments. n > 0.
SEEKSIM_FN float segments_sum(const float* e, Index n, Index segment) {
  float stack[kSlabs];
  int top = 0;
  Index count = 0;
  for (Index begin = 0; begin < n; begin += segment) {
    float v = row_sum(e + begin, min_of(segment, n - begin));
    for (Index c = count++; c & 1; c >>= 1) v = FloatOps::add(stack[--top], v);
    stack[top++] = v;
  }
  float sum = stack[--top];
  while (top > 0) sum = FloatOps::add(stack[--top], sum);
  return sum;
}

float token_loss(float sum, float max, float at_target) {
  return FloatOps::sub(FloatOps::add(math::log<FloatOps>(sum), max), at_target);
}

// d = (e / sum - onehot(target)) * scale. d may be e. A target outside of [0, n) is not in this row.
template <class T>
SEEKSIM_FN void softmax_gradient(const float* e, float sum, float scale, Index target, T* d, Index n) {
  const float inverse = FloatOps::div(1.0F, sum);
  const bool hits = target >= 0 && target < n;
  const float hit = hits ? FloatOps::mul(FloatOps::sub(FloatOps::mul(e[target], inverse), 1.0F), scale) : 0.0F;
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(d + i, lanes, V::mul(V::mul(load_lanes(e + i, lanes), splat(inverse)), splat(scale)));
  });
  if (hits) d[target] = from_float<T>(hit);
}

// Room for a row of e: where its gradient goes, if those are floats.
template <class T>
SEEKSIM_FN float* exponentials(T* d, Index n) {
  if constexpr (!kIsHalf<T>) {
    if (d != nullptr) return d;
  }
  return scratch(Scratch::rows, n);
}

template <class T>
void softmax_cross_entropy_body(Mat<const T> logits, const std::int32_t* targets, float scale, float* losses,
                                Mat<T> dlogits) {
  const Index n = logits.cols;
  for (Index r = 0; r < logits.rows; ++r) {
    const T* const x = logits.row(r);
    T* const d = dlogits.data != nullptr ? dlogits.row(r) : nullptr;
    const float at_target = as_float(x[targets[r]]);
    const float max = row_max(x, n);
    float* const e = exponentials(d, n);
    exp_row(x, max, e, n);
    const float sum = segments_sum(e, n, slab_size(n));
    losses[r] = token_loss(sum, max, at_target);
    if (d != nullptr) softmax_gradient(e, sum, scale, targets[r], d, n);
  }
}

// For a slice: n > 0 columns that begin with a segment.
template <class T>
float segment_node_body(const T* x, float max, Index n, Index segment) {
  float* const e = scratch(Scratch::rows, n);
  exp_row(x, max, e, n);
  return segments_sum(e, n, segment);
}

template <class T>
void slice_gradient_body(const T* x, float max, float sum, float scale, Index target, T* d, Index n) {
  float* const e = exponentials(d, n);
  exp_row(x, max, e, n);
  softmax_gradient(e, sum, scale, target, d, n);
}
