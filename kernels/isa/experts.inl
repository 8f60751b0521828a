// The rows of a layer of experts. The router goes token by token, in the text that GPUs share (experts_body.h).
// Included by elements_*.cpp after rows.inl.

void route_body(const Router& r, Mat<const float> logits, const Routes& out) {
  for (Index row = 0; row < logits.rows; ++row)
    out.spreads[row] = experts::route_token(r, logits.row(row), out.probs.row(row), &out.slots[row * r.choices],
                                            &out.gates[row * r.choices]);
  for (Index sample = 0; sample < out.shares.rows; ++sample) {
    std::int32_t* const slots = &out.slots[sample * r.tokens * r.choices];
    for (std::int32_t e = 0; e < r.experts; ++e)
      out.shares(sample, e) = experts::share(r, experts::limit_expert(r, e, slots));
  }
  for (Index row = 0; row < logits.rows; ++row)
    out.losses[row] = experts::token_loss(r, out.probs.row(row), out.shares.row(row / r.tokens), out.spreads[row]);
}

void expert_places_body(const std::int32_t* slots, Index of_sample, Index samples, Index ranks, int own, Index places,
                        std::int32_t* sources, std::int32_t* of_rank) {
  for (Index rank = 0; rank < ranks; ++rank) {
    for (Index sample = 0; sample < samples; ++sample) {
      const Index first = sample * of_sample, at = (rank * samples + sample) * places;
      experts::place_sample(slots + first, of_sample, first, rank, own, places, sources + at, of_rank + at);
    }
  }
}

template <class T>
void route_backward_body(const Router& r, Mat<const float> probs, const std::int32_t* slots, const float* gates,
                         Mat<const float> shares, const float* spreads, const float* dgates, float scale,
                         Mat<T> dlogits) {
  for (Index row = 0; row < probs.rows; ++row) {
    const Index first = row * r.choices;
    const float *const p = probs.row(row), *const of_sample = shares.row(row / r.tokens);
    const experts::LogitGradient g =
        experts::logit_gradient(r, p, gates + first, dgates + first, of_sample, spreads[row], scale);
    for (int e = 0; e < r.experts; ++e)
      dlogits(row, e) =
          from_float<T>(experts::of_logit(r, g, e, p, slots + first, gates + first, dgates + first, of_sample));
  }
}

// One token: y has the rows of its slots.
template <class T>
void expert_combine_body(const std::int32_t* slots, const float* gates, Index choices, Mat<const T> y, T* out) {
  for_vectors(y.cols, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf sum = splat(0.0F);
    for (Index j = 0; j < choices; ++j)
      if (slots[j] >= 0) sum = V::fma(splat(gates[j]), load_lanes(y.row(j) + i, lanes), sum);
    store_lanes(out + i, lanes, sum);
  });
}

template <class T>
float row_dot_body(const T* a, const T* b, Index n) {
  return lane_sum(n, [=](Vf s, Index i, auto lanes)
                         SEEKSIM_LAMBDA { return V::fma(load_lanes(a + i, lanes), load_lanes(b + i, lanes), s); });
}

template <class T>
void scale_row_body(float factor, const T* x, T* y, Index n) {
  map(x, y, n, [factor](Vf a) SEEKSIM_LAMBDA { return V::mul(splat(factor), a); });
}

template <class T>
void expert_collect_body(const std::int32_t* slots, Index choices, Mat<const T> dx, const T* router, T* out) {
  for_vectors(dx.cols, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    Vf sum = splat(0.0F);
    for (Index j = 0; j < choices; ++j)
      if (slots[j] >= 0) sum = V::add(sum, load_lanes(dx.row(j) + i, lanes));
    store_lanes(out + i, lanes, V::add(sum, load_lanes(router + i, lanes)));
  });
}
