// Causal attention, head by head. Included by products_*.cpp after pack.inl.
//
//     keys j ->                           Row i of the scores has i + 1 entries. Products along a row (scores, dP)
//   q  x . . . . .                        compute whole tiles and drop what lies above the diagonal. Products along
//   u  x x . . . .    tile of rows        the triangle end or start their chains at the diagonal: rows of a tile
//   e  x x x . . .  <-  kTallRows         share the full part, and the small triangle beside it is unrolled.
//   r  x x x x . .

#if defined(__AVX512F__)
constexpr int kTallRows = 8;
#elif defined(__AVX2__)
constexpr int kTallRows = 6;
#else
constexpr int kTallRows = 4;
#endif

enum class Triangle { none, on, end, start, start_on };

constexpr bool goes_on(Triangle shape) { return shape == Triangle::on || shape == Triangle::start_on; }

// c(r, :) = chain over k of a(r, k) * b(k, :), a(r, k) = a[r * a_row + k * a_k]. `full` counts the k that all rows
// share.
//   end:       then row r goes on for r more k.
//   start:     before them, row r has kM - r k of its own (first those of row 0).
//   on, start_on:  as none and start, but the chain goes on from what c holds instead of +0.
template <int kM, int kN, Triangle kShape>
void chain_tile(Index full, const float* a, Index a_row, Index a_k, const float* b, Index b_ld, float* c, Index c_ld) {
  Vf acc[kM][kN];
  SEEKSIM_UNROLL
  for (int r = 0; r < kM; ++r) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) acc[r][v] = goes_on(kShape) ? load(c + r * c_ld + v * kW) : splat(0.0F);
  }
  if constexpr (kShape == Triangle::start || kShape == Triangle::start_on) {
    SEEKSIM_UNROLL
    for (int t = 0; t < kM; ++t, a += a_k, b += b_ld) {
      SEEKSIM_UNROLL
      for (int r = 0; r <= t; ++r) {
        const Vf ar = splat(a[r * a_row]);
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[r][v] = SimdOps::fma(ar, load(b + v * kW), acc[r][v]);
      }
    }
  }
  for (Index k = 0; k < full; ++k, a += a_k, b += b_ld) {
    Vf bk[kN];
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) bk[v] = load(b + v * kW);
    SEEKSIM_UNROLL
    for (int r = 0; r < kM; ++r) {
      const Vf ar = splat(a[r * a_row]);
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) acc[r][v] = SimdOps::fma(ar, bk[v], acc[r][v]);
    }
  }
  if constexpr (kShape == Triangle::end) {
    SEEKSIM_UNROLL
    for (int t = 1; t < kM; ++t, a += a_k, b += b_ld) {
      SEEKSIM_UNROLL
      for (int r = t; r < kM; ++r) {
        const Vf ar = splat(a[r * a_row]);
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[r][v] = SimdOps::fma(ar, load(b + v * kW), acc[r][v]);
      }
    }
  }
  SEEKSIM_UNROLL
  for (int r = 0; r < kM; ++r) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) store(c + r * c_ld + v * kW, acc[r][v]);
  }
}

using ChainFunction = void (*)(Index, const float*, Index, Index, const float*, Index, float*, Index);

template <Triangle kShape, int kM>
constexpr void fill_chains(ChainFunction (*table)[3]) {
  table[kM][1] = chain_tile<kM, 1, kShape>;
  table[kM][2] = chain_tile<kM, 2, kShape>;
  if constexpr (kM > 1) fill_chains<kShape, kM - 1>(table);
}
template <Triangle kShape>
struct ChainTable {
  ChainFunction at[kTallRows + 1][3] = {};
  constexpr ChainTable() { fill_chains<kShape, kTallRows>(at); }
};
template <Triangle kShape>
constexpr ChainTable<kShape> kChains;

constexpr Index round_to_vectors(Index n) { return (n + kW - 1) / kW * kW; }

// A (rows, columns) operand whose rows can be read in whole vectors.
struct Rows {
  const float* data;
  Index ld;
};

