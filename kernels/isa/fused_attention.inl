// Attention by blocks of keys, head by head (fused_attention.h). Included by products_*.cpp after attention.inl.
//
//     blocks of keys ->         A tile of rows lies inside one block of queries, so that its rows see the same blocks
//   q  B                        of keys. Forward and dQ: each block's sum goes onto a binary counter of the tile.
//   u  B B                      dK, dV: each block of queries, with all heads of the group, is one leaf of the tree of
//   e  B B B   <- one leaf      every key that it sees; its counter holds whole (T, D) sums, of which older ones cover
//   r  B B B B    of dK, dV     fewer keys.

// Operands on a counter of `blocks` leaves: one a binary digit, and the one that comes.
constexpr Index counter_slots(Index blocks) {
  Index slots = 1;
  for (; blocks > 0; blocks >>= 1) ++slots;
  return slots;
}
constexpr Index fused_blocks(Index tokens) { return (tokens + kFusedBlock - 1) / kFusedBlock; }

// Working memory of one key head and of its query heads. T': tokens rounded up to whole vectors; D' likewise.
template <class T>
struct FusedScratch {
  Index t, d;           // T', D'
  float* keys;          // (D, T')  transposed
  float* rows;          // (T, D')  values; backward: keys
  float* scores;        // (32, T') scores of a tile; backward: probabilities of a block of queries
  float *sums, *stats;  // (slots, kTallRows, D'), (slots, 2, kTallRows)  the counter of a tile of rows
  // Backward only:
  float* values;             // (D, T')  transposed
  float* grads;              // (32, T') dS of a block of queries
  float *queries, *outputs;  // (32, D') of that block
  float* leaves;             // (slots, 2, T, D')  the counter of dK and dV
  // 16 bits only, as floats:
  float *qkv, *out, *dqkv;  // (T, (G + 2) D), (T, G D) dout; forward: (T, D) out, (T, (G + 2) D)

  SEEKSIM_FN FusedScratch make(AttentionShape s, bool backward) {
    FusedScratch f{};
    f.t = round_to_vectors(s.tokens), f.d = round_to_vectors(s.head_dim);
    const Index slots = counter_slots(fused_blocks(s.tokens)), square = s.head_dim * f.t, rows = s.tokens * f.d;
    const Index all = s.tokens * s.group_columns(), band = kFusedBlock * f.t, padded = kFusedBlock * f.d;
    const Index front = square + rows + band + slots * kTallRows * (f.d + 2);
    const Index back = backward ? square + band + 2 * padded + 2 * slots * rows : 0;
    const Index halves = kIsHalf<T> ? 3 * all : 0;
    float* at = scratch(Scratch::attention, front + back + halves);
    const auto take = [&at](Index n) SEEKSIM_LAMBDA {
      at += n;
      return at - n;
    };
    f.keys = take(square), f.rows = take(rows), f.scores = take(band);
    f.sums = take(slots * kTallRows * f.d), f.stats = take(slots * kTallRows * 2);
    if (backward) {
      f.values = take(square), f.grads = take(band), f.queries = take(padded), f.outputs = take(padded);
      f.leaves = take(2 * slots * rows);
    }
    if (kIsHalf<T>) f.qkv = take(all), f.out = take(all), f.dqkv = take(all);
    return f;
  }
  float* sum(Index slot) const { return sums + slot * kTallRows * d; }
  float* max_of(Index slot) const { return stats + slot * 2 * kTallRows; }
  float* total_of(Index slot) const { return max_of(slot) + kTallRows; }
  float* leaf(Index slot, int which, Index tokens) const { return leaves + (slot * 2 + which) * tokens * d; }
};

// How many operands a counter adds up when leaf number `leaf` comes, and it holds `waiting`.
SEEKSIM_FN Index additions(Index leaf, Index waiting) {
  Index n = 0;
  for (; (leaf & 1) != 0 && n < waiting; leaf >>= 1) ++n;
  return n;
}

// older += newer, in whole vectors.
SEEKSIM_FN void add_rows(float* older, const float* newer, Index n) {
  for (Index i = 0; i < n; i += kW) store(older + i, SimdOps::add(load(older + i), load(newer + i)));
}

