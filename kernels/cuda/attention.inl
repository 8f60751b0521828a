// Attention, by the tiles of gemm.inl. Part of products.inl.

// ---- attention ----
//
//   forward    scores (i, j) = q_i k_j        softmax of rows           out_i = chain over j <= i of p_ij v_j
//   backward   dP (i, j) = dout_i v_j         dS from dP and P by rows  dq_i = chain over j <= i of dS_ij k_j
//              dk_j = chain over heads, then i >= j of dS_ij q_i        dv_j likewise of p_ij dout_i
//
// Scores, and then probabilities in fp32, lie in working memory, (T, T) a query head; as many key heads at a time as a
// budget allows.

// Where the queries, keys and values of one key head begin, and numbers counted from there. Heads [first, first + n) of
// all samples are being worked on.
template <class T>
struct HeadsAtWork {
  AttentionShape s;
  Mat<const T> qkv;
  Index first_key_head;

  // Query head h of those being worked on: its sample, and its number within the sample.
  SEEKSIM_BODY Index sample(Index h) const { return (first_key_head * s.group + h) / s.heads; }
  SEEKSIM_BODY Index head(Index h) const { return (first_key_head * s.group + h) % s.heads; }
  SEEKSIM_BODY const T* group_of(Index h) const {
    return qkv.row(sample(h) * s.tokens) + head(h) / s.group * (s.group + 2) * s.head_dim;
  }
  SEEKSIM_BODY const T* queries(Index h) const { return group_of(h) + head(h) % s.group * s.head_dim; }
  SEEKSIM_BODY const T* keys(Index h) const { return group_of(h) + s.group * s.head_dim; }
  SEEKSIM_BODY const T* values(Index h) const { return keys(h) + s.head_dim; }
  SEEKSIM_BODY Index key_stride() const { return qkv.stride; }
  // Whether the keys stand before all queries (fused_parts.inl); else the mask is causal.
  static constexpr bool kBefore = false;
  // For a (B*T, H*D) tensor.
  template <class U>
  SEEKSIM_BODY U* columns_of(Mat<U> m, Index h) const {
    return m.row(sample(h) * s.tokens) + head(h) * s.head_dim;
  }
};
template <class Block>
using SumsOf = typename Block::template Local<Accumulators<SmallTile>>;

// out (h, i, j) = a_i b_j over head_dim, for j <= i and, in tiles on the diagonal, some more. kBackward: dout and
// values, else queries and keys. One block a tile: x the tile of columns, y the tile of rows of a head.
template <bool kBackward, class T, class Heads = HeadsAtWork<T>>
struct AttentionScores {
  static constexpr int kThreads = SmallTile::kThreads;
  Heads heads;
  Mat<const T> dout;
  Index count;  // of heads
  float* out;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index h = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      if (!Heads::kBefore && column > row + SmallTile::kBM - 1) continue;
      const Operand<T> a = kBackward ? Operand<T>{heads.columns_of(dout, h), dout.stride, 1}
                                     : Operand<T>{heads.queries(h), heads.qkv.stride, 1};
      const Operand<T> b{kBackward ? heads.values(h) : heads.keys(h), heads.key_stride(), 1};
      SumsOf<Block> sums;
      TileProduct<Block, SmallTile, Mask::none, Operand<T>, Operand<T>> tile{
          block, block.template shared<float, SmallTile::kSharedFloats>(), row, column, s.tokens, s.tokens, sums, {}};
      tile.clear();
      tile.run(a, b, 0, s.head_dim);
      float* const to = out + h * s.tokens * s.tokens;
      tile.store([&](Index i, Index j, float sum) { to[i * s.tokens + j] = sum; });
    }
  }
};

SEEKSIM_HD float attention_scale(Index head_dim) {
  return math::inverse_sqrt<FloatOps>(FloatOps::from_int(static_cast<std::int32_t>(head_dim)));
}
// Entry (i, j) of a head's probabilities after dropout.
SEEKSIM_HD float dropped_entry(const Dropout& drop, const AttentionShape& s, Index sample, Index head, Index i, Index j,
                               float p) {
  if (!drop.on()) return p;
  const Index e = ((s.first_head + head) * s.tokens + i) * s.tokens + j;
  return dropped_out(drop, drop.first_sample + static_cast<std::uint32_t>(sample), e, p);
}

template <class T>
SEEKSIM_HD float dropped_of(const Dropout& drop, const HeadsAtWork<T>& heads, Index h, Index i, Index j, float p) {
  return dropped_entry(drop, heads.s, heads.sample(h), heads.head(h), i, j, p);
}

