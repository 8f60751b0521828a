// Matrix products and attention. Included after rows.inl.
//
//   a block: kBM x kBN of C        K goes by in tiles of kBK, from global memory through registers into one of two
//   a thread: kTM x kTN of it      buffers of shared memory while the other is in use: one barrier a tile
//
// Every element is one ascending fma chain in a register. K is never padded; rows and columns are, with zeros that are
// never stored. A chain that ends at a segment (F2) is pushed onto the thread's own binary counter.

constexpr int kBK = 16;

template <int kBM_, int kBN_, int kTM_, int kTN_>
struct TileShape {
  static constexpr int kBM = kBM_, kBN = kBN_, kTM = kTM_, kTN = kTN_;
  static constexpr int kThreads = (kBM / kTM) * (kBN / kTN);
  static constexpr int kLdA = kBM + 4, kLdB = kBN + 4;  // a multiple of 4 floats, so that they are read in fours
  static constexpr int kFetchA = kBM * kBK / kThreads, kFetchB = kBN * kBK / kThreads;
  static constexpr int kSharedFloats = 2 * kBK * (kLdA + kLdB);
  static_assert(kFetchA * kThreads == kBM * kBK && kFetchB * kThreads == kBN * kBK);
};
using LargeTile = TileShape<128, 128, 8, 8>;
using SmallTile = TileShape<64, 64, 4, 4>;

// Which k of a row's chain take part: all; k <= row (the keys of a query); k >= row (the queries of a key).
enum class Mask { none, up_to_row, from_row };

// An operand: element (i, k) at data[i * i_step + k * k_step], i counted along C's rows or columns.
template <class T>
struct Operand {
  const T* data;
  Index i_step, k_step;
  SEEKSIM_BODY float at(Index i, Index k) const { return as_float(data[i * i_step + k * k_step]); }
  SEEKSIM_BODY bool along_k() const { return k_step == 1; }  // which neighbours lie side by side
};

template <class Shape>
struct Accumulators {
  float v[Shape::kTM][Shape::kTN];
};

// The chains of one tile of C in a thread's registers, over K in stretches: each call of `run` goes on with the chains.
template <class Block, class Shape, Mask kMask, class A, class B>
struct TileProduct {
  static constexpr int kThreads = Shape::kThreads;
  template <class T>
  using Local = typename Block::template Local<T>;
  struct Fetched {
    float a[Shape::kFetchA], b[Shape::kFetchB];
  };

  Block& block;
  float* shared;
  Index row, column, rows, columns;  // of the tile's corner; of C
  Local<Accumulators<Shape>>& sums;
  Local<Fetched> fetched;

  SEEKSIM_BODY float* buffer_a(int which) const { return shared + which * kBK * (Shape::kLdA + Shape::kLdB); }
  SEEKSIM_BODY float* buffer_b(int which) const { return buffer_a(which) + kBK * Shape::kLdA; }
  // Where in the tile the f-th value that a thread fetches lies.
  SEEKSIM_BODY static void place(int t, int f, bool along_k, int width, int& i, int& k) {
    const int n = f * kThreads + t;
    i = along_k ? n / kBK : n % width;
    k = along_k ? n % kBK : n / width;
  }
  SEEKSIM_BODY void fetch(int t, const A& a, const B& b, Index from, int size) {
    Fetched& f = fetched(t);
    SEEKSIM_UNROLLED
    for (int q = 0; q < Shape::kFetchA; ++q) {
      int i, k;
      place(t, q, a.along_k(), Shape::kBM, i, k);
      f.a[q] = row + i < rows && k < size ? a.at(row + i, from + k) : 0.0F;
    }
    SEEKSIM_UNROLLED
    for (int q = 0; q < Shape::kFetchB; ++q) {
      int i, k;
      place(t, q, b.along_k(), Shape::kBN, i, k);
      f.b[q] = column + i < columns && k < size ? b.at(column + i, from + k) : 0.0F;
    }
  }
  SEEKSIM_BODY void put(int t, const A& a, const B& b, int which) {
    const Fetched& f = fetched(t);
    SEEKSIM_UNROLLED
    for (int q = 0; q < Shape::kFetchA; ++q) {
      int i, k;
      place(t, q, a.along_k(), Shape::kBM, i, k);
      buffer_a(which)[k * Shape::kLdA + i] = f.a[q];
    }
    SEEKSIM_UNROLLED
    for (int q = 0; q < Shape::kFetchB; ++q) {
      int i, k;
      place(t, q, b.along_k(), Shape::kBN, i, k);
      buffer_b(which)[k * Shape::kLdB + i] = f.b[q];
    }
  }
  SEEKSIM_BODY static int first_row(int t) { return t / (Shape::kBN / Shape::kTN) * Shape::kTM; }
  SEEKSIM_BODY static int first_column(int t) { return t % (Shape::kBN / Shape::kTN) * Shape::kTN; }

