// Chunks of queries against chunks of keys (fused_attention.h), by the kernels of fused_attention.inl. Part of
// products.inl.

// As HeadsAtWork, with keys and values of another chunk.
template <class T, bool kKeysBefore>
struct PartsAtWork {
  AttentionShape s;
  FusedPlace place;
  Mat<const T> qkv, kv;
  Index first_key_head;

  static constexpr bool kBefore = kKeysBefore;
  SEEKSIM_BODY Index sample(Index h) const { return (first_key_head * s.group + h) / s.heads; }
  SEEKSIM_BODY Index head(Index h) const { return (first_key_head * s.group + h) % s.heads; }
  SEEKSIM_BODY const T* queries(Index h) const {
    return qkv.row(sample(h) * s.tokens) + (head(h) / s.group * (s.group + 2) + head(h) % s.group) * s.head_dim;
  }
  SEEKSIM_BODY const T* keys(Index h) const {
    return kv.row(sample(h) * s.tokens) + head(h) / s.group * 2 * s.head_dim;
  }
  SEEKSIM_BODY const T* values(Index h) const { return keys(h) + s.head_dim; }
  SEEKSIM_BODY Index key_stride() const { return kv.stride; }
  template <class U>
  SEEKSIM_BODY U* columns_of(Mat<U> m, Index h) const {
    return m.row(sample(h) * s.tokens) + head(h) * s.head_dim;
  }
};

template <class T, bool kBefore>
SEEKSIM_HD float dropped_of(const Dropout& drop, const PartsAtWork<T, kBefore>& parts, Index h, Index i, Index j,
                            float p) {
  if (!drop.on()) return p;
  const FusedPlace& at = parts.place;
  const Index e = ((parts.s.first_head + parts.head(h)) * at.tokens + at.query + i) * at.tokens + at.key + j;
  return dropped_out(drop, drop.first_sample + static_cast<std::uint32_t>(parts.sample(h)), e, p);
}

// older = older and newer, a row a warp.
struct FusedJoin {
  static constexpr int kThreads = kRowThreads;
  Mat<const float> newer;
  Mat<float> older;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const Index d = older.cols - 2;
    typename Block::template Local<float> max, a, b, total;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    block.threads([&](int t) SEEKSIM_PHASE {
      if (number(t) >= older.rows) return;
      const float *const o = older.row(number(t)), *const n = newer.row(number(t));
      const float m = n[d] > o[d] ? n[d] : o[d];
      max(t) = m, a(t) = math::exp<V>(V::sub(o[d], m)), b(t) = math::exp<V>(V::sub(n[d], m));
      total(t) = V::fma(n[d + 1], b(t), V::mul(o[d + 1], a(t)));
    });
    block.max_of_warps(max);  // of one value: no thread writes before all have read
    block.threads([&](int t) SEEKSIM_PHASE {
      if (number(t) >= older.rows) return;
      float* const o = older.row(number(t));
      const float* const n = newer.row(number(t));
      for (Index c = thread_of_warp(t); c < d; c += kWarp) o[c] = V::fma(n[c], b(t), V::mul(o[c], a(t)));
      if (thread_of_warp(t) == 0) o[d] = max(t), o[d + 1] = total(t);
    });
  }
};

template <class T>
struct FusedRoot {
  AttentionShape s;
  Mat<const float> state;
  Mat<float> stats;
  Mat<T> out;
  SEEKSIM_BODY void operator()(Index row, Index c) const {
    const float* const from = state.row(row);
    const float inverse = FloatOps::div(1.0F, from[s.head_dim + 1]);
    const Index head = row / s.tokens, sample = head / s.heads;
    out(sample * s.tokens + row % s.tokens, head % s.heads * s.head_dim + c) =
        from_float<T>(FloatOps::mul(from[c], inverse));
    if (c == 0) stats(row, 0) = from[s.head_dim], stats(row, 1) = inverse;
  }
};

template <bool kBefore, class Launch, class T>
void fused_part_forward(Launch& launch, const AttentionShape& s, const FusedPlace& place, const Dropout& drop,
                        Mat<const T> qkv, Mat<const T> kv, Mat<float> state) {
  using Parts = PartsAtWork<T, kBefore>;
  check_fused_blocks(s);
  const Index square = s.group * s.tokens * s.tokens, joins = blocks_for(s.tokens, kFusedBlock) * 2;
  by_key_heads(launch, s, square + s.group * s.tokens * joins, [&](Index first, Index key_heads, float* work) {
    const Parts parts{s, place, qkv, kv, first};
    const Index count = key_heads * s.group;
    float* const factors = work + key_heads * square;
    launch(attention_grid(s, count, s.tokens), AttentionScores<false, T, Parts>{parts, {}, count, work});
    by_warps(launch, count * s.tokens, FusedSoftmax<T, Parts, true>{parts, drop, count, work, factors, state});
    launch(attention_grid(s, count, s.head_dim),
           FusedOverKeys<false, T, Parts, true>{parts, count, work, factors, {}, state});
  });
}

template <bool kBefore, class Launch, class T>
void fused_part_backward(Launch& launch, const AttentionShape& s, const FusedPlace& place, const Dropout& drop,
                         Mat<const T> dout, Mat<const T> qkv, Mat<const T> kv, Mat<const T> out, Mat<const float> stats,
                         Mat<float> dq, Mat<float> dkv) {
  using Parts = PartsAtWork<T, kBefore>;
  check_fused_blocks(s);
  const Index square = s.group * s.tokens * s.tokens;
  by_key_heads(launch, s, 2 * square, [&](Index first, Index key_heads, float* work) {
    const Parts parts{s, place, qkv, kv, first};
    const Index count = key_heads * s.group;
    float* const grads = work + key_heads * square;
    launch(attention_grid(s, count, s.tokens), AttentionScores<false, T, Parts>{parts, {}, count, work});
    launch(attention_grid(s, count, s.tokens), AttentionScores<true, T, Parts>{parts, dout, count, grads});
    by_warps(launch, count * s.tokens,
             FusedSoftmaxBackward<T, Parts>{parts, drop, count, work, grads, dout, out, stats});
    launch(attention_grid(s, count, s.head_dim),
           FusedOverKeys<true, T, Parts, true>{parts, count, grads, nullptr, stats, dq});
    const Grid keys = attention_grid(s, key_heads, s.head_dim);
    launch(keys, FusedOverQueries<false, T, Parts, true>{parts, key_heads, grads, dout, dkv});
    launch(keys, FusedOverQueries<true, T, Parts, true>{parts, key_heads, work, dout, dkv});
  });
}