// Row i of a head, one warp each: scores become the factors of v, and the probabilities are kept.
template <class T>
struct AttentionSoftmax {
  static constexpr int kThreads = kRowThreads;
  HeadsAtWork<T> heads;
  Dropout drop;
  Index count;
  float* scores;
  Mat<T> probs;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const AttentionShape& s = heads.s;
    const float scale = attention_scale(s.head_dim);
    typename Block::template Local<float> max, sum;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    const Index rows = count * s.tokens;
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), n = r % s.tokens + 1;
      if (r >= rows) return;
      float* const row = scores + r * s.tokens;
      float m = V::from_bits(0xff800000U);
      for (Index j = thread_of_warp(t); j < n; j += kWarp) {
        const float v = V::mul(row[j], scale);
        row[j] = v;
        m = v > m ? v : m;
      }
      max(t) = m;
    });
    block.max_of_warps(max);
    block.threads([&](int t) SEEKSIM_PHASE {  // element j is read by the thread that wrote it: 128 is a multiple of 32
      const Index r = number(t), n = r % s.tokens + 1;
      if (r >= rows) return;
      float* const row = scores + r * s.tokens;
      const float m = max(t);
      sum(t) = four_lanes(thread_of_warp(t), n, [=](float a, Index j) {
        const float e = math::exp<V>(V::sub(row[j], m));
        row[j] = e;
        return V::add(a, e);
      });
    });
    block.fold_warps(sum);
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
      if (r >= rows) return;
      float* const row = scores + r * s.tokens;
      T* const kept = probs.row((heads.first_key_head * s.group + h) * s.tokens + i);
      const float inverse = V::div(1.0F, sum(t));
      for (Index j = thread_of_warp(t); j < s.tokens; j += kWarp) {
        const float p = j <= i ? V::mul(row[j], inverse) : 0.0F;
        kept[j] = from_float<T>(p);
        if (j <= i) row[j] = dropped_entry(drop, s, heads.sample(h), heads.head(h), i, j, p);
      }
    });
  }
};

// dP becomes dS, in place. used: the factors of v.
template <class T>
struct AttentionSoftmaxBackward {
  static constexpr int kThreads = kRowThreads;
  HeadsAtWork<T> heads;
  Dropout drop;
  Index count;
  float *grads, *used;
  Mat<const T> probs;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const AttentionShape& s = heads.s;
    const float scale = attention_scale(s.head_dim);
    typename Block::template Local<float> dot;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    const Index rows = count * s.tokens;
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
      if (r >= rows) return;
      float* const dp = grads + r * s.tokens;
      const T* const p = probs.row((heads.first_key_head * s.group + h) * s.tokens + i);
      dot(t) = four_lanes(thread_of_warp(t), i + 1, [&](float a, Index j) {
        const float d = dropped_entry(drop, s, heads.sample(h), heads.head(h), i, j, dp[j]);
        dp[j] = d;
        return V::fma(d, as_float(p[j]), a);
      });
    });
    block.fold_warps(dot);
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
      if (r >= rows) return;
      float* const dp = grads + r * s.tokens;
      const T* const kept = probs.row((heads.first_key_head * s.group + h) * s.tokens + i);
      for (Index j = thread_of_warp(t); j <= i; j += kWarp) {
        const float p = as_float(kept[j]);
        dp[j] = V::mul(V::mul(p, V::sub(dp[j], dot(t))), scale);
        used[r * s.tokens + j] = dropped_entry(drop, s, heads.sample(h), heads.head(h), i, j, p);
      }
    });
  }
};

// to_i = chain over keys j <= i of w_ij b_j: out from probabilities and values, dq from dS and keys. x the tile of
// columns, y that of rows of a head.
template <bool kBackward, class T>
struct AttentionOverKeys {
  static constexpr int kThreads = SmallTile::kThreads;
  HeadsAtWork<T> heads;
  Index count;
  const float* weights;
  Mat<T> to;  // out, or dqkv

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index h = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      const Operand<float> a{weights + h * s.tokens * s.tokens, s.tokens, 1};
      const Operand<T> b{kBackward ? heads.keys(h) : heads.values(h), 1, heads.qkv.stride};
      SumsOf<Block> sums;
      TileProduct<Block, SmallTile, Mask::up_to_row, Operand<float>, Operand<T>> tile{
          block, block.template shared<float, SmallTile::kSharedFloats>(), row, column, s.tokens, s.head_dim, sums, {}};
      tile.clear();
      tile.run(a, b, 0, least(s.tokens, row + SmallTile::kBM));
      T* const begin = kBackward ? to.row(heads.sample(h) * s.tokens) +
                                       (heads.queries(h) - heads.qkv.row(heads.sample(h) * s.tokens))
                                 : heads.columns_of(to, h);
      tile.store([&](Index i, Index c, float sum) { begin[i * to.stride + c] = from_float<T>(sum); });
    }
  }
};