// Slots `older` and older + 1 of a tile become slot `older`.
template <class T>
SEEKSIM_FN void join_blocks(const FusedScratch<T>& work, int rows, Index older) {
  float *const max = work.max_of(older), *const total = work.total_of(older);
  const float *const newer_max = work.max_of(older + 1), *const newer_total = work.total_of(older + 1);
  for (int r = 0; r < rows; ++r) {
    const float m = newer_max[r] > max[r] ? newer_max[r] : max[r];
    const float a = math::exp<FloatOps>(FloatOps::sub(max[r], m));
    const float b = math::exp<FloatOps>(FloatOps::sub(newer_max[r], m));
    max[r] = m;
    total[r] = FloatOps::fma(newer_total[r], b, FloatOps::mul(total[r], a));
    float* const o = work.sum(older) + r * work.d;
    const float* const n = work.sum(older + 1) + r * work.d;
    for (Index i = 0; i < work.d; i += kW)
      store(o + i, SimdOps::fma(load(n + i), splat(b), SimdOps::mul(load(o + i), splat(a))));
  }
}

// The sum over one block of keys of weights (rows, T') times b (T, D'), for rows i .. of the block of queries that
// begins at `begin`.
SEEKSIM_FN void block_product(int rows, Index i, Index begin, Index block, const float* weights, Index ld, Rows b,
                              Index d, float* to, Index to_ld) {
  const Index key = block * kFusedBlock;
  const Rows from{b.data + key * b.ld, b.ld};
  if (key < begin) return chains<Triangle::none>(rows, kFusedBlock, weights + key, ld, 1, from, d, to, to_ld);
  chains<Triangle::end>(rows, i - begin + 1, weights + key, ld, 1, from, d, to, to_ld);
}

// Which of a stretch of keys the rows of a stretch of queries see, by numbers within the stretches.
struct FusedSight {
  FusedPlace at;
  Index tokens;  // of a stretch

  Index keys(Index row) const { return at.before ? tokens : row + 1; }
  // Keys of whole blocks that all rows of the block of queries see, and blocks in all.
  Index whole(Index row) const { return at.before ? tokens : row / kFusedBlock * kFusedBlock; }
  Index blocks(Index row) const { return at.before ? tokens / kFusedBlock : row / kFusedBlock + 1; }
  // The number of a probability for dropout.
  Index element(Index head, Index row, Index key) const {
    return (head * at.tokens + at.query + row) * at.tokens + at.key + key;
  }
};

// Rows i .. i + rows of a query head: the joined blocks are in slot 0 of the counter.
template <class T>
SEEKSIM_FN void fused_tile_sums(AttentionShape s, const FusedSight& sight, const Dropout& drop,
                                const FusedScratch<T>& work, std::uint32_t sample, Index head, Index i, int rows,
                                Rows q, Rows values) {
  const Index begin = sight.whole(i), blocks = sight.blocks(i);
  const float scale = attention_scale(s.head_dim);
  chains<Triangle::none>(rows, s.head_dim, q.data + i * q.ld, q.ld, 1, Rows{work.keys, work.t},
                         sight.keys(i + rows - 1), work.scores, work.t);
  Index top = 0;
  for (Index b = 0; b < blocks; ++b) {
    const Index key = b * kFusedBlock;
    for (int r = 0; r < rows; ++r) {
      const Index n = min_of(kFusedBlock, sight.keys(i + r) - key);
      float* const row = work.scores + r * work.t + key;
      exponentials_of_rows(1, row, work.t, n, scale, work.max_of(top) + r, work.total_of(top) + r);
      if (drop.on()) drop_out(drop, sample, sight.element(head, i + r, key), row, row, n);
    }
    block_product(rows, i, begin, b, work.scores, work.t, values, s.head_dim, work.sum(top), work.d);
    for (Index left = additions(b, top); left > 0; --left) join_blocks(work, rows, --top);
    ++top;
  }
  for (--top; top > 0;) join_blocks(work, rows, --top);
}

