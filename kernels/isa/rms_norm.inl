// RMS norm, row by row. Included by elements_*.cpp after rows.inl.

template <class T>
void rms_norm_forward_body(Mat<const T> x, const T* gamma_stored, float eps, Mat<T> y, float* rstd) {
  const Index n = x.cols;
  const float count = FloatOps::from_int(static_cast<int>(n));
  float* const room = scratch(Scratch::rows, 2 * n);
  const float* const gamma = floats_of(gamma_stored, n, room);
  for (Index r = 0; r < x.rows; ++r) {
    const float* const xr = floats_of(x.row(r), n, room + n);
    T* const yr = y.row(r);
    const float squares = norm2_body(xr, n);
    const float rs = math::inverse_sqrt<FloatOps>(FloatOps::add(FloatOps::div(squares, count), eps));
    rstd[r] = rs;
    for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf xhat = V::mul(load_lanes(xr + i, lanes), splat(rs));
      store_lanes(yr + i, lanes, V::mul(xhat, load_lanes(gamma + i, lanes)));
    });
  }
}

// With g = dy * gamma and xhat = x * rstd:  dx = (g - xhat * sum(g xhat)/n) * rstd.
template <class T>
void rms_norm_backward_body(Mat<const T> dy, Mat<const T> x, const T* gamma_stored, const float* rstd,
                            Mat<const T> residual, Mat<T> dx) {
  const Index n = x.cols;
  const float count = FloatOps::from_int(static_cast<int>(n));
  float* const room = scratch(Scratch::rows, 3 * n);
  const float* const gamma = floats_of(gamma_stored, n, room);
  for (Index r = 0; r < x.rows; ++r) {
    const float* const xr = floats_of(x.row(r), n, room + n);
    const float* const dyr = floats_of(dy.row(r), n, room + 2 * n);
    T* const dxr = dx.row(r);
    const float rs = rstd[r];
    const float dot = lane_sum(n, [=](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf g = V::mul(load_lanes(dyr + i, lanes), load_lanes(gamma + i, lanes));
      return V::fma(g, V::mul(load_lanes(xr + i, lanes), splat(rs)), s);
    });
    const Vf dot_mean = splat(FloatOps::div(dot, count));
    const T* const skip = residual.data != nullptr ? residual.row(r) : nullptr;
    for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf xhat = V::mul(load_lanes(xr + i, lanes), splat(rs));
      const Vf g = V::mul(load_lanes(dyr + i, lanes), load_lanes(gamma + i, lanes));
      Vf d = V::mul(V::fma(math::negate<V>(xhat), dot_mean, g), splat(rs));
      if (skip != nullptr) d = V::add(load_lanes(skip + i, lanes), d);
      store_lanes(dxr + i, lanes, d);
    });
  }
}
