// The product of two packed operands. Included by products_*.cpp.
//
//        K                 N                A panel: kRows rows, k by k      \   a tile of C in registers:
//    +-------+         +-+-+-+-+            B panel: kCols columns, k by k   /   kRows x kCols accumulators
//  M | A     |  times  | | | | |
//    +-------+       K | |B| | |            Every element of the tile is one ascending fma chain. Where K is cut - into
//    | block |         | | | | |            blocks for the cache, or into segments (F2) - a chain is stored and resumed,
//    +-------+         +-+-+-+-+            or merged with the tiles of earlier segments as the binary counter says.

#if defined(__AVX512F__)
constexpr int kRows = 14, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kRows = 6, kVectors = 2;
#else
constexpr int kRows = 4, kVectors = 2;
#endif
constexpr int kCols = kVectors * kW;

// A stretch of K, and what becomes of the chain at its end. Slots are the stack of the binary counter: slot 0 is C
// itself, so that a plain chain needs no other memory.
struct Piece {
  Index begin = 0;
  Index size = 0;
  bool resume = false;  // the chain goes on from what slot `top` holds
  int top = 0;          // slots in use before this segment
  int bottom = 0;       // the chain is merged with slots top-1 .. bottom and stored in slot `bottom`
};

// Where a tile of C lives: slot 0 at c, the others in working memory.
struct TileSlots {
  float* c;
  Index ldc;
  float* others;  // slot s at others + (s - 1) * kRows * kCols

  SEEKSIM_FN float* at(const TileSlots& t, int slot) { return slot == 0 ? t.c : t.others + (slot - 1) * kRows * kCols; }
  SEEKSIM_FN Index ld(const TileSlots& t, int slot) { return slot == 0 ? t.ldc : kCols; }
};

// a: kM floats for each k, a_stride apart; b: kN vectors for each k, b_stride apart. bias: kN vectors or null.
template <int kM, int kN>
void tile(const Piece& piece, const float* a, Index a_stride, const float* b, Index b_stride, const TileSlots& slots,
          const float* bias) {
  Vf acc[kM][kN];
  if (piece.resume) {
    const float* const from = TileSlots::at(slots, piece.top);
    const Index ld = TileSlots::ld(slots, piece.top);
    SEEKSIM_UNROLL
    for (int i = 0; i < kM; ++i) {
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) acc[i][v] = load(from + i * ld + v * kW);
    }
  } else {
    SEEKSIM_UNROLL
    for (int i = 0; i < kM; ++i) {
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) acc[i][v] = splat(0.0F);
    }
  }
  for (Index k = 0; k < piece.size; ++k) {
    Vf bk[kN];
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) bk[v] = load(b + v * kW);
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) __builtin_prefetch(b + 8 * b_stride + v * kW);
    SEEKSIM_UNROLL
    for (int i = 0; i < kM; ++i) {
      const Vf ai = splat(a[i]);
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) acc[i][v] = SimdOps::fma(ai, bk[v], acc[i][v]);
    }
    a += a_stride;
    b += b_stride;
  }
  for (int slot = piece.top - 1; slot >= piece.bottom; --slot) {
    const float* const older = TileSlots::at(slots, slot);
    const Index ld = TileSlots::ld(slots, slot);
    SEEKSIM_UNROLL
    for (int i = 0; i < kM; ++i) {
      SEEKSIM_UNROLL
      for (int v = 0; v < kN; ++v) acc[i][v] = SimdOps::add(load(older + i * ld + v * kW), acc[i][v]);
    }
  }
  if (bias != nullptr) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) {
      const Vf bv = load(bias + v * kW);
      SEEKSIM_UNROLL
      for (int i = 0; i < kM; ++i) acc[i][v] = SimdOps::add(acc[i][v], bv);
    }
  }
  float* const to = TileSlots::at(slots, piece.bottom);
  const Index ld = TileSlots::ld(slots, piece.bottom);
  SEEKSIM_UNROLL
  for (int i = 0; i < kM; ++i) {
    SEEKSIM_UNROLL
    for (int v = 0; v < kN; ++v) store(to + i * ld + v * kW, acc[i][v]);
  }
}

using TileFunction = void (*)(const Piece&, const float*, Index, const float*, Index, const TileSlots&, const float*);

template <int kM>
constexpr void fill_tiles(TileFunction (*table)[kVectors + 1]) {
  table[kM][1] = tile<kM, 1>;
  table[kM][2] = tile<kM, 2>;
  if constexpr (kM > 1) fill_tiles<kM - 1>(table);
}
struct TileTable {
  TileFunction at[kRows + 1][kVectors + 1] = {};
  constexpr TileTable() { fill_tiles<kRows>(at); }
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
    if (p.at_ == segment_end) {
      const int merges = __builtin_ctzll(~static_cast<unsigned long long>(p.segment_index_));
      piece.bottom = p.segment_index_ == p.last_ ? 0 : piece.top - merges;
      ++p.segment_index_;
    }
    return true;
  }
  // Slots beside C that the counter may need.
  SEEKSIM_FN int extra_slots(const Pieces& p) { return p.last_ == 0 ? 0 : 64 - __builtin_clzll(static_cast<unsigned long long>(p.last_)); }

 private:
  static constexpr Index kBlockK = 448;
  Index k_, segment_, last_;
  Index at_ = 0, segment_index_ = 0;
};

