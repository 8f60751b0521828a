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
  static constexpr int kFoursA = kBM * kBK / kThreads / 4, kFoursB = kBN * kBK / kThreads / 4;  // that a thread fetches
  static constexpr int kSharedFloats = 2 * kBK * (kLdA + kLdB);
  static_assert(4 * kFoursA * kThreads == kBM * kBK && 4 * kFoursB * kThreads == kBN * kBK);
};
using LargeTile = TileShape<128, 128, 8, 8, 8>;
using SmallTile = TileShape<64, 64, 16, 4, 4>;

// Which k of a row's chain take part: all; k <= row (the keys of a query); k >= row (the queries of a key).
enum class Mask { none, up_to_row, from_row };

// An operand: element (i, k) at data[i * i_step + k * k_step], i counted along C's rows or columns.
template <class T>
struct Operand {
  using Value = T;
  static constexpr bool kWhole = false;
  const T* data;
  Index i_step, k_step;
  SEEKSIM_BODY float at(Index i, Index k) const { return as_float(data[i * i_step + k * k_step]); }
  SEEKSIM_BODY bool along_k() const { return k_step == 1; }  // which neighbours lie side by side
};

// One of whole tiles alone, whose fours (below) all begin at multiples of their size: nothing is left to ask inside a
// product. kAlongK: which neighbours lie side by side.
template <class T, bool kAlongK>
struct WholeOperand : Operand<T> {
  static constexpr bool kWhole = true;
  SEEKSIM_BODY static constexpr bool along_k() { return kAlongK; }
};

template <class Shape>
struct Accumulators {
  float v[Shape::kTM][Shape::kTN];
};

// Four values side by side that begin at a multiple of their size, in one read or one write.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
  SEEKSIM_BOTH static bool begins_at(const T* at) { return reinterpret_cast<std::uintptr_t>(at) % sizeof(Four) == 0; }
};
template <class T>
SEEKSIM_BODY void four(const T* from, float* to) {
  const Four<T> read = *reinterpret_cast<const Four<T>*>(from);
  SEEKSIM_UNROLLED
  for (int i = 0; i < 4; ++i) to[i] = as_float(read.v[i]);
}

// The part of an operand's tile, kWidth x kBK, that one thread fetches: fours of values that lie side by side in
// memory. The operand's layout decides along what: K, or the rows (of B: columns) of the tile.
template <int kWidth, int kBK, int kThreads>
struct Fours {
  static constexpr int kAlongK = kBK / 4, kAlongI = kWidth / 4;  // fours side by side
  static_assert(kThreads % kAlongK == 0 && kThreads % kAlongI == 0);
  bool along_k;
  int i, k;  // where the first begins
  SEEKSIM_BODY Fours(int t, bool along_k_)
      : along_k(along_k_), i(along_k ? t / kAlongK : t % kAlongI * 4), k(along_k ? t % kAlongK * 4 : t / kAlongI) {}
  // Value j of four q.
  SEEKSIM_BODY int i_of(int q, int j) const { return along_k ? i + q * (kThreads / kAlongK) : i + j; }
  SEEKSIM_BODY int k_of(int q, int j) const { return along_k ? k + j : k + q * (kThreads / kAlongI); }
};

// The chains of one tile of C in a thread's registers, over K in stretches: each call of `run` goes on with the chains.
template <class Block, class Shape, Mask kMask, class A, class B>
struct TileProduct {
  static constexpr int kThreads = Shape::kThreads, kBK = Shape::kBK;
  static constexpr bool kWhole = A::kWhole && B::kWhole;
  template <class T>
  using Local = typename Block::template Local<T>;
  // What a thread has fetched of an operand, and where it goes on.
  template <class T, int kCount>
  struct Part {
    const T* next;
    bool aligned;
    float v[kCount][4];
  };
  struct Fetched {
    Part<typename A::Value, Shape::kFoursA> a;
    Part<typename B::Value, Shape::kFoursB> b;
  };

