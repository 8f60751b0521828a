// The product of two packed operands. Included by products_*.cpp.
//
//        K                 N                A panel: kRows rows, k by k      \   a tile of C in registers:
//    +-------+         +-+-+-+-+            B panel: kCols columns, k by k   /   kRows x kCols accumulators
//  M | A     |  times  | | | | |
//    +-------+       K | |B| | |            Every element of the tile is one ascending fma chain. Where K is cut (into
//    | block |         | | | | |            blocks for the cache, or into segments, F2), a chain is stored and resumed,
//    +-------+         +-+-+-+-+            or merged with the tiles of earlier segments as the binary counter says.

#if defined(__AVX512F__)
constexpr int kRows = 14, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kRows = 6, kVectors = 2;
#else
constexpr int kRows = 4, kVectors = 2;
#endif
constexpr int kCols = kVectors * kW;

// A stretch of K, and what happens to the chain at its end. Slots are the stack of the binary counter: tiles of working
// memory, kRows x kCols each.
struct Piece {
  Index begin = 0;
  Index size = 0;
  bool resume = false;  // the chain goes on from what slot `top` holds
  bool final = false;   // the result goes to C, not into a slot
  int top = 0;          // slots in use before this segment
  int bottom = 0;       // the chain is merged with slots top-1 .. bottom and stored in slot `bottom`
};

// Where a tile takes its operands and puts its results. a: kM floats for each k, a_stride apart, or (kAlong) kM rows
// a_stride apart, along k; b: kN vectors for each k, b_stride apart; both start at K = base.
struct TileJob {
  const Piece* pieces;
  int count;
  Index base;
  const float* a;
  Index a_stride;
  const float* b;
  Index b_stride;
  float* slots;
  float* c;
  Index ldc;
  const float* bias;  // kN vectors, or null
};

constexpr Index kTileFloats = kRows * kCols;

// The whole chains of a tile, with their bias, into C.
template <int kM, int kN>
SEEKSIM_FN void store_tile(const TileJob& job, Vf (&acc)[kM][kN]) {
  if (job.bias != nullptr) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) {
      const Vf bv = load(job.bias + v * kW);
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) acc[i][v] = SimdOps::add(acc[i][v], bv);
    }
  }
  float* row = job.c;
  SEEKSIM_UNROLL
  for (int i = 0; i < kM; ++i) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) store(row + v * kW, acc[i][v]);
    row += job.ldc;
  }
}

template <int kM, int kN, bool kAlong>
void tile(const TileJob& job) {
  for (int at = 0; at < job.count; ++at) {
    const Piece& piece = job.pieces[at];
    const Index a_stride = job.a_stride, b_stride = job.b_stride, ahead = 8 * b_stride;
    const float* a = job.a + (piece.begin - job.base) * (kAlong ? 1 : a_stride);
    const float* b = job.b + (piece.begin - job.base) * b_stride;
    Vf acc[kM][kN];
    if (piece.resume) {
      const float* const from = job.slots + piece.top * kTileFloats;
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) {
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[i][v] = load(from + i * kCols + v * kW);
      }
    } else {
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) {
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[i][v] = splat(0.0F);
      }
    }
    if (piece.final) {  // so that the rows of C are in the cache when the chain ends
      float* row = job.c;
      for (int i = 0; i < kM; ++i, row += job.ldc) {
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) __builtin_prefetch(row + v * kW, 1);
      }
    }
#pragma GCC unroll 4
    for (Index k = 0; k < piece.size; ++k) {
      Vf bk[kN];
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) bk[v] = load(b + v * kW);
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) __builtin_prefetch(b + ahead + v * kW);
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) {
        const Vf ai = splat(kAlong ? a[i * a_stride] : a[i]);
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[i][v] = SimdOps::fma(ai, bk[v], acc[i][v]);
      }
      a += kAlong ? 1 : a_stride;
      b += b_stride;
    }
    for (int slot = piece.top - 1; slot >= piece.bottom; --slot) {
      const float* const older = job.slots + slot * kTileFloats;
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) {
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) acc[i][v] = SimdOps::add(load(older + i * kCols + v * kW), acc[i][v]);
      }
    }
    if (!piece.final) {
      float* const to = job.slots + piece.bottom * kTileFloats;
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) {
        SEEKSIM_UNROLL
        for (int v = 0; v < kN; ++v) store(to + i * kCols + v * kW, acc[i][v]);
      }
      continue;
    }
    store_tile(job, acc);
  }
}

using TileFunction = void (*)(const TileJob&);

template <bool kAlong, int kM>
constexpr void fill_tiles(TileFunction (*table)[kVectors + 1]) {
  table[kM][1] = tile<kM, 1, kAlong>;
  table[kM][2] = tile<kM, 2, kAlong>;
  if constexpr (kM > 1) fill_tiles<kAlong, kM - 1>(table);
}
struct TileTable {
  TileFunction at[2][kRows + 1][kVectors + 1] = {};
  constexpr TileTable() { fill_tiles<false, kRows>(at[0]), fill_tiles<true, kRows>(at[1]); }
};
constexpr TileTable kTiles;

