// Attention by blocks of keys (fused_attention.h), by the kernels and tiles of attention.inl. Part of products.inl.
//
//   forward    scores, then in each row and block of keys exp(score - max of the block), and how the blocks are joined;
//              out = tree over blocks of e_ij v_j
//   backward   scores and dP again; probabilities and dS from them and the row's two numbers; dq = tree over blocks of
//              keys of dS_ij k_j; dk and dv = tree over blocks of queries
//
// Nothing but the two numbers a row is kept. Working memory holds (T, T) of as many key heads at a time as the budget
// allows, and of one at least: that bounds the length of a context.

constexpr int kFusedSlots = 16;  // operands of a counter: 2^16 blocks

// How many additions follow leaf `leaf` on a counter that holds `waiting` operands.
SEEKSIM_BODY int additions(Index leaf, int waiting) {
  int n = 0;
  for (; (leaf & 1) != 0 && n < waiting; leaf >>= 1) ++n;
  return n;
}
// How many joins a counter has made before leaf `leaf` comes, from leaf 0 on.
SEEKSIM_BODY Index joins_before(Index leaf) {
  Index ones = 0;
  for (Index rest = leaf; rest > 0; rest >>= 1) ones += rest & 1;
  return leaf - ones;
}

// Row i of a head, one warp each, one key of a block each thread. factors (rows, blocks, 2): of each join, in the order
// of the counter, what the older and the newer operand are multiplied by.
// kPart: what is left of a row are its maximum and sum, behind head_dim columns of a state (fused_attention.h).
template <class T, class Heads = HeadsAtWork<T>, bool kPart = false>
struct FusedSoftmax {
  static constexpr int kThreads = kRowThreads;
  Heads heads;
  Dropout drop;
  Index count;
  float *scores, *factors;
  Mat<float> stats;

  // What thread 0 of a warp knows of its row.
  struct Row {
    float max[kFusedSlots], sum[kFusedSlots];
    int top;
    Index joins;
  };
  SEEKSIM_BODY static void join(Row& row, float* factors) {
    using V = FloatOps;
    const int older = row.top - 2, newer = row.top - 1;
    const float m = row.max[newer] > row.max[older] ? row.max[newer] : row.max[older];
    const float a = math::exp<V>(V::sub(row.max[older], m)), b = math::exp<V>(V::sub(row.max[newer], m));
    row.max[older] = m;
    row.sum[older] = V::fma(row.sum[newer], b, V::mul(row.sum[older], a));
    factors[2 * row.joins] = a, factors[2 * row.joins + 1] = b;
    ++row.joins, --row.top;
  }

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    static_assert(kFusedBlock == kWarp);
    const AttentionShape& s = heads.s;
    const float scale = attention_scale(s.head_dim);
    const Index rows = count * s.tokens, blocks = blocks_for(s.tokens, kFusedBlock);
    typename Block::template Local<float> max, sum;
    typename Block::template Local<Row> row;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    block.threads([&](int t) SEEKSIM_PHASE { row(t).top = 0, row(t).joins = 0; });
    for (Index b = 0; b < blocks; ++b) {
      const auto takes_part = [&](int t) {
        return number(t) < rows && (Heads::kBefore || b * kFusedBlock <= number(t) % s.tokens);
      };
      const auto key = [&](int t) { return b * kFusedBlock + thread_of_warp(t); };
      const auto seen = [&](int t) { return takes_part(t) && (Heads::kBefore || key(t) <= number(t) % s.tokens); };
      block.threads([&](int t) SEEKSIM_PHASE {
        max(t) = seen(t) ? V::mul(scores[number(t) * s.tokens + key(t)], scale) : V::from_bits(0xff800000U);
        sum(t) = max(t);
      });
      block.max_of_warps(max);
      block.threads([&](int t) SEEKSIM_PHASE {
        const float e = seen(t) ? math::exp<V>(V::sub(sum(t), max(t))) : 0.0F;
        sum(t) = e;
        if (!seen(t)) return;
        const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
        scores[r * s.tokens + key(t)] = dropped_of(drop, heads, h, i, key(t), e);
      });
      block.fold_warps(sum);
      block.threads([&](int t) SEEKSIM_PHASE {
        if (thread_of_warp(t) != 0 || !takes_part(t)) return;
        Row& own = row(t);
        const int joins = additions(b, own.top);
        own.max[own.top] = max(t), own.sum[own.top] = sum(t), ++own.top;
        for (int n = 0; n < joins; ++n) join(own, factors + number(t) * blocks * 2);
      });
    }
    block.threads([&](int t) SEEKSIM_PHASE {
      if (thread_of_warp(t) != 0 || number(t) >= rows) return;
      while (row(t).top > 1) join(row(t), factors + number(t) * blocks * 2);
      float* const to = stats.row(heads.first_key_head * s.group * s.tokens + number(t));
      if constexpr (kPart)
        to[s.head_dim] = row(t).max[0], to[s.head_dim + 1] = row(t).sum[0];
      else
        to[0] = row(t).max[0], to[1] = V::div(1.0F, row(t).sum[0]);
    });
  }
};