// The columns of c are b's, padded to whole vectors: all of them, two vectors at a time.
template <Triangle kShape>
SEEKSIM_FN void chains(int rows, Index full, const float* a, Index a_row, Index a_k, Rows b, Index columns, float* c,
                       Index c_ld) {
  const int vectors = static_cast<int>((columns + kW - 1) / kW);
  for (int v = 0; v < vectors; v += 2) {
    const int now = vectors - v > 1 ? 2 : 1;
    kChains<kShape>.at[rows][now](full, a, a_row, a_k, b.data + v * kW, b.ld, c + v * kW, c_ld);
  }
}

// What lies in whole vectors, stored as T without what is past the end of the row.
template <class T>
SEEKSIM_FN void put_row(const float* row, T* to, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA { store_lanes(to + i, lanes, load(row + i)); });
}

// As above, with c (rows, columns) in memory that ends at its last column. tile: working memory for the ragged case.
template <Triangle kShape>
static inline void chains_to(int rows, Index full, const float* a, Index a_row, Index a_k, Rows b, Index columns,
                             float* c, Index c_ld, float* tile) {
  if (columns % kW == 0) return chains<kShape>(rows, full, a, a_row, a_k, b, columns, c, c_ld);
  const Index ld = round_to_vectors(columns);
  for (int r = 0; kShape == Triangle::start_on && r < rows; ++r) {
    for_vectors(columns, [&](Index i, auto lanes)
                             SEEKSIM_LAMBDA { store(tile + r * ld + i, load_lanes(c + r * c_ld + i, lanes)); });
  }
  chains<kShape>(rows, full, a, a_row, a_k, b, columns, tile, ld);
  for (int r = 0; r < rows; ++r) put_row(tile + r * ld, c + r * c_ld, columns);
}

// rows (count, columns) stored as T as floats, in `copy`.
template <class T>
SEEKSIM_FN Rows float_copy(const T* rows, Index ld, Index count, Index columns, float* copy, Index copy_ld) {
  for (Index r = 0; r < count; ++r) convert(rows + r * ld, copy + r * copy_ld, columns);
  return {copy, copy_ld};
}

// As above, but without a copy where the rows are floats already.
template <class T>
SEEKSIM_FN Rows floats_of(const T* rows, Index ld, Index count, Index columns, float* copy, Index copy_ld) {
  if constexpr (kIsHalf<T>) {
    return float_copy(rows, ld, count, columns, copy, copy_ld);
  } else {
    return {rows, ld};
  }
}

// Room for floats (rows, columns) that go to memory of T: that memory itself, or a buffer that put() rounds into it.
template <class T>
struct Target {
  T* out;
  Index out_ld;
  float* data;
  Index ld;

  SEEKSIM_FN Target make(T* out, Index out_ld, float* room, Index room_ld) {
    if constexpr (kIsHalf<T>) {
      return {out, out_ld, room, room_ld};
    } else {
      return {out, out_ld, out, out_ld};
    }
  }
  SEEKSIM_FN void put(const Target& t, Index rows, Index columns) {
    if constexpr (kIsHalf<T>) {
      for (Index r = 0; r < rows; ++r) convert(t.data + r * t.ld, t.out + r * t.out_ld, columns);
    }
  }
};

// Working memory of one key head, and of its query heads in turn, of tensors stored as T.
template <class T>
struct HeadScratch {
  float* transposed;  // (D, T rounded up): keys or values, for products along D
  float* first;       // (T, D rounded up): copies of ragged rows
  float* second;
  float* scores;  // (kTallRows, T rounded up)
  float* tile;    // (kTallRows, D rounded up)
  // For 16 bits only: inputs and outputs as floats.
  float* qkv;   // (T, (G + 2) D)
  float* out;   // (T, D)
  float* dqkv;  // (T, (G + 2) D)