// Cuts K into pieces: at the ends of segments and, within long ones, after about kBlockK.
class Pieces {
 public:
  Pieces(Index k, Index segment) : k_(k), segment_(segment), last_((k - 1) / segment) {}

  // False when K is used up.
  SEEKSIM_FN bool next(Pieces& p, Piece& piece) {
    if (p.at_ >= p.k_) return false;
    const Index segment_end = min_of((p.segment_index_ + 1) * p.segment_, p.k_);
    const Index left = segment_end - p.at_;
    // Even cuts: 600 becomes 2 x 300, not 448 + 152.
    const Index blocks = (left + kBlockK - 1) / kBlockK;
    piece.begin = p.at_;
    piece.size = (left + blocks - 1) / blocks;
    piece.resume = p.at_ > p.segment_index_ * p.segment_;
    piece.top = __builtin_popcountll(static_cast<unsigned long long>(p.segment_index_));
    piece.bottom = piece.top;
    p.at_ += piece.size;
    piece.final = p.at_ == p.k_;
    if (p.at_ == segment_end) {
      const int merges = __builtin_ctzll(~static_cast<unsigned long long>(p.segment_index_));
      piece.bottom = piece.final ? 0 : piece.top - merges;
      ++p.segment_index_;
    }
    return true;
  }
  // The next pieces, together about kBlockK long: a tile works through them before the next tile's turn.
  SEEKSIM_FN int next_group(Pieces& p, Piece* group) {
    int count = 0;
    for (Index size = 0; count < kMostPieces && size + min_of(p.segment_, kBlockK) <= kBlockK && next(p, group[count]);)
      size += group[count++].size;
    return count;
  }
  static constexpr int kMostPieces = 64;
  // Slots that the counter may need: as many as last_ has binary digits, and one for a chain that is cut.
  SEEKSIM_FN int slots(const Pieces& p) {
    return 1 + (p.last_ == 0 ? 0 : 64 - __builtin_clzll(static_cast<unsigned long long>(p.last_)));
  }

 private:
  static constexpr Index kBlockK = 448;
  Index k_, segment_, last_;
  Index at_ = 0, segment_index_ = 0;
};

// One product of operands stored as T into a C stored as To, prepared: panels of A have rows(p) rows each, cut evenly.
template <class T, class To>
struct Product {
  bool ta, tb;
  Mat<const T> a, b;
  Mat<To> c;
  Index m, n, k, segment;
  const T* bias;
  Index row_panels;

  SEEKSIM_FN Index row_begin(const Product& g, Index panel) { return panel * g.m / g.row_panels; }
};

// Panels [first, last) of A, one after the other; panel p starts at (row_begin(p) - row_begin(first)) * k.
template <class T, class To>
void pack_a(const Product<T, To>& g, Index first, Index last, float* out) {
  const Index base = Product<T, To>::row_begin(g, first);
  RowPanel<T> group[kPanelsAtOnce];
  int count = 0;
  for (Index p = first; p < last; ++p) {
    const Index i = Product<T, To>::row_begin(g, p), rows = Product<T, To>::row_begin(g, p + 1) - i;
    float* const to = out + (i - base) * g.k;
    if (!g.ta) {
      pack_transposed(g.a.row(i), g.a.stride, rows, g.k, rows, to);
      continue;
    }
    group[count++] = {g.a.data + i, rows, rows, to};
    if (count < kPanelsAtOnce && p + 1 < last) continue;
    pack_rows<false>(group, count, g.a.stride, g.k);
    count = 0;
  }
}

// Columns [begin, end) of B in panels of kCols; the panel at column j starts at (j - begin) * k.
template <class T, class To>
void pack_b(const Product<T, To>& g, Index begin, Index end, float* out) {
  RowPanel<T> group[kPanelsAtOnce];
  int count = 0;
  for (Index j = begin; j < end; j += kCols) {
    const Index columns = min_of(kCols, g.n - j);
    float* const to = out + (j - begin) * g.k;
    if (g.tb) {
      pack_transposed(g.b.row(j), g.b.stride, columns, g.k, kCols, to);
      continue;
    }
    group[count++] = {g.b.data + j, columns, kCols, to};
    if (count < kPanelsAtOnce && j + kCols < end) continue;
    pack_rows<true>(group, count, g.b.stride, g.k);
    count = 0;
  }
}