// The same of a whole sample; out and stats are those of row i.
template <class T>
SEEKSIM_FN void fused_tile_forward(AttentionShape s, const Dropout& drop, const FusedScratch<T>& work,
                                   std::uint32_t sample, Index head, Index i, int rows, Rows q, Rows values, float* out,
                                   Index out_ld, Mat<float> stats) {
  fused_tile_sums(s, FusedSight{{s.tokens, 0, 0, false}, s.tokens}, drop, work, sample, head, i, rows, q, values);
  for (int r = 0; r < rows; ++r) {
    const float inverse = FloatOps::div(1.0F, work.total_of(0)[r]);
    stats.row(r)[0] = work.max_of(0)[r], stats.row(r)[1] = inverse;
    for_vectors(s.head_dim, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
      store_lanes(out + r * out_ld + c, lanes,
                  SimdOps::mul(load_lanes(work.sum(0) + r * work.d + c, lanes), splat(inverse)));
    });
  }
}

// Calls part(first row, rows) for tiles that do not cross the end of a block.
template <class Part>
SEEKSIM_FN void by_tiles(Index begin, Index end, Part part) {
  for (Index i = begin; i < end;) {
    const Index block_end = min_of(end, (i / kFusedBlock + 1) * kFusedBlock);
    const int rows = static_cast<int>(min_of(kTallRows, block_end - i));
    part(i, rows);
    i += rows;
  }
}

template <class T>
void fused_attention_forward_body(AttentionShape s, const Dropout& drop, Mat<const T> qkv, Mat<float> stats,
                                  Mat<T> out) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns();
  const auto work = FusedScratch<T>::make(s, false);
  for (Index key_head = 0; key_head < s.samples * s.key_heads(); ++key_head) {
    const Index sample = key_head / s.key_heads(), k = key_head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + k * columns, qkv.stride, t, columns, work.qkv, columns);
    const float* const keys = q.data + s.group * d;
    transposed_rows(keys, q.ld, t, d, work.keys);
    const Rows values = whole_vectors(keys + d, q.ld, t, d, work.rows);
    for (Index g = 0; g < s.group; ++g) {
      const Index h = k * s.group + g;
      const auto o = Target<T>::make(out.row(sample * t) + h * d, out.stride, work.out, d);
      by_tiles(0, t, [&](Index i, int rows) SEEKSIM_LAMBDA {
        const Index row = (sample * s.heads + h) * t + i;
        fused_tile_forward(s, drop, work, drop.first_sample + static_cast<std::uint32_t>(sample), s.first_head + h, i,
                           rows, Rows{q.data + g * d, q.ld}, values, o.data + i * o.ld, o.ld,
                           Mat<float>{stats.row(row), rows, 2, stats.stride});
      });
      Target<T>::put(o, t, d);
    }
  }
}

// What backward needs of one query head.
template <class T>
struct FusedHead {
  Rows q, go;  // (T, D), go: dout
  Rows keys;   // (T, D')
  float* dq;   // (T, D)
  Index dq_ld;
  Mat<const T> out;        // (T, D)
  Mat<const float> stats;  // (T, 2)
  std::uint32_t sample;
  Index number;  // in the model
};