  // One k of the chains of a thread. Rows that the mask excludes keep their value.
  template <bool kMasked>
  SEEKSIM_BODY void multiply(Accumulators<Shape>& c, const float* a, const float* b, Index k, Index thread_row) const {
    float ai[Shape::kTM], bj[Shape::kTN];
    SEEKSIM_UNROLLED
    for (int i = 0; i < Shape::kTM; ++i) ai[i] = a[i];
    SEEKSIM_UNROLLED
    for (int j = 0; j < Shape::kTN; ++j) bj[j] = b[j];
    SEEKSIM_UNROLLED
    for (int i = 0; i < Shape::kTM; ++i) {
      if (kMasked && (kMask == Mask::up_to_row ? k > thread_row + i : k < thread_row + i)) continue;
      SEEKSIM_UNROLLED
      for (int j = 0; j < Shape::kTN; ++j) c.v[i][j] = FloatOps::fma(ai[i], bj[j], c.v[i][j]);
    }
  }
  SEEKSIM_BODY void compute(int t, int which, Index from, int size) {
    Accumulators<Shape>& c = sums(t);
    const float* a = buffer_a(which) + first_row(t);
    const float* b = buffer_b(which) + first_column(t);
    const Index top = row + first_row(t);
    const bool whole =
        kMask == Mask::none || (kMask == Mask::up_to_row ? from + size <= row + 1 : from >= row + Shape::kBM - 1);
    if (whole && size == kBK) {
      SEEKSIM_UNROLLED
      for (int k = 0; k < kBK; ++k) multiply<false>(c, a + k * Shape::kLdA, b + k * Shape::kLdB, 0, 0);
    } else {
      for (int k = 0; k < size; ++k)
        multiply<kMask != Mask::none>(c, a + k * Shape::kLdA, b + k * Shape::kLdB, from + k, top);
    }
  }

  // The chains go on over k in [begin, end), begin < end.
  SEEKSIM_BODY void run(const A& a, const B& b, Index begin, Index end) {
    block.threads([&](int t) SEEKSIM_PHASE {
      fetch(t, a, b, begin, static_cast<int>(least(kBK, end - begin)));
      put(t, a, b, 0);
    });
    int which = 0;
    for (Index from = begin; from < end; from += kBK, which ^= 1) {
      const Index next = from + kBK;
      block.threads([&](int t) SEEKSIM_PHASE {
        if (next < end) fetch(t, a, b, next, static_cast<int>(least(kBK, end - next)));
        compute(t, which, from, static_cast<int>(least(kBK, end - from)));
        if (next < end) put(t, a, b, which ^ 1);
      });
    }
  }
  SEEKSIM_BODY void clear() {
    block.threads([&](int t) SEEKSIM_PHASE {
      SEEKSIM_UNROLLED
      for (int i = 0; i < Shape::kTM; ++i) {
        SEEKSIM_UNROLLED
        for (int j = 0; j < Shape::kTN; ++j) sums(t).v[i][j] = 0.0F;
      }
    });
  }
  // store(r, c, value) of each element that C has.
  template <class Store>
  SEEKSIM_BODY void store(Store to) {
    block.threads([&](int t) SEEKSIM_PHASE {
      SEEKSIM_UNROLLED
      for (int i = 0; i < Shape::kTM; ++i) {
        SEEKSIM_UNROLLED
        for (int j = 0; j < Shape::kTN; ++j) {
          const Index r = row + first_row(t) + i, c = column + first_column(t) + j;
          if (r < rows && c < columns) to(r, c, sums(t).v[i][j]);
        }
      }
    });
  }
};

// ---- gemm ----

// kSlots: nodes of the tree over segments that may be waiting; 0: K is one chain.
template <class Shape, int kSlots, class T, class To>
struct Gemm {
  static constexpr int kThreads = Shape::kThreads;
  Operand<T> a, b;
  Mat<To> c;
  Index k, segment;
  const T* bias;

  struct Waiting {
    Accumulators<Shape> slots[kSlots > 0 ? kSlots : 1];
  };
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    typename Block::template Local<Accumulators<Shape>> sums;
    TileProduct<Block, Shape, Mask::none, Operand<T>, Operand<T>> tile{
        block,
        block.template shared<float, Shape::kSharedFloats>(),
        block.y() * Shape::kBM,
        block.x() * Shape::kBN,
        c.rows,
        c.cols,
        sums,
        {}};
    tile.clear();
    if constexpr (kSlots == 0) {
      if (k > 0) tile.run(a, b, 0, k);
    } else {
      typename Block::template Local<Waiting> waiting;
      int top = 0;
      for (Index s = 0; s * segment < k; ++s) {
        if (s > 0) tile.clear();
        tile.run(a, b, s * segment, least(k, (s + 1) * segment));
        const bool last = (s + 1) * segment >= k;
        int merges = 0;
        for (Index digits = s; (digits & 1) != 0; digits >>= 1) ++merges;
        if (last) merges = top;
        block.threads([&](int t) SEEKSIM_PHASE { merge(sums(t), waiting(t), top, merges, last); });
        top += last ? -merges : 1 - merges;
      }
    }
    tile.store([&](Index r, Index j, float sum) {
      c(r, j) = from_float<To>(bias != nullptr ? FloatOps::add(sum, as_float(bias[j])) : sum);
    });
  }
  // sum = slots[top - 1] + sum, `merges` times; then onto the counter, but for the last.
  SEEKSIM_BODY static void merge(Accumulators<Shape>& sum, Waiting& w, int top, int merges, bool last) {
    for (int m = 1; m <= merges; ++m) {
      SEEKSIM_UNROLLED
      for (int i = 0; i < Shape::kTM; ++i) {
        SEEKSIM_UNROLLED
        for (int j = 0; j < Shape::kTN; ++j) sum.v[i][j] = FloatOps::add(w.slots[top - m].v[i][j], sum.v[i][j]);
      }
    }
    if (!last) w.slots[top - merges] = sum;
  }
};

