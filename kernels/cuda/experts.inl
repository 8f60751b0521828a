// A layer of experts. The router is a block a sample; products are a thread an element, which walks K. Included by
// tables.inl after rows.inl.

struct RouteSample {
  static constexpr int kThreads = 128;
  Router r;
  Mat<const float> logits;
  Routes out;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const Index first = block.x() * r.tokens;
    std::int32_t* const slots = out.slots.data + first * r.choices;
    float* const shares = out.shares.row(block.x());
    block.threads([&](int t) SEEKSIM_PHASE {
      for (Index i = t; i < r.tokens; i += kThreads) {
        const Index row = first + i;
        out.spreads[row] = experts::route_token(r, logits.row(row), out.probs.row(row), slots + i * r.choices,
                                                out.gates.data + row * r.choices);
      }
    });
    // A thread marks slots of its own experts only, and reads of others' no more than which expert they chose, which a
    // mark leaves as it is.
    block.threads([&](int t) SEEKSIM_PHASE {
      for (int e = t; e < r.experts; e += kThreads) shares[e] = experts::share(r, experts::limit_expert(r, e, slots));
    });
    block.threads([&](int t) SEEKSIM_PHASE {
      for (Index row = first + t; row < first + r.tokens; row += kThreads)
        out.losses[row] = experts::token_loss(r, out.probs.row(row), shares, out.spreads[row]);
    });
  }
};

template <class T>
struct RouteBackward {
  Router r;
  Mat<const float> probs;
  const std::int32_t* slots;
  const float* gates;
  Mat<const float> shares;
  const float *spreads, *dgates;
  float scale;
  Mat<T> dlogits;
  SEEKSIM_BODY void operator()(Index row, Index e) const {
    const Index first = row * r.choices;
    const float *const p = probs.row(row), *const of_sample = shares.row(row / r.tokens);
    const experts::LogitGradient g =
        experts::logit_gradient(r, p, gates + first, dgates + first, of_sample, spreads[row], scale);
    dlogits(row, e) = from_float<T>(
        experts::of_logit(r, g, static_cast<int>(e), p, slots + first, gates + first, dgates + first, of_sample));
  }
};

struct AddTokenLosses {
  Mat<const float> more;
  Vec<float> losses;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    float sum = losses[i];
    for (Index l = 0; l < more.rows; ++l) sum = FloatOps::add(sum, more(l, i));
    losses[i] = sum;
  }
};

constexpr SEEKSIM_BOTH Index row_of(Index slot, Index choices, RowOf of) {
  return of == RowOf::token ? slot / choices : slot;
}

template <class T, class To = T>
struct ExpertProduct {
  const std::int32_t* slots;
  Index choices;
  Mat<const T> x;
  RowOf of;
  Mat<const T> w;
  bool transposed;
  Index segment;
  Mat<To> y;
  SEEKSIM_BODY void operator()(Index s, Index n) const {
    const Index e = slots[s], K = x.cols;
    if (e < 0 || e >= w.rows / (transposed ? y.cols : K)) {
      y(s, n) = from_float<To>(e < 0 ? 0.0F : not_a_number());  // no router gives such an expert
      return;
    }
    const T* const row = x.row(row_of(s, choices, of));
    Counter<kDeep> sums;
    for (Index begin = 0; begin < K; begin += segment) {
      float sum = 0.0F;
      for (Index k = begin; k < least(begin + segment, K); ++k) {
        const float weight = as_float(transposed ? w(e * y.cols + n, k) : w(e * K + k, n));
        sum = FloatOps::fma(as_float(row[k]), weight, sum);
      }
      sums.push(sum);
    }
    y(s, n) = from_float<To>(sums.finish());
  }
};

template <class T>
struct ExpertWeightGrad {
  Vec<const std::int32_t> slots;
  Index choices, tokens;
  Mat<const T> a, b;
  RowOf b_of;
  Mat<float> dw;
  SEEKSIM_BODY void operator()(Index row, Index n) const {
    const Index e = row / a.cols, m = row % a.cols, of_sample = tokens * choices;
    Counter<kDeep> sums;
    for (Index first = 0; first < slots.n; first += of_sample) {
      float sum = 0.0F;
      for (Index s = first; s < first + of_sample; ++s)
        if (slots[s] == e) sum = FloatOps::fma(as_float(a(s, m)), as_float(b(row_of(s, choices, b_of), n)), sum);
      sums.push(sum);
    }
    dw(row, n) = sums.finish();
  }
};