// dk_j, or dv_j: chain over the group's query heads in order and, in each, over queries i >= j. y: the tile of keys of
// a key head.
template <bool kValues, class T>
struct AttentionOverQueries {
  static constexpr int kThreads = SmallTile::kThreads;
  HeadsAtWork<T> heads;
  Index count;           // of key heads
  const float* weights;  // dS, or the factors of v
  Mat<const T> dout;
  Mat<T> dqkv;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index key_head = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      SumsOf<Block> sums;
      TileProduct<Block, SmallTile, Mask::from_row, Operand<float>, Operand<T>> tile{
          block, block.template shared<float, SmallTile::kSharedFloats>(), row, column, s.tokens, s.head_dim, sums, {}};
      tile.clear();
      for (Index g = 0; g < s.group; ++g) {
        const Index h = key_head * s.group + g;
        const Operand<float> a{weights + h * s.tokens * s.tokens, 1, s.tokens};
        const Operand<T> b = kValues ? Operand<T>{heads.columns_of(dout, h), 1, dout.stride}
                                     : Operand<T>{heads.queries(h), 1, heads.qkv.stride};
        tile.run(a, b, row, s.tokens);
      }
      const Index h = key_head * s.group, sample = heads.sample(h);
      const T* const from = kValues ? heads.values(h) : heads.keys(h);
      T* const begin = dqkv.row(sample * s.tokens) + (from - heads.qkv.row(sample * s.tokens));
      tile.store([&](Index j, Index c, float sum) { begin[j * dqkv.stride + c] = from_float<T>(sum); });
    }
  }
};

constexpr Index kAttentionFloats = Index{16} << 20;  // of working memory, or one key head's where that is more

// Calls part(first key head, how many, working memory) until all key heads of all samples are done. of_one: floats of
// working memory a key head.
template <class Launch, class Part>
void by_key_heads(Launch& launch, const AttentionShape& s, Index of_one, Part part) {
  const Index all = s.samples * s.key_heads();
  if (all == 0) return;
  const Index at_once = least(all, most(1, kAttentionFloats / of_one));
  float* const work = launch.scratch(at_once * of_one);
  for (Index first = 0; first < all; first += at_once) part(first, least(at_once, all - first), work);
}
SEEKSIM_BOTH Grid attention_grid(const AttentionShape& s, Index heads, Index columns) {
  return {blocks_for(columns, SmallTile::kBN), least(heads * blocks_for(s.tokens, SmallTile::kBM), kMostBlocksY)};
}

template <class Launch, class T>
void attention_forward(Launch& launch, const AttentionShape& s, const Dropout& drop, Mat<const T> qkv, Mat<T> probs,
                       Mat<T> out) {
  by_key_heads(launch, s, s.group * s.tokens * s.tokens, [&](Index first, Index key_heads, float* work) {
    const HeadsAtWork<T> heads{s, qkv, first};
    const Index count = key_heads * s.group;
    launch(attention_grid(s, count, s.tokens), AttentionScores<false, T>{heads, {}, count, work});
    by_warps(launch, count * s.tokens, AttentionSoftmax<T>{heads, drop, count, work, probs});
    launch(attention_grid(s, count, s.head_dim), AttentionOverKeys<false, T>{heads, count, work, out});
  });
}

template <class Launch, class T>
void attention_backward(Launch& launch, const AttentionShape& s, const Dropout& drop, Mat<const T> dout,
                        Mat<const T> qkv, Mat<const T> probs, Mat<T> dqkv) {
  by_key_heads(launch, s, 2 * s.group * s.tokens * s.tokens, [&](Index first, Index key_heads, float* work) {
    const HeadsAtWork<T> heads{s, qkv, first};
    const Index count = key_heads * s.group;
    float* const used = work + count * s.tokens * s.tokens;
    launch(attention_grid(s, count, s.tokens), AttentionScores<true, T>{heads, dout, count, work});
    by_warps(launch, count * s.tokens, AttentionSoftmaxBackward<T>{heads, drop, count, work, used, probs});
    launch(attention_grid(s, count, s.head_dim), AttentionOverKeys<true, T>{heads, count, work, dqkv});
    const Grid keys = attention_grid(s, key_heads, s.head_dim);
    launch(keys, AttentionOverQueries<false, T>{heads, key_heads, work, dout, dqkv});
    launch(keys, AttentionOverQueries<true, T>{heads, key_heads, used, dout, dqkv});
  });
}