// Scores become probabilities after dropout, and dP becomes dS, in place: a row a warp.
template <class T, class Heads = HeadsAtWork<T>>
struct FusedSoftmaxBackward {
  static constexpr int kThreads = kRowThreads;
  Heads heads;
  Dropout drop;
  Index count;
  float *scores, *grads;
  Mat<const T> dout, out;
  Mat<const float> stats;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    using V = FloatOps;
    const AttentionShape& s = heads.s;
    const float scale = attention_scale(s.head_dim);
    const Index rows = count * s.tokens;
    typename Block::template Local<float> delta;
    const auto number = [&](int t) { return block.x() * kRowsABlock + t / kWarp; };
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
      if (r >= rows) return;
      const T* const go = heads.columns_of(dout, h) + i * dout.stride;
      const T* const o = heads.columns_of(out, h) + i * out.stride;
      delta(t) = four_lanes(thread_of_warp(t), s.head_dim,
                            [=](float sum, Index c) { return V::fma(as_float(go[c]), as_float(o[c]), sum); });
    });
    block.fold_warps(delta);
    block.threads([&](int t) SEEKSIM_PHASE {
      const Index r = number(t), i = r % s.tokens, h = r / s.tokens;
      if (r >= rows) return;
      const float* const row = stats.row(heads.first_key_head * s.group * s.tokens + r);
      const Index keys = Heads::kBefore ? s.tokens : i + 1;
      for (Index j = thread_of_warp(t); j < keys; j += kWarp) {
        float *const p = scores + r * s.tokens + j, *const dp = grads + r * s.tokens + j;
        const float probability = V::mul(math::exp<V>(V::sub(V::mul(*p, scale), row[0])), row[1]);
        const float d = dropped_of(drop, heads, h, i, j, *dp);
        *dp = V::mul(V::mul(probability, V::sub(d, delta(t))), scale);
        *p = dropped_of(drop, heads, h, i, j, probability);
      }
    });
  }
};

// The counter of a thread's elements.
struct FusedWaiting {
  Accumulators<SmallTile> slots[kFusedSlots];
  int top;
};
// sum = the topmost operand, times a, and sum, times b. factors: of each row, (a, b) of this join; null: 1 and 1.
SEEKSIM_BODY void join_operands(Accumulators<SmallTile>& sum, FusedWaiting& waiting, const float* const* factors,
                                Index join) {
  const Accumulators<SmallTile>& older = waiting.slots[--waiting.top];
  SEEKSIM_UNROLLED
  for (int i = 0; i < SmallTile::kTM; ++i) {
    SEEKSIM_UNROLLED
    for (int j = 0; j < SmallTile::kTN; ++j) {
      float& v = sum.v[i][j];
      v = factors == nullptr
              ? FloatOps::add(older.v[i][j], v)
              : FloatOps::fma(v, factors[i][2 * join + 1], FloatOps::mul(older.v[i][j], factors[i][2 * join]));
    }
  }
}

// out, or dq, of attention.inl's AttentionOverKeys, each block of keys a leaf. kPart: the sums as they are, of the
// state's rows, or (B*T, H*D) of dq.
template <bool kBackward, class T, class Heads = HeadsAtWork<T>, bool kPart = false>
struct FusedOverKeys {
  static constexpr int kThreads = SmallTile::kThreads;
  using To = std::conditional_t<kPart, float, T>;
  Heads heads;
  Index count;
  const float *weights, *factors;
  Mat<const float> stats;
  Mat<To> to;

