// `fast` mode's products on a CPU (fast.h), outside of the contract's forms on purpose: K in tiles, in each tile two
// chains over even and odd k, the chains added, the tiles added up. A vendor's kernel differs from the contract in the
// same way, and the bound has to allow it. Included by products_*.cpp, after gemm.inl.

constexpr int kFastRows = 4;
#if defined(__AVX512F__)
constexpr int kFastVectors = 2;
#elif defined(__AVX2__)
constexpr int kFastVectors = 1;
#else
constexpr int kFastVectors = 4;
#endif
constexpr int kFastCols = kFastVectors * kW;
constexpr Index kFastTileK = 256;

// TF32, as a tensor core reads an fp32 operand: ten bits behind the point, to nearest, ties away from zero.
SEEKSIM_FN float as_tf32(float x) {
  const std::uint32_t u = FloatOps::bits(x);
  if ((u & 0x7f800000U) == 0x7f800000U) return x;
  return FloatOps::from_bits((u + 0x1000U) & 0xffffe000U);
}

// One tile of K of a panel of kFastRows rows (a: kFastRows floats for each k) and one of kFastCols columns (b), added
// to what `c` (kFastRows x kFastCols) holds, or put there. kInBf16: each sum is rounded, a planted mistake.
template <bool kInBf16>
void fast_tile(const float* a, const float* b, Index k_count, bool first, float* c) {
  const auto rounded = [](Vf x) SEEKSIM_LAMBDA { return kInBf16 ? rounded_to<bf16>(x) : x; };
  Vf acc[2][kFastRows][kFastVectors];
  for (auto& chain : acc)
    for (auto& row : chain)
      for (Vf& v : row) v = splat(0.0F);
  const auto step = [&](Index k, auto& chain) SEEKSIM_LAMBDA {
    Vf bk[kFastVectors];
    SEEKSIM_UNROLL
    for (int v = 0; v < kFastVectors; ++v) bk[v] = load(b + k * kFastCols + v * kW);
    SEEKSIM_UNROLL
    for (int i = 0; i < kFastRows; ++i) {
      const Vf ai = splat(a[k * kFastRows + i]);
      SEEKSIM_UNROLL
      for (int v = 0; v < kFastVectors; ++v) chain[i][v] = rounded(SimdOps::fma(ai, bk[v], chain[i][v]));
    }
  };
  Index k = 0;
  for (; k + 2 <= k_count; k += 2) {
    step(k, acc[0]);
    step(k + 1, acc[1]);
  }
  if (k < k_count) step(k, acc[0]);
  for (int i = 0; i < kFastRows; ++i) {
    for (int v = 0; v < kFastVectors; ++v) {
      float* const to = c + i * kFastCols + v * kW;
      const Vf tile = rounded(SimdOps::add(acc[0][i][v], acc[1][i][v]));
      store(to, first ? tile : rounded(SimdOps::add(load(to), tile)));
    }
  }
}

// `count` <= width neighbouring rows of op(A) or columns of op(B), first at x, k by k; missing ones repeat the last.
template <class T>
void fast_pack(const T* x, Index stride, bool k_is_row, Index count, Index k_count, Index width, bool tf32,
               float* out) {
  for (Index k = 0; k < k_count; ++k) {
    for (Index i = 0; i < width; ++i) {
      const Index at = min_of(i, count - 1);
      const float value = as_float(k_is_row ? x[k * stride + at] : x[at * stride + k]);
      out[k * width + i] = tf32 ? as_tf32(value) : value;
    }
  }
}

// All of K for one panel of rows and one of columns, into c.
SEEKSIM_FN void fast_panel(const float* a, const float* b, Index k, const FastWay& way, float* c) {
  for (Index begin = 0; begin < k; begin += kFastTileK) {
    Index size = min_of(kFastTileK, k - begin);
    if (way.slip == FastSlip::last_k_left_out && size > 1) --size;
    const float* const from_a = a + begin * kFastRows;
    const float* const from_b = b + begin * kFastCols;
    if (way.slip == FastSlip::sums_in_bf16) {
      fast_tile<true>(from_a, from_b, size, begin == 0, c);
    } else {
      fast_tile<false>(from_a, from_b, size, begin == 0, c);
    }
  }
}

template <class T, class To>
void fast_gemm_body(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, const T* bias, const FastWay& way) {
  const Index k = ta ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  if (k == 0) return gemm_body<T, To>(ta, tb, a, b, c, 0, bias);
  const bool tf32 = way.tf32 && !kIsHalf<T>;
  const Index panels = (c.rows + kFastRows - 1) / kFastRows;
  float* const packed_a = scratch(Scratch::gemm_a, panels * kFastRows * k);
  float* const packed_b = scratch(Scratch::gemm_b, kFastCols * k);
  for (Index p = 0; p < panels; ++p) {
    const Index i = p * kFastRows;
    fast_pack(ta ? a.data + i : a.row(i), a.stride, ta, min_of(kFastRows, c.rows - i), k, kFastRows, tf32,
              packed_a + i * k);
  }
  float tile[kFastRows * kFastCols];
  for (Index j = 0; j < c.cols; j += kFastCols) {
    const Index columns = min_of(kFastCols, c.cols - j);
    fast_pack(tb ? b.row(j) : b.data + j, b.stride, !tb, columns, k, kFastCols, tf32, packed_b);
    for (Index i = 0; i < c.rows; i += kFastRows) {
      fast_panel(packed_a + i * k, packed_b, k, way, tile);
      for (Index r = 0; r < min_of(kFastRows, c.rows - i); ++r) {
        float* const row = tile + r * kFastCols;
        for (Index n = 0; bias != nullptr && n < columns; ++n) row[n] = FloatOps::add(row[n], as_float(bias[j + n]));
        convert(row, c.row(i + r) + j, columns);
      }
    }
  }
}