// All of K for one panel of B, of `columns` columns, against the panels [first, last) of A. packed_a: null for A
// itself. b: packed (stride kCols) or B itself.
template <class T, class To>
void column_strip(const Product<T, To>& g, const float* packed_a, Index first, Index last, Index column, Index columns,
                  const float* b, Index b_stride, float* tiles) {
  const int vectors = static_cast<int>((columns + kW - 1) / kW);
  const bool in_place = !kIsHalf<To> && columns % kW == 0;
  Pieces pieces(g.k, g.segment);
  const Index panel_floats = Pieces::slots(pieces) * kTileFloats;
  float apart[kTileFloats];  // a tile at a ragged right edge, or one that is rounded, before it is copied out
  float bias[kCols] = {};
  if (g.bias != nullptr) convert(g.bias + column, bias, columns);
  Piece group[Pieces::kMostPieces];
  while (const int count = Pieces::next_group(pieces, group)) {
    TileJob job{group,
                count,
                group[0].begin,
                nullptr,
                0,
                b + group[0].begin * b_stride,
                b_stride,
                nullptr,
                apart,
                kCols,
                g.bias != nullptr ? bias : nullptr};
    const bool end = group[count - 1].final;
    for (Index p = first; p < last; ++p) {
      const Index i = Product<T, To>::row_begin(g, p), rows = Product<T, To>::row_begin(g, p + 1) - i;
      if constexpr (!kIsHalf<T>) {
        job.a = g.ta ? g.a.row(job.base) + i : g.a.row(i) + job.base;
        job.a_stride = g.a.stride;
      }
      if (packed_a != nullptr) {
        job.a = packed_a + (i - Product<T, To>::row_begin(g, first)) * g.k + job.base * rows;
        job.a_stride = rows;
      }
      job.slots = tiles + (p - first) * panel_floats;
      if constexpr (!kIsHalf<To>) {
        if (in_place) {
          job.c = g.c.row(i) + column;
          job.ldc = g.c.stride;
        }
      }
      kTiles.at[packed_a == nullptr && !g.ta ? 1 : 0][rows][vectors](job);
      if (end && !in_place) {
        for (Index r = 0; r < rows; ++r) convert(apart + r * kCols, g.c.row(i + r) + column, columns);
      }
    }
  }
}

template <class T, class To>
void gemm_body(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, Index segment, const T* bias) {
  const Index k = ta ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  if (k == 0) {
    for (Index i = 0; i < c.rows; ++i)
      for (Index j = 0; j < c.cols; ++j)
        c(i, j) = from_float<To>(bias != nullptr ? FloatOps::add(0.0F, as_float(bias[j])) : 0.0F);
    return;
  }
  const Product<T, To> g{ta,
                         tb,
                         a,
                         b,
                         c,
                         c.rows,
                         c.cols,
                         k,
                         segment <= 0 || segment > k ? k : segment,
                         bias,
                         (c.rows + kRows - 1) / kRows};
  constexpr Index kBlockA = 288 * 1024;       // floats of packed A: a good half of a 2 MiB second-level cache
  constexpr Index kBlockB = 8 * 1024 * 1024;  // floats of packed B kept over all blocks of A
  constexpr Index kNear = 64 * 1024;          // floats of B packed at a time, then used while still near
  constexpr Index kFewPanels = 3;             // up to here packing B costs more than reading it as it is
  constexpr Index kSmall = 16 * 1024;         // floats: so does packing an operand that lies in so little memory
  const Index most_a = max_of(1, min_of(g.row_panels, kBlockA / (k * kRows)));
  const Index blocks_a = (g.row_panels + most_a - 1) / most_a;
  const Index panels_a = (g.row_panels + blocks_a - 1) / blocks_a;  // even blocks: a last one of one panel wastes B
  const Index near = max_of(kCols, kNear / k / kCols * kCols);      // columns
  const Index far = max_of(near, min_of((g.n + kCols - 1) / kCols * kCols, kBlockB / k / kCols * kCols));
  const Index columns_b = blocks_a == 1 ? near : far;
  const bool small_a = a.rows * a.stride <= kSmall, small_b = k * b.stride <= kSmall;
  const bool direct_a = !kIsHalf<T> && small_a && blocks_a == 1;
  const bool direct_b = !kIsHalf<T> && !tb && (small_b || g.row_panels <= kFewPanels) && blocks_a == 1;
  const Index direct_end = direct_b ? g.n / kW * kW : 0;  // columns of B that are read in place
  const Pieces pieces(k, g.segment);
  float* const packed_a = direct_a ? nullptr : scratch(Scratch::gemm_a, panels_a * kRows * k + kW);
  float* const packed_b = scratch(Scratch::gemm_b, columns_b * k + kW);
  float* const tiles = scratch(Scratch::gemm_tiles, panels_a * Pieces::slots(pieces) * kTileFloats);

  if (blocks_a == 1 && !direct_a) pack_a(g, 0, g.row_panels, packed_a);
  if constexpr (!kIsHalf<T>) {
    for (Index j = 0; j < direct_end; j += kCols)
      column_strip(g, packed_a, 0, g.row_panels, j, min_of(kCols, direct_end - j), b.data + j, b.stride, tiles);
  }
  for (Index begin = direct_end; begin < g.n; begin += columns_b) {
    const Index end = min_of(begin + columns_b, g.n);
    for (Index first = 0; first < g.row_panels; first += panels_a) {
      const Index last = min_of(first + panels_a, g.row_panels);
      if (blocks_a > 1) pack_a(g, first, last, packed_a);
      for (Index j = begin; j < end; j += kCols) {
        if (first == 0 && (j - begin) % near == 0) pack_b(g, j, min_of(j + near, end), packed_b + (j - begin) * k);
        column_strip(g, packed_a, first, last, j, min_of(kCols, g.n - j), packed_b + (j - begin) * k, kCols, tiles);
      }
    }
  }
}