  // A thread's four rows lie in one block of queries. Rows that do not exist take the last one's factors.
  struct Rows {
    const float* factors[SmallTile::kTM];
    Index leaves;
  };
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM), all = blocks_for(s.tokens, kFusedBlock);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index h = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      const Index end = Heads::kBefore ? s.tokens : least(s.tokens, row + SmallTile::kBM);
      const Index blocks = blocks_for(end, kFusedBlock);
      const Operand<float> a{weights + h * s.tokens * s.tokens, s.tokens, 1};
      const Operand<T> b{kBackward ? heads.keys(h) : heads.values(h), 1, heads.key_stride()};
      SumsOf<Block> sums;
      typename Block::template Local<FusedWaiting> waiting;
      constexpr Mask kMask = Heads::kBefore ? Mask::none : Mask::up_to_row;
      TileProduct<Block, SmallTile, kMask, Operand<float>, Operand<T>> tile{
          block, block.template shared<float, SmallTile::kSharedFloats>(), row, column, s.tokens, s.head_dim, sums, {}};
      const auto rows_of = [&](int t) {
        Rows rows;
        const Index first = row + tile.first_row(t);
        for (int i = 0; i < SmallTile::kTM; ++i)
          rows.factors[i] = kBackward ? nullptr : factors + (h * s.tokens + least(first + i, s.tokens - 1)) * all * 2;
        rows.leaves = Heads::kBefore ? blocks : least(first / kFusedBlock + 1, blocks);
        return rows;
      };
      block.threads([&](int t) SEEKSIM_PHASE { waiting(t).top = 0; });
      for (Index leaf = 0; leaf < blocks; ++leaf) {
        tile.clear();
        tile.run(a, b, leaf * kFusedBlock, least(end, (leaf + 1) * kFusedBlock));
        block.threads([&](int t) SEEKSIM_PHASE {
          const Rows rows = rows_of(t);
          if (leaf >= rows.leaves) return;
          FusedWaiting& own = waiting(t);
          const int joins = additions(leaf, own.top);
          const Index before = joins_before(leaf);
          for (int n = 0; n < joins; ++n) join_operands(sums(t), own, kBackward ? nullptr : rows.factors, before + n);
          own.slots[own.top++] = sums(t);
        });
      }
      block.threads([&](int t) SEEKSIM_PHASE {
        const Rows rows = rows_of(t);
        FusedWaiting& own = waiting(t);
        sums(t) = own.slots[--own.top];
        for (Index join = joins_before(rows.leaves); own.top > 0; ++join)
          join_operands(sums(t), own, kBackward ? nullptr : rows.factors, join);
      });
      const Index first_row = (heads.first_key_head * s.group + h) * s.tokens;
      To* const begin = kPart && !kBackward   ? to.row(first_row)
                        : kPart || !kBackward ? heads.columns_of(to, h)
                                              : to.row(heads.sample(h) * s.tokens) +
                                                    (heads.queries(h) - heads.qkv.row(heads.sample(h) * s.tokens));
      tile.store([&](Index i, Index c, float sum) {
        if constexpr (!kBackward && !kPart) sum = FloatOps::mul(sum, stats(first_row + i, 1));
        begin[i * to.stride + c] = from_float<To>(sum);
      });
    }
  }
};