  SEEKSIM_FN HeadScratch make(AttentionShape s) {
    const Index t = round_to_vectors(s.tokens), d = round_to_vectors(s.head_dim);
    const Index rows = s.tokens * s.head_dim, all = s.tokens * s.group_columns();
    const Index as_floats = kIsHalf<T> ? 2 * all + rows : 0;
    float* const base =
        scratch(Scratch::attention, s.head_dim * t + 2 * s.tokens * d + kTallRows * (t + d) + as_floats);
    HeadScratch h{};
    h.transposed = base;
    h.first = h.transposed + s.head_dim * t;
    h.second = h.first + s.tokens * d;
    h.scores = h.second + s.tokens * d;
    h.tile = h.scores + kTallRows * t;
    h.qkv = h.tile + kTallRows * d;
    h.out = h.qkv + all;
    h.dqkv = h.out + rows;
    return h;
  }
};

// rows (T, D) as an operand in whole vectors: itself, or a padded copy.
SEEKSIM_FN Rows whole_vectors(const float* rows, Index ld, Index count, Index columns, float* copy) {
  if (columns % kW == 0) return {rows, ld};
  const Index copy_ld = round_to_vectors(columns);
  for (Index r = 0; r < count; ++r) {
    for_vectors(columns, [&](Index i, auto lanes)
                             SEEKSIM_LAMBDA { store(copy + r * copy_ld + i, load_lanes(rows + r * ld + i, lanes)); });
  }
  return {copy, copy_ld};
}

// The transpose of rows (T, D) as (D, T rounded up).
SEEKSIM_FN Rows transposed_rows(const float* rows, Index ld, Index count, Index columns, float* copy) {
  const Index copy_ld = round_to_vectors(count);
  for (Index j = 0; j < count; j += kW)
    pack_transposed_block(rows + j * ld, ld, min_of(count - j, kW), columns, copy_ld, copy + j);
  return {copy, copy_ld};
}

// Of up to kTallRows rows, of which row r has first + r entries and room for whole vectors: scores become
// exp(scores * scale - max), with their maxima and sums. Vectors are loaded and stored whole, since a CPU makes a part
// of one wait for the store that it comes from; and all rows take each step together, so that none waits for itself.
SEEKSIM_FN void exponentials_of_rows(int rows, float* scores, Index ld, Index first, float scale, float* max,
                                     float* sum) {
  const Vf least = splat(-__builtin_inff());
  for (int r = 0; r < rows; ++r) {
    float* const row = scores + r * ld;
    Vf m = least;
    for_vectors(first + r, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf scaled = SimdOps::mul(load(row + i), splat(scale));
      store(row + i, scaled);
      const Vf v = keep_lanes(lanes, scaled, least);
      m = v > m ? v : m;
    });
    max[r] = largest_lane(m);
  }
  for (int r = 0; r < rows; ++r) {
    float* const row = scores + r * ld;
    const Vf most = splat(max[r]);
    for (Index i = 0; i < first + r; i += kW) store(row + i, math::exp<SimdOps>(SimdOps::sub(load(row + i), most)));
  }
  for (int r = 0; r < rows; ++r) {
    const float* const row = scores + r * ld;
    sum[r] = lane_sum(first + r, [row](Vf s, Index i, auto) SEEKSIM_LAMBDA { return SimdOps::add(s, load(row + i)); });
  }
}

// As above, but scores become softmax(scores * scale), and +0 up to `columns`.
SEEKSIM_FN void softmax_rows(int rows, float* scores, Index ld, Index first, float scale, Index columns) {
  float max[kTallRows], sum[kTallRows];
  exponentials_of_rows(rows, scores, ld, first, scale, max, sum);
  for (int r = 0; r < rows; ++r) {
    float* const row = scores + r * ld;
    const Vf inverse = splat(FloatOps::div(1.0F, sum[r]));
    for_vectors(first + r, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      store(row + i, keep_lanes(lanes, SimdOps::mul(load(row + i), inverse), splat(0.0F)));
    });
    for (Index i = round_to_vectors(first + r); i < columns; i += kW) store(row + i, splat(0.0F));
  }
}

SEEKSIM_FN float attention_scale(Index head_dim) {
  return math::inverse_sqrt<FloatOps>(FloatOps::from_int(static_cast<int>(head_dim)));
}