  Block& block;
  float* shared;
  Index row, column, rows, columns;  // of the tile's corner; of C
  Local<Accumulators<Shape>>& sums;
  Local<Fetched> fetched;

  SEEKSIM_BODY float* buffer_a(int which) const { return shared + which * kBK * (Shape::kLdA + Shape::kLdB); }
  SEEKSIM_BODY float* buffer_b(int which) const { return buffer_a(which) + kBK * Shape::kLdA; }
  template <int kWidth, class O, class T, int kCount>
  SEEKSIM_BODY static void begin(int t, const O& o, Index corner, Index from, Part<T, kCount>& part) {
    const Fours<kWidth, kBK, kThreads> fours(t, o.along_k());
    part.next = o.data + ((corner + fours.i) * o.i_step + (from + fours.k) * o.k_step);
    part.aligned =
        Four<T>::begins_at(part.next) && (fours.along_k ? kCount == 1 || o.i_step % 4 == 0 : o.k_step % 4 == 0);
  }
  template <int kWidth, class O, class T, int kCount>
  SEEKSIM_BODY static void fetch(int t, const O& o, Index corner, Index extent, int size, Part<T, kCount>& part) {
    const Fours<kWidth, kBK, kThreads> fours(t, o.along_k());
    if (kWhole || (part.aligned && corner + kWidth <= extent && size == kBK)) {
      const Index step = (fours.i_of(1, 0) - fours.i) * o.i_step + (fours.k_of(1, 0) - fours.k) * o.k_step;
      SEEKSIM_UNROLLED
      for (int q = 0; q < kCount; ++q) four(part.next + q * step, part.v[q]);
    } else {
      const int width = static_cast<int>(least(kWidth, extent - corner));
      SEEKSIM_UNROLLED
      for (int q = 0; q < kCount; ++q) {
        SEEKSIM_UNROLLED
        for (int j = 0; j < 4; ++j) {
          const int i = fours.i_of(q, j), k = fours.k_of(q, j);
          const Index at = (i - fours.i) * o.i_step + (k - fours.k) * o.k_step;
          part.v[q][j] = i < width && k < size ? as_float(part.next[at]) : 0.0F;
        }
      }
    }
    part.next += kBK * o.k_step;
  }
  template <int kWidth, int kLd, class T, int kCount>
  SEEKSIM_BODY static void put(int t, bool along_k, const Part<T, kCount>& part, float* buffer) {
    const Fours<kWidth, kBK, kThreads> fours(t, along_k);
    SEEKSIM_UNROLLED
    for (int q = 0; q < kCount; ++q) {
      float* const to = buffer + fours.k_of(q, 0) * kLd + fours.i_of(q, 0);
      if (along_k) {
        SEEKSIM_UNROLLED
        for (int j = 0; j < 4; ++j) to[j * kLd] = part.v[q][j];
      } else {
        const float(&v)[4] = part.v[q];
        *reinterpret_cast<Four<float>*>(to) = {v[0], v[1], v[2], v[3]};
      }
    }
  }
  SEEKSIM_BODY void fetch(int t, const A& a, const B& b, int size) {
    fetch<Shape::kBM>(t, a, row, rows, size, fetched(t).a);
    fetch<Shape::kBN>(t, b, column, columns, size, fetched(t).b);
  }
  SEEKSIM_BODY void put(int t, const A& a, const B& b, int which) {
    put<Shape::kBM, Shape::kLdA>(t, a.along_k(), fetched(t).a, buffer_a(which));
    put<Shape::kBN, Shape::kLdB>(t, b.along_k(), fetched(t).b, buffer_b(which));
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
    if (kWhole || (whole && size == kBK)) {
      SEEKSIM_UNROLLED
      for (int k = 0; k < kBK; ++k) multiply<false>(c, a + k * Shape::kLdA, b + k * Shape::kLdB, 0, 0);
    } else {
      for (int k = 0; k < size; ++k)
        multiply<kMask != Mask::none>(c, a + k * Shape::kLdA, b + k * Shape::kLdB, from + k, top);
    }
  }