// dk_j, or dv_j, of attention.inl's AttentionOverQueries: each block of queries, with all heads of the group, a leaf.
// kPart: the sums as they are, into rows of [dk | dv] of each key head.
template <bool kValues, class T, class Heads = HeadsAtWork<T>, bool kPart = false>
struct FusedOverQueries {
  static constexpr int kThreads = SmallTile::kThreads;
  using To = std::conditional_t<kPart, float, T>;
  Heads heads;
  Index count;           // of key heads
  const float* weights;  // dS, or the factors of v
  Mat<const T> dout;
  Mat<To> to;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM), blocks = blocks_for(s.tokens, kFusedBlock);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index key_head = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      SumsOf<Block> sums;
      typename Block::template Local<FusedWaiting> waiting;
      constexpr Mask kMask = Heads::kBefore ? Mask::none : Mask::from_row;
      TileProduct<Block, SmallTile, kMask, Operand<float>, Operand<T>> tile{
          block, block.template shared<float, SmallTile::kSharedFloats>(), row, column, s.tokens, s.head_dim, sums, {}};
      block.threads([&](int t) SEEKSIM_PHASE { waiting(t).top = 0; });
      for (Index leaf = Heads::kBefore ? 0 : row / kFusedBlock; leaf < blocks; ++leaf) {
        tile.clear();
        for (Index g = 0; g < s.group; ++g) {
          const Index h = key_head * s.group + g;
          const Operand<float> a{weights + h * s.tokens * s.tokens, 1, s.tokens};
          const Operand<T> b = kValues ? Operand<T>{heads.columns_of(dout, h), 1, dout.stride}
                                       : Operand<T>{heads.queries(h), 1, heads.qkv.stride};
          tile.run(a, b, leaf * kFusedBlock, least(s.tokens, (leaf + 1) * kFusedBlock));
        }
        block.threads([&](int t) SEEKSIM_PHASE {
          if (!Heads::kBefore && leaf < (row + tile.first_row(t)) / kFusedBlock) return;
          FusedWaiting& own = waiting(t);
          const int joins = additions(leaf, own.top);
          for (int n = 0; n < joins; ++n) join_operands(sums(t), own, nullptr, 0);
          own.slots[own.top++] = sums(t);
        });
      }
      block.threads([&](int t) SEEKSIM_PHASE {
        FusedWaiting& own = waiting(t);
        if (own.top == 0) return;  // keys that do not exist
        sums(t) = own.slots[--own.top];
        while (own.top > 0) join_operands(sums(t), own, nullptr, 0);
      });
      const Index h = key_head * s.group, sample = heads.sample(h);
      To* begin = to.row(sample * s.tokens);
      if constexpr (kPart)
        begin += (heads.head(h) / s.group * 2 + (kValues ? 1 : 0)) * s.head_dim;
      else
        begin += (kValues ? heads.values(h) : heads.keys(h)) - heads.qkv.row(sample * s.tokens);
      tile.store([&](Index j, Index c, float sum) { begin[j * to.stride + c] = from_float<To>(sum); });
    }
  }
};

inline void check_fused_blocks(const AttentionShape& s) {
  SEEKSIM_CHECK(blocks_for(s.tokens, kFusedBlock) < Index{1} << kFusedSlots, "%lld tokens",
                static_cast<long long>(s.tokens));
}

template <class Launch, class T>
void fused_attention_forward(Launch& launch, const AttentionShape& s, const Dropout& drop, Mat<const T> qkv,
                             Mat<float> stats, Mat<T> out) {
  check_fused_blocks(s);
  const Index square = s.group * s.tokens * s.tokens, joins = blocks_for(s.tokens, kFusedBlock) * 2;
  by_key_heads(launch, s, square + s.group * s.tokens * joins, [&](Index first, Index key_heads, float* work) {
    const HeadsAtWork<T> heads{s, qkv, first};
    const Index count = key_heads * s.group;
    float* const factors = work + key_heads * square;
    launch(attention_grid(s, count, s.tokens), AttentionScores<false, T>{heads, {}, count, work});
    by_warps(launch, count * s.tokens, FusedSoftmax<T>{heads, drop, count, work, factors, stats});
    launch(attention_grid(s, count, s.head_dim), FusedOverKeys<false, T>{heads, count, work, factors, stats, out});
  });
}

template <class Launch, class T>
void fused_attention_backward(Launch& launch, const AttentionShape& s, const Dropout& drop, Mat<const T> dout,
                              Mat<const T> qkv, Mat<const T> out, Mat<const float> stats, Mat<T> dqkv) {
  check_fused_blocks(s);
  const Index square = s.group * s.tokens * s.tokens;
  by_key_heads(launch, s, 2 * square, [&](Index first, Index key_heads, float* work) {
    const HeadsAtWork<T> heads{s, qkv, first};
    const Index count = key_heads * s.group;
    float* const grads = work + key_heads * square;
    launch(attention_grid(s, count, s.tokens), AttentionScores<false, T>{heads, {}, count, work});
    launch(attention_grid(s, count, s.tokens), AttentionScores<true, T>{heads, dout, count, grads});
    by_warps(launch, count * s.tokens, FusedSoftmaxBackward<T>{heads, drop, count, work, grads, dout, out, stats});
    launch(attention_grid(s, count, s.head_dim), FusedOverKeys<true, T>{heads, count, grads, nullptr, stats, dqkv});
    const Grid keys = attention_grid(s, key_heads, s.head_dim);
    launch(keys, FusedOverQueries<false, T>{heads, key_heads, grads, dout, dqkv});
    launch(keys, FusedOverQueries<true, T>{heads, key_heads, work, dout, dqkv});
  });
}