// One query head: number h of this slice, number `row` over all samples. `keys` and `values` are its key head's.
template <class T>
SEEKSIM_FN void head_forward(AttentionShape s, const Dropout& drop, const HeadScratch<T>& work, std::uint32_t sample,
                             Index h, Index row, Rows q, Rows keys, Rows values, Mat<T> probs, const Target<T>& o) {
  const Index d = s.head_dim, t = s.tokens, score_ld = round_to_vectors(t);
  const float scale = attention_scale(d);
  for (Index i = 0; i < t; i += kTallRows) {
    const int rows = static_cast<int>(min_of(kTallRows, t - i));
    chains<Triangle::none>(rows, d, q.data + i * q.ld, q.ld, 1, keys, i + rows, work.scores, score_ld);
    softmax_rows(rows, work.scores, score_ld, i + 1, scale, t);
    for (int r = 0; r < rows; ++r) {
      float* const p = work.scores + r * score_ld;
      put_row(p, probs.row(row * t + i + r), t);
      if (drop.on()) drop_out(drop, drop.first_sample + sample, ((s.first_head + h) * t + i + r) * t, p, p, i + r + 1);
    }
    chains_to<Triangle::end>(rows, i + 1, work.scores, score_ld, 1, values, d, o.data + i * o.ld, o.ld, work.tile);
  }
  Target<T>::put(o, t, d);
}

template <class T>
void attention_forward_body(AttentionShape s, const Dropout& drop, Mat<const T> qkv, Mat<T> probs, Mat<T> out) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns();
  const auto work = HeadScratch<T>::make(s);
  for (Index head = 0; head < s.samples * s.key_heads(); ++head) {
    const Index sample = head / s.key_heads(), key_head = head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + key_head * columns, qkv.stride, t, columns, work.qkv, columns);
    const float* const k = q.data + s.group * d;
    const Rows keys = transposed_rows(k, q.ld, t, d, work.transposed);
    const Rows values = whole_vectors(k + d, q.ld, t, d, work.first);
    for (Index g = 0; g < s.group; ++g) {
      const Index h = key_head * s.group + g;
      const auto o = Target<T>::make(out.row(sample * t) + h * d, out.stride, work.out, d);
      head_forward(s, drop, work, static_cast<std::uint32_t>(sample), h, sample * s.heads + h,
                   Rows{q.data + g * d, q.ld}, keys, values, probs, o);
    }
  }
}

// Of the same rows as softmax_rows': dp becomes ds = p * (dp - dot(dp, p)) * scale.
SEEKSIM_FN void softmax_rows_backward(int rows, float* dp, Index ld, Rows probs, Index first, float scale) {
  float dots[kTallRows];
  for (int r = 0; r < rows; ++r) {
    const float *const row = dp + r * ld, *const p = probs.data + r * probs.ld;
    dots[r] = lane_sum(first + r, [=](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
      return SimdOps::fma(load(row + i), load_lanes(p + i, lanes), s);
    });
  }
  for (int r = 0; r < rows; ++r) {
    float* const row = dp + r * ld;
    const float* const p = probs.data + r * probs.ld;
    const Vf dot = splat(dots[r]);
    for_vectors(first + r, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      const Vf centred = SimdOps::sub(load(row + i), dot);
      store(row + i, SimdOps::mul(SimdOps::mul(load_lanes(p + i, lanes), centred), splat(scale)));
    });
  }
}

// c(j, :) = chain over queries i >= j of a(i, j) * b(i, :), for all j; with `go_on` the chain starts from what c holds.
SEEKSIM_FN void chains_from_diagonal(bool go_on, Index t, Index d, const float* a, Index a_ld, Rows b, float* c,
                                     Index c_ld, float* tile) {
  for (Index j = 0; j < t; j += kTallRows) {
    const int rows = static_cast<int>(min_of(kTallRows, t - j));
    const auto chain = go_on ? chains_to<Triangle::start_on> : chains_to<Triangle::start>;
    chain(rows, t - j - rows, a + j * a_ld + j, 1, a_ld, Rows{b.data + j * b.ld, b.ld}, d, c + j * c_ld, c_ld, tile);
  }
}