constexpr Index kFewSegments = 8, kMostSegments = Index{1} << 16;

template <class Launch, class T, class To>
void gemm(Launch& launch, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, Index segment, const T* bias) {
  const Index k = ta ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  const Operand<T> rows = ta ? Operand<T>{a.data, 1, a.stride} : Operand<T>{a.data, a.stride, 1};
  const Operand<T> columns = tb ? Operand<T>{b.data, b.stride, 1} : Operand<T>{b.data, 1, b.stride};
  const auto grid = [&](auto shape) {
    using Shape = decltype(shape);
    return Grid{blocks_for(c.cols, Shape::kBN), blocks_for(c.rows, Shape::kBM)};
  };
  SEEKSIM_CHECK(grid(SmallTile{}).y <= kMostBlocksY, "%lld rows", static_cast<long long>(c.rows));
  const Index segments = segment <= 0 || segment >= k ? 1 : blocks_for(k, segment);
  SEEKSIM_CHECK(segments <= kMostSegments, "%lld segments", static_cast<long long>(segments));
  constexpr Index kFewTiles = 132;  // below that many large tiles some multiprocessors would have none
  const Grid large = grid(LargeTile{});
  if (segments > kFewSegments) {
    launch(grid(SmallTile{}), Gemm<SmallTile, 16, T, To>{rows, columns, c, k, segment, bias});
  } else if (segments > 1) {
    launch(grid(SmallTile{}), Gemm<SmallTile, 3, T, To>{rows, columns, c, k, segment, bias});
  } else if (large.x * large.y >= kFewTiles) {
    launch(large, Gemm<LargeTile, 0, T, To>{rows, columns, c, k, k, bias});
  } else {
    launch(grid(SmallTile{}), Gemm<SmallTile, 0, T, To>{rows, columns, c, k, k, bias});
  }
}

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
template <bool kBackward, class T>
struct AttentionScores {
  static constexpr int kThreads = SmallTile::kThreads;
  HeadsAtWork<T> heads;
  Mat<const T> dout;
  Index count;  // of heads
  float* out;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    const AttentionShape& s = heads.s;
    const Index tiles = blocks_for(s.tokens, SmallTile::kBM);
    for (Index at = block.y(); at < count * tiles; at += block.blocks_y()) {
      const Index h = at / tiles, row = at % tiles * SmallTile::kBM, column = block.x() * SmallTile::kBN;
      if (column > row + SmallTile::kBM - 1) continue;
      const Operand<T> a = kBackward ? Operand<T>{heads.columns_of(dout, h), dout.stride, 1}
                                     : Operand<T>{heads.queries(h), heads.qkv.stride, 1};
      const Operand<T> b{kBackward ? heads.values(h) : heads.keys(h), heads.qkv.stride, 1};
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

// Calls part(first key head, how many, working memory) until all key heads of all samples are done.
template <class Launch, class Part>
void by_key_heads(Launch& launch, const AttentionShape& s, Index squares, Part part) {
  const Index all = s.samples * s.key_heads(), of_one = s.group * s.tokens * s.tokens * squares;
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
  by_key_heads(launch, s, 1, [&](Index first, Index key_heads, float* work) {
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
  by_key_heads(launch, s, 2, [&](Index first, Index key_heads, float* work) {
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

// ---- the table (device_table.h) ----

template <class Launch, class T>
struct Products {
  template <class To>
  static void product(Lane lane, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, Index segment,
                      const T* bias) {
    Launch launch(lane);
    gemm(launch, ta, tb, a, b, c, segment, bias);
  }
  static void forward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> qkv, Mat<T> probs,
                      Mat<T> out) {
    Launch launch(lane);
    attention_forward(launch, s, drop, qkv, probs, out);
  }
  static void backward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> dout, Mat<const T> qkv,
                       Mat<const T> probs, Mat<T> dqkv) {
    Launch launch(lane);
    attention_backward(launch, s, drop, dout, qkv, probs, dqkv);
  }
  static DeviceProducts<T> table() { return {product<T>, product<float>, forward, backward}; }
};