template <class T>
struct ExpertCombine {
  const std::int32_t* slots;
  const float* gates;
  Index choices;
  Mat<const T> y;
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    float sum = 0.0F;
    for (Index s = r * choices; s < (r + 1) * choices; ++s)
      if (slots[s] >= 0) sum = FloatOps::fma(gates[s], as_float(y(s, c)), sum);
    out(r, c) = from_float<T>(sum);
  }
};

// A slot a warp: its gate's gradient, then its row of dact.
template <class T>
struct ExpertGates {
  static constexpr int kThreads = kRowThreads;
  const std::int32_t* slots;
  const float* gates;
  Mat<const T> act;
  Mat<T> dact;
  Vec<float> dgates;
  Index segment;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    typename Block::template Local<float> sum;
    typename Block::template Local<Counter<4>> segments;  // 8 at most
    const auto slot_of = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    for (Index begin = 0; begin < act.cols; begin += segment) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index s = slot_of(t);
        if (s >= act.rows || slots[s] < 0) return;
        const T *const d = dact.row(s) + begin, *const x = act.row(s) + begin;
        sum(t) = four_lanes(thread_of_warp(t), least(segment, act.cols - begin),
                            [=](float v, Index i) { return FloatOps::fma(as_float(d[i]), as_float(x[i]), v); });
      });
      block.fold_warps(sum);
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index s = slot_of(t);
        if (s < act.rows && slots[s] >= 0 && thread_of_warp(t) == 0) segments(t).push(sum(t));
      });
    }
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index s = slot_of(t);
      if (s >= act.rows) return;
      const bool taken = slots[s] >= 0;
      if (thread_of_warp(t) == 0) dgates[s] = taken ? segments(t).finish() : 0.0F;
      for (Index i = thread_of_warp(t); i < act.cols; i += kWarp)
        dact(s, i) = from_float<T>(taken ? FloatOps::mul(gates[s], as_float(dact(s, i))) : 0.0F);
    });
  }
};

template <class T>
struct ExpertSlots {
  const std::int32_t* slots;
  const float* gates;
  Index choices;
  Mat<const T> dout;
  Mat<T> dy;
  SEEKSIM_BODY void operator()(Index s, Index c) const {
    dy(s, c) = from_float<T>(slots[s] >= 0 ? FloatOps::mul(gates[s], as_float(dout(s / choices, c))) : 0.0F);
  }
};

template <class T>
struct ExpertCollect {
  const std::int32_t* slots;
  Index choices;
  Mat<const T> dx, router;
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    float sum = 0.0F;
    for (Index s = r * choices; s < (r + 1) * choices; ++s)
      if (slots[s] >= 0) sum = FloatOps::add(sum, as_float(dx(s, c)));
    out(r, c) = from_float<T>(FloatOps::add(sum, as_float(router(r, c))));
  }
};

// A sample at one rank is a thread.
struct ExpertPlaces {
  Vec<const std::int32_t> slots;
  Index of_sample, samples;
  int own;
  Index places;
  Vec<std::int32_t> sources, of_rank;
  SEEKSIM_BODY void operator()(Index rank, Index sample) const {
    const Index at = (rank * samples + sample) * places;
    experts::place_sample(slots.data + sample * of_sample, of_sample, sample * of_sample, rank, own, places,
                          sources.data + at, of_rank.data + at);
  }
};

struct ExpertAccept {
  int own;
  Vec<std::int32_t> experts;
  SEEKSIM_BODY void operator()(Index, Index i) const { experts[i] = experts::known(experts[i], own); }
};

// An expert is a thread.
struct CountChoices {
  Vec<const std::int32_t> slots;
  Vec<std::int32_t> counts;
  SEEKSIM_BODY void operator()(Index, Index e) const {
    std::int32_t chosen = 0, dropped = 0;
    for (Index s = 0; s < slots.n; ++s) {
      chosen += slots[s] == e || slots[s] == -1 - e ? 1 : 0;
      dropped += slots[s] == -1 - e ? 1 : 0;
    }
    counts[e] = chosen;
    counts[counts.n / 2 + e] = dropped;
  }
};