// One product, prepared: panels of A have rows(p) rows each, cut evenly.
struct Product {
  bool ta, tb;
  Mat<const float> a, b;
  Mat<float> c;
  Index m, n, k, segment;
  const float* bias;
  Index row_panels;

  SEEKSIM_FN Index row_begin(const Product& g, Index panel) { return panel * g.m / g.row_panels; }
};

SEEKSIM_FN void pack_a(const Product& g, Index panel, float* out) {
  const Index i = Product::row_begin(g, panel);
  const Index rows = Product::row_begin(g, panel + 1) - i;
  if (g.ta) {
    pack_rows(g.a.data + i, g.a.stride, rows, g.k, rows, out);
  } else {
    pack_transposed(g.a.row(i), g.a.stride, rows, g.k, rows, out);
  }
}

SEEKSIM_FN void pack_b(const Product& g, Index column, float* out) {
  const Index columns = min_of(kCols, g.n - column);
  if (g.tb) {
    pack_transposed(g.b.row(column), g.b.stride, columns, g.k, kCols, out);
  } else {
    pack_rows(g.b.data + column, g.b.stride, columns, g.k, kCols, out);
  }
}

// All of K for one panel of B against the packed panels [first, last) of A. b: packed (stride kCols) or B itself.
void column_strip(const Product& g, const float* packed_a, Index first, Index last, Index column, const float* b,
                  Index b_stride, float* tiles) {
  const Index columns = min_of(kCols, g.n - column);
  const int vectors = static_cast<int>((columns + kW - 1) / kW);
  const bool whole = columns % kW == 0;
  Pieces pieces(g.k, g.segment);
  const Index tile_floats = (1 + Pieces::extra_slots(pieces)) * kRows * kCols;
  float bias[kCols];
  const float* bias_at = g.bias != nullptr ? g.bias + column : nullptr;
  if (bias_at != nullptr && !whole) {
    for (Index j = 0; j < kCols; ++j) bias[j] = j < columns ? g.bias[column + j] : 0.0F;
    bias_at = bias;
  }
  for (Piece piece; Pieces::next(pieces, piece);) {
    const bool end = piece.begin + piece.size == g.k;
    for (Index p = first; p < last; ++p) {
      const Index i = Product::row_begin(g, p), rows = Product::row_begin(g, p + 1) - i;
      float* const own = tiles + (p - first) * tile_floats;
      // At a ragged right edge slot 0 is a tile of working memory, copied out at the end.
      const TileSlots slots = whole ? TileSlots{g.c.row(i) + column, g.c.stride, own + kRows * kCols}
                                    : TileSlots{own, kCols, own + kRows * kCols};
      const float* const a = packed_a + (i - Product::row_begin(g, first)) * g.k + piece.begin * rows;
      kTiles.at[rows][vectors](piece, a, rows, b + piece.begin * b_stride, b_stride, slots, end ? bias_at : nullptr);
      if (end && !whole) {
        for (Index r = 0; r < rows; ++r)
          for (Index j = 0; j < columns; ++j) g.c(i + r, column + j) = own[r * kCols + j];
      }
    }
  }
}

void gemm_body(bool ta, bool tb, Mat<const float> a, Mat<const float> b, Mat<float> c, Index segment,
               const float* bias) {
  const Index k = ta ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  if (k == 0) {
    for (Index i = 0; i < c.rows; ++i)
      for (Index j = 0; j < c.cols; ++j) c(i, j) = bias != nullptr ? FloatOps::add(0.0F, bias[j]) : 0.0F;
    return;
  }
  const Product g{ta,      tb,      a, b, c, c.rows, c.cols, k, segment <= 0 || segment > k ? k : segment, bias,
                  (c.rows + kRows - 1) / kRows};
  constexpr Index kBlockA = 256 * 1024;       // floats of packed A: half of a 2 MiB second-level cache
  constexpr Index kBlockB = 8 * 1024 * 1024;  // floats of packed B kept over all blocks of A
  const Index panels_a = max_of(1, min_of(g.row_panels, kBlockA / (k * kRows)));
  const Index columns_b = max_of(kCols, min_of((g.n + kCols - 1) / kCols * kCols, kBlockB / k / kCols * kCols));
  float* const packed_a = scratch(Scratch::gemm_a, panels_a * kRows * k + kW);
  float* const packed_b = scratch(Scratch::gemm_b, columns_b * k + kW);
  const Pieces pieces(k, g.segment);
  float* const tiles = scratch(Scratch::gemm_tiles, panels_a * (1 + Pieces::extra_slots(pieces)) * kRows * kCols);

  for (Index first_column = 0; first_column < g.n; first_column += columns_b) {
    const Index end_column = min_of(first_column + columns_b, g.n);
    for (Index j = first_column; j < end_column; j += kCols) pack_b(g, j, packed_b + (j - first_column) * k);
    for (Index first = 0; first < g.row_panels; first += panels_a) {
      const Index last = min_of(first + panels_a, g.row_panels);
      for (Index p = first; p < last; ++p)
        pack_a(g, p, packed_a + (Product::row_begin(g, p) - Product::row_begin(g, first)) * k);
      for (Index j = first_column; j < end_column; j += kCols)
        column_strip(g, packed_a, first, last, j, packed_b + (j - first_column) * k, kCols, tiles);
    }
  }
}