  // The chains go on over k in [first, end), first < end.
  SEEKSIM_BODY void run(const A& a, const B& b, Index first, Index end) {
    block.threads([&](int t) SEEKSIM_PHASE {
      begin<Shape::kBM>(t, a, row, first, fetched(t).a);
      begin<Shape::kBN>(t, b, column, first, fetched(t).b);
      fetch(t, a, b, static_cast<int>(least(kBK, end - first)));
      put(t, a, b, 0);
    });
    int which = 0;
    for (Index from = first; from < end; from += kBK, which ^= 1) {
      const Index next = from + kBK;
      block.threads([&](int t) SEEKSIM_PHASE {
        if (next < end) fetch(t, a, b, static_cast<int>(least(kBK, end - next)));
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
          if (kWhole || (r < rows && c < columns)) to(r, c, sums(t).v[i][j]);
        }
      }
    });
  }
};

// ---- gemm ----

// kSlots: nodes of the tree over segments that may be waiting; 0: K is one chain.
template <class Shape, int kSlots, class A, class B, class To>
struct Gemm {
  using T = typename A::Value;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kBlocksAtOnce = 2;
  A a;
  B b;
  Mat<To> c;
  Index k, segment;
  const T* bias;

  struct Waiting {
    Accumulators<Shape> slots[kSlots > 0 ? kSlots : 1];
  };
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    typename Block::template Local<Accumulators<Shape>> sums;
    TileProduct<Block, Shape, Mask::none, A, B> tile{block,
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

// Whether every tile of a product is whole, and every four of its operands begins at a multiple of its size.
template <class T>
bool all_whole(const Operand<T>& rows, const Operand<T>& columns, Index m, Index n, Index k) {
  const auto fours = [](const Operand<T>& o) {
    return Four<T>::begins_at(o.data) && (o.k_step == 1 ? o.i_step : o.k_step) % 4 == 0;
  };
  return m % LargeTile::kBM == 0 && n % LargeTile::kBN == 0 && k % LargeTile::kBK == 0 && fours(rows) && fours(columns);
}

// One chain an element, in large tiles.
template <class Launch, class T, class To>
void large_gemm(Launch& launch, Grid grid, const Operand<T>& rows, const Operand<T>& columns, Mat<To> c, Index k,
                const T* bias) {
  const auto with = [&](auto a, auto b) {
    launch(grid, Gemm<LargeTile, 0, decltype(a), decltype(b), To>{a, b, c, k, k, bias});
  };
  const bool rows_along_k = rows.k_step == 1, columns_along_k = columns.k_step == 1;
  if (!all_whole(rows, columns, c.rows, c.cols, k) || (!rows_along_k && columns_along_k)) {
    with(rows, columns);
  } else if (!rows_along_k) {  // the gradient of a weight
    with(WholeOperand<T, false>{rows}, WholeOperand<T, false>{columns});
  } else if (columns_along_k) {
    with(WholeOperand<T, true>{rows}, WholeOperand<T, true>{columns});
  } else {
    with(WholeOperand<T, true>{rows}, WholeOperand<T, false>{columns});
  }
}

template <class Launch, class T, class To>
void gemm(Launch& launch, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, Index segment, const T* bias) {
  const Index k = ta ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  using Of = Operand<T>;
  const Of rows = ta ? Of{a.data, 1, a.stride} : Of{a.data, a.stride, 1};
  const Of columns = tb ? Of{b.data, b.stride, 1} : Of{b.data, 1, b.stride};
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
    launch(grid(SmallTile{}), Gemm<SmallTile, 16, Of, Of, To>{rows, columns, c, k, segment, bias});
  } else if (segments > 1) {
    launch(grid(SmallTile{}), Gemm<SmallTile, 3, Of, Of, To>{rows, columns, c, k, segment, bias});
  } else if (large.x * large.y >= kFewTiles) {
    large_gemm(launch, large, rows, columns, c, k, bias);
  } else {
    launch(grid(SmallTile{}), Gemm<SmallTile, 0, Of, Of, To>{rows, columns, c, k, k, bias});
  }
}