// Rows i .. i + rows: probabilities after dropout and dS into the block's bands, and dQ.
template <class T>
SEEKSIM_FN void fused_tile_backward(AttentionShape s, const FusedSight& sight, const Dropout& drop,
                                    const FusedScratch<T>& work, const FusedHead<T>& head, Index i, int rows) {
  const Index begin = sight.whole(i), band = i % kFusedBlock, d = s.head_dim, keys = sight.keys(i + rows - 1);
  float *const p = work.scores + band * work.t, *const ds = work.grads + band * work.t;
  const Vf scale = splat(attention_scale(d));
  chains<Triangle::none>(rows, d, head.q.data + i * head.q.ld, head.q.ld, 1, Rows{work.keys, work.t}, keys, p, work.t);
  chains<Triangle::none>(rows, d, head.go.data + i * head.go.ld, head.go.ld, 1, Rows{work.values, work.t}, keys, ds,
                         work.t);
  for (int r = 0; r < rows; ++r) {
    float *const pr = p + r * work.t, *const dr = ds + r * work.t;
    const Index n = sight.keys(i + r), element = sight.element(head.number, i + r, 0);
    if (drop.on()) drop_out(drop, head.sample, element, dr, dr, n);
    const Vf max = splat(head.stats.row(i + r)[0]), inverse = splat(head.stats.row(i + r)[1]);
    const float* const go = head.go.data + (i + r) * head.go.ld;
    const T* const out = head.out.row(i + r);
    const Vf delta = splat(lane_sum(d, [=](Vf sum, Index c, auto lanes) SEEKSIM_LAMBDA {
      return SimdOps::fma(load_lanes(go + c, lanes), load_lanes(out + c, lanes), sum);
    }));
    for_vectors(n, [&](Index j, auto lanes) SEEKSIM_LAMBDA {
      const Vf score = SimdOps::mul(load_lanes(pr + j, lanes), scale);
      const Vf probability = SimdOps::mul(math::exp<SimdOps>(SimdOps::sub(score, max)), inverse);
      const Vf centred = SimdOps::sub(load_lanes(dr + j, lanes), delta);
      store_lanes(pr + j, lanes, probability);
      store_lanes(dr + j, lanes, SimdOps::mul(SimdOps::mul(probability, centred), scale));
    });
    if (drop.on()) drop_out(drop, head.sample, element, pr, pr, n);
  }
  Index top = 0;
  for (Index b = 0; b < sight.blocks(i); ++b) {
    block_product(rows, i, begin, b, ds, work.t, head.keys, d, work.sum(top), work.d);
    for (Index left = additions(b, top); left > 0; --left, --top)
      add_rows(work.sum(top - 1), work.sum(top), rows * work.d);
    ++top;
  }
  for (--top; top > 0; --top) add_rows(work.sum(top - 1), work.sum(top), rows * work.d);
  for (int r = 0; r < rows; ++r) {
    for_vectors(d, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
      store_lanes(head.dq + (i + r) * head.dq_ld + c, lanes, load_lanes(work.sum(0) + r * work.d + c, lanes));
    });
  }
}

// leaf (end, D') = chain over `count` queries of weights (query, key) * b (query, :), which goes on from what the leaf
// holds where `on`. All of them see the keys before `begin`; of those from there on, key begin + n is seen by all but
// the first n. weights: the block's band; b begins at its first query.
SEEKSIM_FN void leaf_chains(bool on, Index count, Index begin, Index end, const float* weights, Index ld, Rows b,
                            Index d, float* leaf, Index leaf_ld) {
  by_tiles(0, end, [&](Index j, int rows) SEEKSIM_LAMBDA {
    float* const to = leaf + j * leaf_ld;
    if (j < begin) {
      const auto chain = on ? chains<Triangle::on> : chains<Triangle::none>;
      chain(rows, count, weights + j, 1, ld, b, d, to, leaf_ld);
    } else {
      const auto chain = on ? chains<Triangle::start_on> : chains<Triangle::start>;
      chain(rows, end - j - rows, weights + (j - begin) * ld + j, 1, ld, Rows{b.data + (j - begin) * b.ld, b.ld}, d, to,
            leaf_ld);
    }
  });
}

// The counter of dK and dV: operands in slots of FusedScratch::leaves, and up to which key each has sums.
struct LeafCounter {
  Index top = 0;
  Index ends[40] = {};

  // Slot top is filled up to key `end`, as leaf number `leaf`.
  template <class T>
  SEEKSIM_FN void push(LeafCounter& c, const FusedScratch<T>& work, Index leaf, Index tokens, Index end) {
    c.ends[c.top] = end;
    for (Index left = additions(leaf, c.top); left > 0; --left) join(c, work, tokens);
    ++c.top;
  }
  // All operands become one, in slot 0.
  template <class T>
  SEEKSIM_FN void fold(LeafCounter& c, const FusedScratch<T>& work, Index tokens) {
    for (--c.top; c.top > 0;) join(c, work, tokens);
  }
  // The two topmost operands, the newer one being at slot top, become one.
  template <class T>
  SEEKSIM_FN void join(LeafCounter& c, const FusedScratch<T>& work, Index tokens) {
    const Index both = c.ends[c.top - 1], end = c.ends[c.top];
    for (int which = 0; which < 2; ++which) {
      float* const older = work.leaf(c.top - 1, which, tokens);
      const float* const newer = work.leaf(c.top, which, tokens);
      add_rows(older, newer, both * work.d);
      for (Index i = both * work.d; i < end * work.d; i += kW) store(older + i, load(newer + i));
    }
    c.ends[--c.top] = end;
  }
};

