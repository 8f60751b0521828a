// Copies an operand of a product into panels: for each k, the `width` neighbouring rows of op(A) or columns of op(B)
// that a micro-kernel consumes together. Rows and columns past the edge hold copies of the last one, or +0 (they are
// computed and thrown away); k is never padded. Writes up to kW - 1 floats past the end of a panel. Panels hold floats
// whatever T the source is stored in: the micro-kernels know one type. Included by products_*.cpp.

// r[i] <-> column i of the kW x kW block held in r.
#if defined(__AVX512F__)
SEEKSIM_FN void transpose(Vf (&r)[16]) {
  __m512 t[16];
  SEEKSIM_UNROLL
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  const auto low = [](__m512 a, __m512 b) SEEKSIM_LAMBDA {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const auto high = [](__m512 a, __m512 b) SEEKSIM_LAMBDA {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  SEEKSIM_UNROLL
  for (int i = 0; i < 16; i += 4) {  // 4x4 blocks are transposed after this
    r[i] = low(t[i], t[i + 2]);
    r[i + 1] = high(t[i], t[i + 2]);
    r[i + 2] = low(t[i + 1], t[i + 3]);
    r[i + 3] = high(t[i + 1], t[i + 3]);
  }
  SEEKSIM_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  SEEKSIM_UNROLL
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}
#elif defined(__AVX2__)
SEEKSIM_FN void transpose(Vf (&r)[8]) {
  __m256 t[8];
  SEEKSIM_UNROLL
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  SEEKSIM_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}
#else
SEEKSIM_FN void transpose(Vf (&)[1]) {}
#endif

// One block of up to kW source rows, k contiguous: out[k * stride + i] = src[i * ld + k].
template <class T>
SEEKSIM_FN void pack_transposed_block(const T* src, Index ld, Index rows, Index k_count, Index stride, float* out) {
  const T* row[kW];
  for (int i = 0; i < kW; ++i) row[i] = src + min_of(i, rows - 1) * ld;
  Index k = 0;
  for (; k + kW <= k_count; k += kW) {
    Vf r[kW];
    SEEKSIM_UNROLL
    for (int i = 0; i < kW; ++i) r[i] = load(row[i] + k);
    transpose(r);
    SEEKSIM_UNROLL
    for (int i = 0; i < kW; ++i) store(out + (k + i) * stride, r[i]);
  }
  const int left = static_cast<int>(k_count - k);
  if (left < kW / 2) {
    for (; k < k_count; ++k)
      for (int i = 0; i < min_of(kW, stride); ++i) out[k * stride + i] = as_float(row[i][k]);
    return;
  }
  Vf r[kW];
  SEEKSIM_UNROLL
  for (int i = 0; i < kW; ++i) r[i] = load_first(row[i] + k, left);
  transpose(r);
  for (int i = 0; i < left; ++i) store(out + (k + i) * stride, r[i]);
}

// A panel of `width` source rows of which `rows` exist. Blocks overlap in memory when width is not a multiple of kW.
// Each k is written after the one before, so that its spill-over is overwritten.
template <class T>
void pack_transposed(const T* src, Index ld, Index rows, Index k_count, Index width, float* out) {
  for (Index i = 0; i < width; i += kW) {
    const Index at = min_of(i, rows - 1);
    pack_transposed_block(src + at * ld, ld, max_of(rows - i, 1), k_count, width, out + i);
  }
}

// Neighbouring panels of a source whose rows are k: out[k * width + i] = src[k * ld + i]. They are filled together, k
// by k, so that the source is read in long stretches.
template <class T>
struct RowPanel {
  const T* src;
  Index columns;  // that exist
  Index width;
  float* out;
};

// Panels of B: width 2 kW, of which the second half is left alone where it has no column.
template <class T>
SEEKSIM_FN void pack_row_wide(const RowPanel<T>& panel, Index ld, Index k) {
  const T* const from = panel.src + k * ld;
  float* const to = panel.out + k * 2 * kW;
  __builtin_prefetch(from + 4 * ld);
  __builtin_prefetch(from + 4 * ld + kW);
  if (panel.columns == 2 * kW) {
    store(to, load(from));
    store(to + kW, load(from + kW));
    return;
  }
  const int columns = static_cast<int>(panel.columns);
  store(to, load_first(from, columns < kW ? columns : kW));
  if (columns > kW) store(to + kW, load_first(from + kW, columns - kW));
}

// Panels of A: all columns exist.
template <class T>
SEEKSIM_FN void pack_row_narrow(const RowPanel<T>& panel, Index ld, Index k) {
  const T* const from = panel.src + k * ld;
  float* const to = panel.out + k * panel.width;
  for (Index i = 0; i < panel.width; i += kW) {
    const int n = static_cast<int>(min_of(kW, panel.width - i));
    store_first(to + i, n, load_first(from + i, n));
  }
}

constexpr int kPanelsAtOnce = 8;

template <bool kWide, class T>
void pack_rows(const RowPanel<T>* panels, int count, Index ld, Index k_count) {
  for (Index k = 0; k < k_count; ++k) {
    for (int p = 0; p < count; ++p) {
      if constexpr (kWide) {
        pack_row_wide(panels[p], ld, k);
      } else {
        pack_row_narrow(panels[p], ld, k);
      }
    }
  }
}
