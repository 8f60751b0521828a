// Matrix products. Part of products.inl.
//
//   a block: kBM x kBN of C        K goes by in tiles of kBK, from global memory through registers into one of two
//   a thread: kTM x kTN of it      buffers of shared memory while the other is in use: one barrier a tile
//
// Every element is one ascending fma chain in a register. K is never padded; rows and columns are, with zeros that are
// never stored. A chain that ends at a segment (F2) is pushed onto the thread's own binary counter.

template <int kBM_, int kBN_, int kBK_, int kTM_, int kTN_>
struct TileShape {
  static constexpr int kBM = kBM_, kBN = kBN_, kBK = kBK_, kTM = kTM_, kTN = kTN_;
  static constexpr int kThreads = (kBM / kTM) * (kBN / kTN);
  static constexpr int kLdA = kBM + 4, kLdB = kBN + 4;  // a multiple of 4 floats, so that they are read in fours
  static constexpr int kFetchA = kBM * kBK / kThreads, kFetchB = kBN * kBK / kThreads;
  static constexpr int kSharedFloats = 2 * kBK * (kLdA + kLdB);
  static_assert(kFetchA * kThreads == kBM * kBK && kFetchB * kThreads == kBN * kBK);
};
using LargeTile = TileShape<128, 128, 8, 8, 8>;
using SmallTile = TileShape<64, 64, 16, 4, 4>;

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

// Four floats of shared memory, 16 bytes apart from the next four, in one read.
struct alignas(16) Four {
  float v[4];
};
SEEKSIM_BODY void four(const float* from, float* to) {
  const Four read = *reinterpret_cast<const Four*>(from);
  SEEKSIM_UNROLLED
  for (int i = 0; i < 4; ++i) to[i] = read.v[i];
}

// The chains of one tile of C in a thread's registers, over K in stretches: each call of `run` goes on with the chains.
template <class Block, class Shape, Mask kMask, class A, class B>
struct TileProduct {
  static constexpr int kThreads = Shape::kThreads, kBK = Shape::kBK;
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
  // The values of an operand's tile that a thread fetches: the q-th is q steps behind the first, in the tile, in global
  // memory and in shared memory.
  template <int kWidth, int kLd>
  struct Steps {
    int i, k, by_i, by_k;
    SEEKSIM_BODY Steps(int t, bool along_k)
        : i(along_k ? t / kBK : t % kWidth),
          k(along_k ? t % kBK : t / kWidth),
          by_i(along_k ? kThreads / kBK : 0),
          by_k(along_k ? 0 : kThreads / kWidth) {}
    SEEKSIM_BODY int shared() const { return k * kLd + i; }
    SEEKSIM_BODY int shared_step() const { return by_k * kLd + by_i; }
  };
  template <int kWidth, int kLd, int kCount, class O>
  SEEKSIM_BODY static void fetch(int t, const O& o, Index corner, Index extent, Index from, int size,
                                 float (&values)[kCount]) {
    static_assert(kThreads % kBK == 0 && kThreads % kWidth == 0);
    const Steps<kWidth, kLd> steps(t, o.along_k());
    const auto* const first = o.data + ((corner + steps.i) * o.i_step + (from + steps.k) * o.k_step);
    const Index step = steps.by_i * o.i_step + steps.by_k * o.k_step;
    if (corner + kWidth <= extent && size == kBK) {
      SEEKSIM_UNROLLED
      for (int q = 0; q < kCount; ++q) values[q] = as_float(first[q * step]);
    } else {
      const int width = static_cast<int>(least(kWidth, extent - corner));
      SEEKSIM_UNROLLED
      for (int q = 0; q < kCount; ++q) {
        const bool there = steps.i + q * steps.by_i < width && steps.k + q * steps.by_k < size;
        values[q] = there ? as_float(first[q * step]) : 0.0F;
      }
    }
  }
  template <int kWidth, int kLd, int kCount>
  SEEKSIM_BODY static void put(int t, bool along_k, const float (&values)[kCount], float* buffer) {
    const Steps<kWidth, kLd> steps(t, along_k);
    float* const first = buffer + steps.shared();
    SEEKSIM_UNROLLED
    for (int q = 0; q < kCount; ++q) first[q * steps.shared_step()] = values[q];
  }
  SEEKSIM_BODY void fetch(int t, const A& a, const B& b, Index from, int size) {
    Fetched& f = fetched(t);
    fetch<Shape::kBM, Shape::kLdA>(t, a, row, rows, from, size, f.a);
    fetch<Shape::kBN, Shape::kLdB>(t, b, column, columns, from, size, f.b);
  }
  SEEKSIM_BODY void put(int t, const A& a, const B& b, int which) {
    const Fetched& f = fetched(t);
    put<Shape::kBM, Shape::kLdA>(t, a.along_k(), f.a, buffer_a(which));
    put<Shape::kBN, Shape::kLdB>(t, b.along_k(), f.b, buffer_b(which));
  }
  // A thread's rows lie side by side. Its columns come in fours, so that neighbours read neighbouring fours of a row.
  SEEKSIM_BODY static int first_row(int t) { return t / (Shape::kBN / Shape::kTN) * Shape::kTM; }
  SEEKSIM_BODY static int first_column(int t) { return t % (Shape::kBN / Shape::kTN) * 4; }
  static constexpr int kNextFour = Shape::kBN / (Shape::kTN / 4);
  SEEKSIM_BODY static int column_of(int t, int j) { return first_column(t) + j / 4 * kNextFour + j % 4; }

  // One k of the chains of a thread. Rows that the mask excludes keep their value.
  template <bool kMasked>
  SEEKSIM_BODY void multiply(Accumulators<Shape>& c, const float* a, const float* b, Index k, Index thread_row) const {
    float ai[Shape::kTM], bj[Shape::kTN];
    SEEKSIM_UNROLLED
    for (int i = 0; i < Shape::kTM; i += 4) four(a + i, ai + i);
    SEEKSIM_UNROLLED
    for (int j = 0; j < Shape::kTN; j += 4) four(b + j / 4 * kNextFour, bj + j);
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
          const Index r = row + first_row(t) + i, c = column + column_of(t, j);
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
  static constexpr int kBlocksAtOnce = 2;
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