// One block of queries of a head: dQ, and its part of a leaf of dK and dV.
template <class T>
SEEKSIM_FN void fused_block_backward(AttentionShape s, const FusedSight& sight, const Dropout& drop,
                                     const FusedScratch<T>& work, const FusedHead<T>& head, bool first, Index begin,
                                     Index end, Index slot) {
  const Index d = s.head_dim, whole = sight.whole(begin), keys = sight.keys(end - 1);
  by_tiles(begin, end,
           [&](Index i, int rows) SEEKSIM_LAMBDA { fused_tile_backward(s, sight, drop, work, head, i, rows); });
  const Rows queries = whole_vectors(head.q.data + begin * head.q.ld, head.q.ld, end - begin, d, work.queries);
  const Rows outputs = whole_vectors(head.go.data + begin * head.go.ld, head.go.ld, end - begin, d, work.outputs);
  leaf_chains(!first, end - begin, whole, keys, work.grads, work.t, queries, d, work.leaf(slot, 0, s.tokens), work.d);
  leaf_chains(!first, end - begin, whole, keys, work.scores, work.t, outputs, d, work.leaf(slot, 1, s.tokens), work.d);
}

template <class T>
void fused_attention_backward_body(AttentionShape s, const Dropout& drop, Mat<const T> dout, Mat<const T> qkv,
                                   Mat<const T> out, Mat<const float> stats, Mat<T> dqkv) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns(), wide = s.group * d;
  const auto work = FusedScratch<T>::make(s, true);
  for (Index key_head = 0; key_head < s.samples * s.key_heads(); ++key_head) {
    const Index sample = key_head / s.key_heads(), k = key_head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + k * columns, qkv.stride, t, columns, work.qkv, columns);
    const Rows go = floats_of(dout.row(sample * t) + k * wide, dout.stride, t, wide, work.out, wide);
    const auto to = Target<T>::make(dqkv.row(sample * t) + k * columns, dqkv.stride, work.dqkv, columns);
    const float* const keys = q.data + wide;
    transposed_rows(keys, q.ld, t, d, work.keys);
    transposed_rows(keys + d, q.ld, t, d, work.values);
    const Rows key_rows = whole_vectors(keys, q.ld, t, d, work.rows);
    const FusedSight sight{{t, 0, 0, false}, t};
    LeafCounter counter;
    for (Index leaf = 0; leaf < fused_blocks(t); ++leaf) {
      const Index begin = leaf * kFusedBlock, end = min_of(t, begin + kFusedBlock);
      for (Index g = 0; g < s.group; ++g) {
        const Index h = k * s.group + g;
        const FusedHead<T> head{Rows{q.data + g * d, q.ld},
                                Rows{go.data + g * d, go.ld},
                                key_rows,
                                to.data + g * d,
                                to.ld,
                                {out.row(sample * t) + h * d, t, d, out.stride},
                                {stats.row((sample * s.heads + h) * t), t, 2, stats.stride},
                                drop.first_sample + static_cast<std::uint32_t>(sample),
                                s.first_head + h};
        fused_block_backward(s, sight, drop, work, head, g == 0, begin, end, counter.top);
      }
      LeafCounter::push(counter, work, leaf, t, end);
    }
    LeafCounter::fold(counter, work, t);
    for (int which = 0; which < 2; ++which) {
      const float* const root = work.leaf(0, which, t);
      for (Index i = 0; i < t; ++i) {
        for_vectors(d, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
          store_lanes(to.data + i * to.ld + wide + which * d + c, lanes, load_lanes(root + i * work.d + c, lanes));
        });
      }
    }
    Target<T>::put(to, t, columns);
  }
}