template <class T>
struct ExpertPack {
  const std::int32_t* sources;
  Index choices;
  Mat<const T> x;
  RowOf of;
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index i, Index c) const {
    const Index source = sources[i];
    out(i, c) = source < 0 ? from_float<T>(0.0F) : x(row_of(source, choices, of), c);
  }
};

template <class T>
struct ClearRows {
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index r, Index c) const { out(r, c) = from_float<T>(0.0F); }
};

template <class T>
struct ExpertUnpack {
  const std::int32_t* sources;
  Mat<const T> rows;
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index i, Index c) const {
    if (sources[i] >= 0) out(sources[i], c) = rows(i, c);
  }
};

template <class Launch, class T>
struct Experts {
  static void pack(Lane lane, const std::int32_t* sources, Index choices, Mat<const T> x, RowOf of, Mat<T> out) {
    Launch launch(lane);
    each(launch, out.rows, out.cols, ExpertPack<T>{sources, choices, x, of, out});
  }
  static void unpack(Lane lane, const std::int32_t* sources, Mat<const T> rows, Mat<T> out) {
    Launch launch(lane);
    each(launch, out.rows, out.cols, ClearRows<T>{out});
    each(launch, rows.rows, rows.cols, ExpertUnpack<T>{sources, rows, out});
  }
  static void product(Lane lane, const std::int32_t* slots, Index choices, Mat<const T> x, RowOf of, Mat<const T> w,
                      bool transposed, Index segment, Mat<T> y) {
    Launch launch(lane);
    each(launch, y.rows, y.cols, ExpertProduct<T>{slots, choices, x, of, w, transposed, segment, y});
  }
  static void node(Lane lane, const std::int32_t* slots, Index choices, Mat<const T> x, RowOf of, Mat<const T> w,
                   bool transposed, Index segment, Mat<float> y) {
    Launch launch(lane);
    each(launch, y.rows, y.cols, ExpertProduct<T, float>{slots, choices, x, of, w, transposed, segment, y});
  }
  static void weight_grad(Lane lane, Vec<const std::int32_t> slots, Index choices, Index tokens, Mat<const T> a,
                          Mat<const T> b, RowOf b_of, Mat<float> dw) {
    Launch launch(lane);
    each(launch, dw.rows, dw.cols, ExpertWeightGrad<T>{slots, choices, tokens, a, b, b_of, dw});
  }
  static void combine(Lane lane, const std::int32_t* slots, const float* gates, Mat<const T> y, Mat<T> out) {
    Launch launch(lane);
    if (out.rows > 0) each(launch, out.rows, out.cols, ExpertCombine<T>{slots, gates, y.rows / out.rows, y, out});
  }
  static void combine_backward(Lane lane, const std::int32_t* slots, const float* gates, Mat<const T> dout,
                               Mat<const T> act, Mat<T> dact, Vec<float> dgates, Mat<T> dy, Index segment) {
    Launch launch(lane);
    if (dout.rows == 0) return;
    by_warps(launch, act.rows, ExpertGates<T>{slots, gates, act, dact, dgates, segment});
    each(launch, dy.rows, dy.cols, ExpertSlots<T>{slots, gates, dy.rows / dout.rows, dout, dy});
  }
  static void collect(Lane lane, const std::int32_t* slots, Mat<const T> dx, Mat<const T> router, Mat<T> out) {
    Launch launch(lane);
    if (out.rows > 0) each(launch, out.rows, out.cols, ExpertCollect<T>{slots, dx.rows / out.rows, dx, router, out});
  }
  static void route_backward(Lane lane, const Router& r, Mat<const float> probs, const std::int32_t* slots,
                             const float* gates, Mat<const float> shares, const float* spreads, const float* dgates,
                             float scale, Mat<T> dlogits) {
    Launch launch(lane);
    each(launch, dlogits.rows, dlogits.cols,
         RouteBackward<T>{r, probs, slots, gates, shares, spreads, dgates, scale, dlogits});
  }
  static DeviceExperts<T> table() {
    return {product, node, weight_grad, combine, combine_backward, collect, route_backward, pack, unpack};
  }
};