// One query head, as in head_forward. dk and dv of its key head begin with the group's first query head and go on with
// the others.
template <class T>
SEEKSIM_FN void head_backward(AttentionShape s, const Dropout& drop, const HeadScratch<T>& work, std::uint32_t sample,
                              Index h, bool first, Rows q, const float* k, Rows values, Rows go, Rows p, float* kept,
                              Mat<float> grads, float* dq, float* dk, Index dq_ld) {
  const Index d = s.head_dim, t = s.tokens, ds_ld = round_to_vectors(t);
  const float scale = attention_scale(d);
  const auto drop_row = [&](Index i, float* row) SEEKSIM_LAMBDA {
    if (!drop.on()) return;
    drop_out(drop, drop.first_sample + sample, ((s.first_head + h) * t + i) * t, row, row, i + 1);
  };
  const Rows keys = whole_vectors(k, q.ld, t, d, work.first);
  for (Index i = 0; i < t; i += kTallRows) {
    const int rows = static_cast<int>(min_of(kTallRows, t - i));
    chains<Triangle::none>(rows, d, go.data + i * go.ld, go.ld, 1, values, i + rows, work.scores, ds_ld);
    for (int r = 0; r < rows; ++r) drop_row(i + r, work.scores + r * ds_ld);
    softmax_rows_backward(rows, work.scores, ds_ld, Rows{p.data + i * p.ld, p.ld}, i + 1, scale);
    for (int r = 0; r < rows; ++r) {
      put_row(work.scores + r * ds_ld, grads.row(i + r), i + r + 1);
      drop_row(i + r, kept + (i + r) * grads.stride);
    }
    chains_to<Triangle::end>(rows, i + 1, work.scores, ds_ld, 1, keys, d, dq + i * dq_ld, dq_ld, work.tile);
  }
  const Rows queries = whole_vectors(q.data, q.ld, t, d, work.first);
  const Rows outputs = whole_vectors(go.data, go.ld, t, d, work.second);
  chains_from_diagonal(!first, t, d, grads.data, grads.stride, queries, dk, dq_ld, work.tile);
  chains_from_diagonal(!first, t, d, p.data, p.ld, outputs, dk + d, dq_ld, work.tile);
}

template <class T>
void attention_backward_body(AttentionShape s, const Dropout& drop, Mat<const T> dout, Mat<const T> qkv,
                             Mat<const T> probs, Mat<float> grads, Mat<T> dqkv) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns();
  const auto work = HeadScratch<T>::make(s);
  // Each row of the probabilities, once used, makes room for what dropout leaves of it.
  float* const kept = grads.row(t);
  for (Index head = 0; head < s.samples * s.key_heads(); ++head) {
    const Index sample = head / s.key_heads(), key_head = head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + key_head * columns, qkv.stride, t, columns, work.qkv, columns);
    const auto dq = Target<T>::make(dqkv.row(sample * t) + key_head * columns, dqkv.stride, work.dqkv, columns);
    const float* const k = q.data + s.group * d;
    const Rows values = transposed_rows(k + d, q.ld, t, d, work.transposed);
    for (Index g = 0; g < s.group; ++g) {
      const Index h = key_head * s.group + g, row = sample * s.heads + h;
      const Rows go = floats_of(dout.row(sample * t) + h * d, dout.stride, t, d, work.out, d);
      const Rows p = drop.on() ? float_copy(probs.row(row * t), probs.stride, t, t, kept, grads.stride)
                               : floats_of(probs.row(row * t), probs.stride, t, t, kept, grads.stride);
      head_backward(s, drop, work, static_cast<std::uint32_t>(sample), h, g == 0, Rows{q.data + g * d, q.ld}, k, values,
                    go, p, kept, grads, dq.data + g * d, dq.data + s.group * d, dq.ld);
    }
    Target<T>::put(dq, t, columns);
  }
}
